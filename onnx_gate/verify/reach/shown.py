"""What the decisions of one module were shown so far, by all of its runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import nn

from onnx_gate.graph.limits import EQUAL
from onnx_gate.runtimes import state
from onnx_gate.verify.reach.rules import Missing, Rule
from onnx_gate.verify.reach.sites import DecisionSite, Seen

# The number of an operator's call, or the name of an input, and which of its results.
Place = tuple[int | str, int]
# Where an operator is called, by its name, module, file, line and place there, and which time that is: the
# same with gradients and without, which have calls of their own. An input has its name.
Call = tuple[str, str, str, int, int, int]
# By the call that makes a value and which of its results that is: the limits that the file has for it,
# each with its operator there.
Limits = Mapping[tuple[Call | str, int], Mapping[float, str]]


class Shown:
    """What every decision of a module was shown.

    ``seen`` has the decisions in the order in which they were met, ``besides`` are the limits that the
    file alone has. ``asked``: NaN, or infinity, is asked for; ``masks`` are the numbers whose bits are,
    ``divisors`` those that whole ones are divided by.
    ``writes``: the module has operators that write to what they are given. ``chooses``: it has some that
    say which of several is the largest. ``paths`` are those of its parts by their ids, ``own`` the
    addresses of its tensors.
    """

    def __init__(self, module: nn.Module) -> None:
        self.seen: dict[DecisionSite, Seen] = {}
        self.besides: Limits = {}
        self.asked: set[Missing] = set()
        self.masks: set[int] = set()
        self.divisors: set[int] = set()
        self.writes = self.chooses = False
        self._listed: dict[float, None] = {}
        self._limits: dict[DecisionSite, frozenset[float]] = {}
        self.paths = {id(part): path for path, part in state.parts(module)}
        self.loaded(module)

    def loaded(self, module: nn.Module) -> None:
        """Take note that tensors of the module lie elsewhere now."""
        self.own = frozenset(state.address(each) for _, each in state.tensors(module)) - {0}

    def forget(self) -> None:
        """Begin anew."""
        self.seen.clear()
        self.asked.clear()
        self.masks.clear()
        self.divisors.clear()
        self._listed.clear()
        self._limits.clear()

    def learn(
        self,
        shown: Mapping[DecisionSite, Seen],
        listed: Mapping[float, None],
        limits: Mapping[DecisionSite, set[float]],
    ) -> None:
        """Remember what one run has shown, the numbers of its lists of limits, and those of each place."""
        self._listed.update(listed)
        for place, numbers in limits.items():
            self._limits[place] = self._limits.get(place, frozenset(numbers)) & numbers
        met, self.seen = (*self.seen.items(), *shown.items()), {}
        for site, seen in met:
            self.seen.setdefault(self.known_as(site), Seen()).add(seen)

    def known_as(self, site: DecisionSite) -> DecisionSite:
        """Return the decision without its limit where other runs have had others there."""
        steady = self._limits.get(site.place)
        return site if steady is None or site.limit in steady else site.place

    @property
    def constants(self) -> dict[float, None]:
        """The numbers that the module compares with, in the order in which they were met."""
        limits = (s.limit for s in self.seen if s.kind != "scale" and not s.has_rows)
        return dict.fromkeys(each for each in (*limits, *self._listed) if each is not None)

    @property
    def kept(self) -> frozenset[int] | None:
        """Its own tensors, of which gradients need no copies; ``None`` where they need none of any."""
        return self.own if self.writes else None

    @property
    def limits_of_inputs(self) -> Iterator[float]:
        """The limits that the file alone has for what the module is given."""
        for (at, _), limits in self.besides.items():
            if isinstance(at, str):
                yield from limits

    def open(self) -> list[tuple[DecisionSite, str]]:
        """Return the sides that were not seen, in the order of the code's running."""
        return [(site, side) for site, seen in self.seen.items() for side in seen.left(site)]


def rules_besides(
    operator: str, number: float, value: torch.Tensor, bounds: tuple[float, float]
) -> Iterator[Rule]:
    """Yield what a file decides that holds a value against a number: of whole ones also if it is that.

    ``bounds`` are the ends of what makes the value, at which nothing is decided.
    """
    equal = operator == EQUAL
    if not equal and bounds[0] < number < bounds[1]:
        yield Rule((number,))
    if equal or not value.is_floating_point():
        yield Rule((number,), "equality")
