"""The types of what other packages made of the models' answers."""

from __future__ import annotations

from typing import Literal

from onnx_gate.findings.finding import Frozen
from onnx_gate.report.model.number import Number
from onnx_gate.report.model.result import Verdict

Link = Literal["pytorch", "export", "engine"]
"""What answers otherwise: the module in PyTorch, the file that is made of it, or what runs the file."""


class Package(Frozen):
    """A package of which base and head have two releases; null where one of them has none."""

    name: str
    old: str | None = None
    new: str | None = None


class LinkAnswer(Frozen):
    """One link of one model, asked in the environments of base and head, all else held fast.

    ``before`` and ``verdict`` are the base's and the head's: of PyTorch, held against the base's
    PyTorch; of export and engine, against PyTorch. ``share`` is how much of its tolerance the head's
    worst check (of ``output`` in ``case``) has used, ``share_before`` the base's; null where nothing
    was compared, and ``reason`` then says why. ``packages`` are those that changed it: more than one
    where they do only together, or where they could not be told apart (not ``sure``).
    """

    model: str
    link: Link
    before: Verdict
    verdict: Verdict
    share: Number | None = None
    share_before: Number | None = None
    output: str = ""
    case: str = ""
    reason: str = ""
    packages: tuple[str, ...] = ()
    sure: bool = True

    @property
    def changed(self) -> bool:
        """Whether the verdict is another one."""
        return self.before != self.verdict


class Since(Frozen):
    """What became of the models' answers from the packages of ``base_file`` to those of ``head_file``.

    Both are files of requirements, as they were named. ``runs`` is how often the gate has run;
    ``out_of_time``: it would have run more often, and some of the answers were not asked for.
    """

    base_file: str
    head_file: str
    packages: tuple[Package, ...] = ()
    answers: tuple[LinkAnswer, ...] = ()
    runs: int = 0
    out_of_time: bool = False
