"""What a repository gets beside the manifest: the workflow, and a line in ``.gitignore``."""

from __future__ import annotations

from pathlib import Path

WORKFLOW = ".github/workflows/onnx-gate.yml"
_STEP = "      - uses: onnx-gate/onnx-gate@v0\n"


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
