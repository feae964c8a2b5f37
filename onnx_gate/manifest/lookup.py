"""Where things of a manifest are: in its text, on disk, in other packages; and what was wrong there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from onnx_gate.manifest import nesting, paths
from onnx_gate.manifest.problems import Keys, Mistake
from onnx_gate.manifest.validate import MAX_MISTAKES, Checked
from onnx_gate.manifest.yaml_source import ManifestSource
from onnx_gate.text import did_you_mean


class Lookup:
    """A manifest's text and folder; ``mistakes`` has what was found on the way.

    Without a ``workspace`` nothing is looked for outside the manifest: no file, no package.
    """

    def __init__(
        self, checked: Checked, source: ManifestSource, workspace: Path | None, *, files: bool
    ) -> None:
        self.mistakes: list[Mistake] = []
        self.workspace = workspace
        self._damaged = checked.damaged
        self._source = source
        self._files = files

    def line(self, path: Keys) -> int:
        """The line of a key, or of what it stands in."""
        return self._source.keys[self._source.known(path)].line

    def names(self, section: str) -> Iterable[str]:
        """The names that a section defines, those of broken definitions too."""
        written = self._source.data.get(section)
        return list(written) if isinstance(written, dict) else ()

    def written(self, path: Keys) -> list[str]:
        """The keys of a mapping that could be read, as they stand there."""
        node = self._source.data
        for key in path:
            node = node[key]
        if not isinstance(node, dict):
            return []
        return [key for key in node if (*path, key) not in self._damaged]

    def of_input(self, here: Keys, name: str) -> str:
        """Return the key of a tensor among inputs, of which a cache has one for all its tensors."""
        written = self._source.known((*here, "inputs", name))
        return name if len(written) > len(here) + 1 else nesting.parts(name)[0]

    def is_damaged(self, path: Keys) -> bool:
        """Whether something at, above or below a path could not be read."""
        return any(cut[: len(path)] == path or path[: len(cut)] == cut for cut in self._damaged)

    def find(self, here: Keys, path: str | None) -> None:
        """Look for a file."""
        if self.workspace is not None and path is not None:
            self.tell(here, paths.complaint(self.workspace, path))

    def find_weights(self, here: Keys, path: str) -> None:
        """Look for a checkpoint."""
        if self.workspace is not None:
            self.tell(here, paths.weights_complaint(self.workspace, path))

    def find_globs(self, here: Keys, patterns: Iterable[str]) -> None:
        """Look for the files of a suite, where they have to be there already."""
        if self._files and self.workspace is not None:
            for pattern in patterns:
                self.tell(here, paths.files_complaint(self.workspace, pattern))

    def find_reference(self, here: Keys, reference: str | None) -> None:
        """Look for the file of a reference."""
        if self.workspace is not None and reference is not None:
            self.tell(here, paths.reference_complaint(self.workspace, reference))

    def likeness(self, name: str, known: Iterable[str]) -> str:
        """Looking for a likeness is slow; nobody reads the ones after the first problems."""
        return did_you_mean(name, known) if len(self.mistakes) <= MAX_MISTAKES else ""

    def tell(self, path: Keys, message: str | None, *, at_key: bool = False) -> None:
        """Note a mistake, if it is one."""
        if message is not None:
            self.mistakes.append(Mistake(self._source.known(path), message, at_key))


def registered(group: str) -> frozenset[str]:
    """The names that installed packages register in a group of entry points."""
    from onnx_gate.plugins import plugins  # slow, and needed by few manifests

    return frozenset(plugins(group).names)
