"""The files that ``onnx-gate init`` writes for a model and its repository, decided before any is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from onnx_gate.errors import UserError
from onnx_gate.gate.place import place
from onnx_gate.init import manifest_text
from onnx_gate.init.facts import Learned

WORKFLOW = ".github/workflows/onnx-gate.yml"
_STEP = "      - uses: onnx-gate/onnx-gate@v0\n"
FOLDER = "onnx-gate"
OUTPUT = "onnx-gate-report"


class Files:
    """What is written for a model, decided before any of it is."""

    def __init__(
        self, manifest: Path, name: str, reference: str, learned: Learned, calls: Sequence[Path]
    ) -> None:
        self.new: dict[Path, bytes] = {}
        self.changed: dict[Path, tuple[bytes, bytes]] = {}
        self.kept: list[Path] = []
        self._folder = manifest.parent
        for number, file in enumerate(calls):
            target = self._folder / FOLDER / name / f"call-{number}{file.suffix}"
            self.new[target] = file.read_bytes()
        if calls:
            suffixes = sorted({file.suffix for file in calls})
            globs = tuple(f"{FOLDER}/{name}/*{suffix}" for suffix in suffixes)
            learned = replace(learned, recorded=globs)
        if learned.factory is not None:
            self._own(self._folder / FOLDER / f"{name}.py", learned.factory)
            reference = f"{FOLDER}/{name}.py:build"
        self._name, self._reference, self._manifest = name, reference, manifest
        text, suite = (
            manifest_text.entry(name, reference, learned),
            manifest_text.suite(name, learned),
        )
        self._entry = text
        if manifest.exists():
            old = manifest.read_bytes()
            self.changed[manifest] = (
                old,
                manifest_text.added(old.decode("utf-8"), name, text, suite).encode(),
            )
        else:
            needs = self._folder / "requirements.txt"
            found = needs.name if needs.is_file() else None
            self.new[manifest] = manifest_text.manifest(text, suite, found).encode()
        self._repository(manifest)
        for path in self.new:
            if path.exists():
                raise UserError(f"{path} is there already; move it away, or choose another --name")

    def _own(self, path: Path, text: str) -> None:
        if path.exists() and path.read_bytes() == text.encode():
            self.kept.append(path)
        else:
            self.new[path] = text.encode()

    def _repository(self, manifest: Path) -> None:
        root = root_of(self._folder)
        if root is None:
            return
        path = root / WORKFLOW
        if path.exists():
            self.kept.append(path)
        else:
            self.new[path] = workflow(manifest.relative_to(root).as_posix()).encode()
        ignore = root / ".gitignore"
        old = ignore.read_bytes() if ignore.exists() else b""
        new = ignoring(old.decode("utf-8", "surrogateescape"), f"{OUTPUT}/")
        if new is not None and ignore.exists():
            self.changed[ignore] = (old, new.encode("utf-8", "surrogateescape"))
        elif new is not None:
            self.new[ignore] = new.encode()

    def write(self) -> None:
        """Write them all, or none; raises ``UserError``."""
        place(self.new, self.changed)

    def write_entry(self, learned: Learned) -> None:
        """Put another entry in the place of the one that was written; raises ``UserError``."""
        text = manifest_text.entry(self._name, self._reference, learned)
        old = self._manifest.read_bytes()
        new = old.replace(self._entry.encode(), text.encode())
        place({}, {self._manifest: (old, new)})
        self._entry = text

    def lines(self) -> list[str]:
        """Say which files were written, and which were left as they are."""
        root = root_of(self._folder) or self._folder

        def shown(paths: Iterable[Path]) -> str:
            return ", ".join(path.relative_to(root).as_posix() for path in paths)

        lines = [f"wrote {shown(self.new)}"] if self.new else []
        lines += [f"changed {shown(self.changed)}"] if self.changed else []
        lines += [f"left as it is: {shown(self.kept)}"] if self.kept else []
        if root_of(self._folder) is None:
            lines.append("no git repository here, so no workflow and no .gitignore were written")
        return [*lines, ""]


def root_of(folder: Path) -> Path | None:
    """Return the top of the git repository that a folder is in."""
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)


def workflow(manifest: str) -> str:
    """Return the workflow for a manifest at a path below the repository's top."""
    text = (Path(__file__).parent / "workflow.yml").read_text(encoding="utf-8")
    if manifest == "onnx-gate.yml":
        return text
    return text.replace(_STEP, f"{_STEP}        with:\n          manifest: {manifest}\n")


def ignoring(old: str, line: str) -> str | None:
    """Return a ``.gitignore`` that ignores a folder, ``None`` where it does."""
    known = {each.strip().strip("/") for each in old.splitlines()}
    if line.strip("/") in known:
        return None
    return old + ("" if not old or old.endswith("\n") else "\n") + line + "\n"
