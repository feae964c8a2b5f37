"""The types of what was tried against a red verdict, and of what held."""

from __future__ import annotations

from typing import Any, Literal

from onnx_gate.findings.finding import Frozen

MAX_PATCH = 20_000
"""Characters of a remedy's patch, at most: what is longer is none that anybody reads."""

RemedyKind = Literal["fresh export", "export", "runtime", "inputs", "source"]


class LineEdit(Frozen):
    """Lines of a text file that are others with the remedy.

    ``file`` is relative to the manifest's folder. ``line`` is the first of ``old``, from 1; what is
    put in has a line beside it in both. Lines are what newlines part.
    """

    file: str
    line: int
    old: tuple[str, ...] = ()
    new: tuple[str, ...] = ()


class SettingChange(Frozen):
    """A key below the model's entry in the manifest, and what it is set to."""

    key: str
    value: Any


class Remedy(Frozen):
    """A change that was made to a copy and verified as the model was: the copy is green.

    ``changes`` are of the manifest, ``rewrite`` is the pattern of a change of the source, and
    ``file`` an ONNX file that is exported anew; relative to the manifest's folder. ``edits`` are all
    that differs in text, empty where the manifest is written so that it has to be changed by hand, and
    ``patch`` is the same as a unified diff. ``files`` has the SHA-256 that each file had that is another
    with the remedy. ``made`` is where the new ``file`` lies, relative to the report's folder.
    ``compared`` is the number of PyTorch's answers that the changed source was seen to leave as they
    were, but for their rounding; null where PyTorch's side is untouched.
    """

    kind: RemedyKind
    changes: tuple[SettingChange, ...] = ()
    rewrite: str = ""
    file: str | None = None
    made: str | None = None
    edits: tuple[LineEdit, ...] = ()
    patch: str = ""
    files: dict[str, str] = {}
    compared: int | None = None


class FreshExport(Frozen):
    """An export by PyTorch's own exporter that is green where the owner's script makes a red file.

    It is evidence about ``writer``, the script or function, and no remedy: what is shipped is what that
    writes. ``export`` is the manifest's ``export`` that was tried.
    """

    writer: str
    export: dict[str, Any]


class Remedies(Frozen):
    """What became of the remedies of one model, each on a copy and by the gate's own judge.

    ``held`` are in the order in which they are likely, ``tried`` counts them and those that did not
    hold, ``left`` are those for which the time was over. ``failed`` are the changes of the manifest
    that did not. ``fresh`` is what was seen of the owner's own script. ``seconds`` is what trying took.
    """

    held: tuple[Remedy, ...] = ()
    tried: int = 0
    left: int = 0
    failed: tuple[tuple[SettingChange, ...], ...] = ()
    fresh: FreshExport | None = None
    seconds: float = 0.0
