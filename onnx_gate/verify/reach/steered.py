"""The module run with a value put in the place of one that an operator makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.utils.weak import WeakTensorKeyDictionary

from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.tensors import to_array, to_tensor
from onnx_gate.verify.reach.shown import Place
from onnx_gate.verify.reach.sites import DecisionSite, Seen
from onnx_gate.verify.reach.watch import Watch
from onnx_gate.verify.reach.watcher import Watcher
from onnx_gate.verify.reference.operator_mode import OperatorMode, tensors_of


@dataclass(frozen=True)
class DecisionTaken:
    """What a decision was about in its first call: the operand, and the limit where it has one.

    ``operator`` makes of another operand what was made of this one.
    """

    operand: torch.Tensor
    limit: torch.Tensor | float | None
    operator: Callable[[torch.Tensor], Any] | None = None


class Steer(Watch):
    """Watches decisions, keeps what ``targets`` are about, and puts in values at places."""

    def __init__(
        self,
        watcher: Watcher,
        targets: frozenset[DecisionSite],
        put: Mapping[Place, torch.Tensor] | None = None,
    ) -> None:
        super().__init__(watcher, targets)
        self.taken: dict[DecisionSite, DecisionTaken] = {}
        self._put = put or {}
        self._fresh: dict[DecisionSite, torch.Tensor] = {}

    def _looked_at(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        self._fresh.clear()
        result = super()._looked_at(name, func, args, kwargs)
        for site, operand in self._fresh.items():
            operator = partial(_on_another, func, args, kwargs, operand)
            self.taken[site] = replace(self.taken[site], operator=operator)
        return result

    def call(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator, and put something in the place of what it makes."""
        number, result = self._calls - 1, func(*args, **kwargs)
        if all(place[0] != number for place in self._put):
            return result
        leaves, tree = pytree.tree_flatten(result)
        for index, leaf in enumerate(leaves):
            value = self._put.get((number, index))
            if value is not None and func._schema.is_mutable:
                leaf.copy_(value)
            elif value is not None:
                leaves[index] = value.to(leaf.dtype, copy=True)  # which may be narrower
        return pytree.tree_unflatten(leaves, tree)

    def _add(
        self, site: DecisionSite, seen: Seen, operand: torch.Tensor | None = None, limit: Any = None
    ) -> None:
        if operand is not None and site in self._targets and site not in self.taken:
            kept = limit.detach().clone() if isinstance(limit, torch.Tensor) else limit
            self.taken[site] = DecisionTaken(operand.detach().clone(), kept)
            self._fresh[site] = operand
        super()._add(site, seen, operand, limit)


def _on_another(
    func: Any, args: Any, kwargs: dict[str, Any], operand: torch.Tensor, value: torch.Tensor
) -> Any:
    """Call an operator once more, with a value in the place of an operand."""

    def put(leaf: Any) -> Any:
        return value.clone() if leaf is operand else leaf

    args, kwargs = pytree.tree_map(put, (args, kwargs))
    with torch.no_grad():
        return func(*args, **kwargs)


class _Search(OperatorMode):
    """Finds the operators that make values which are ``alike`` of none that is, for several."""

    def __init__(self, alike: Mapping[DecisionSite, Callable[[torch.Tensor], bool]]) -> None:
        super().__init__()
        self.roots: dict[DecisionSite, list[Place]] = {site: [] for site in alike}
        self._alike, self._calls = alike, 0
        # Of each tensor that depends on an input: what it is like, or made of something like it.
        self._behind: MutableMapping[torch.Tensor, frozenset[DecisionSite]] = (
            WeakTensorKeyDictionary()
        )

    def know(self, tensor: torch.Tensor, behind: frozenset[DecisionSite], place: Place) -> None:
        """Look at a tensor that depends on an input."""
        for site, alike in self._alike.items():
            if site not in behind and alike(tensor):
                self.roots[site].append(place)
                behind |= {site}
        self._behind[tensor] = behind

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator and look at what it makes."""
        number, self._calls = self._calls, self._calls + 1
        given = tensors_of((args, kwargs))
        known = [behind for x in given if (behind := self._behind.get(x)) is not None]
        result = func(*args, **kwargs)
        if known:
            behind = frozenset[DecisionSite]().union(*known)
            for index, leaf in enumerate(pytree.tree_leaves(result)):
                if isinstance(leaf, torch.Tensor):
                    self.know(leaf, behind, (number, index))
        return result


class SteeredModule:
    """A module on one case, with values put in."""

    def __init__(self, watcher: Watcher, arrays: Mapping[str, Array]) -> None:
        self.watcher, self.arrays = watcher, arrays

    def look(
        self, targets: frozenset[DecisionSite]
    ) -> tuple[Mapping[DecisionSite, DecisionTaken], tuple[Array, ...]]:
        """Return what decisions are about, and the outputs; raises ``Refusal``."""
        steer = Steer(self.watcher, targets)
        return steer.taken, self._run({}, steer)

    def roots(
        self, alike: Mapping[DecisionSite, Callable[[torch.Tensor], bool]]
    ) -> Mapping[DecisionSite, list[Place]]:
        """Return where the values begin that decisions are about; raises ``Refusal``."""
        search = _Search(alike)
        tensors = {name: to_tensor(array) for name, array in self.arrays.items()}
        for name, tensor in tensors.items():
            search.know(tensor, frozenset(), (name, 0))
        self.watcher.eager.run_prepared(tensors, mode=search)
        return search.roots

    def put(
        self,
        site: DecisionSite,
        roots: list[Place],
        value: torch.Tensor,
        around: AbstractContextManager[Any] | None = None,
    ) -> tuple[set[str], tuple[Array, ...]]:
        """Return the sides that a decision then shows, and the outputs; raises ``Refusal``."""
        put = dict.fromkeys(roots, value)
        steer = Steer(self.watcher, frozenset((site,)), put)
        outputs = self._run(put, steer, around)
        return steer.seen[site].sides if site in steer.seen else set(), outputs

    def _run(
        self,
        put: Mapping[Place, torch.Tensor],
        steer: Steer,
        around: AbstractContextManager[Any] | None = None,
    ) -> tuple[Array, ...]:
        tensors = {name: to_tensor(array) for name, array in self.arrays.items()}
        tensors |= {str(at): value.clone() for (at, _), value in put.items() if at in tensors}
        with ExitStack() as stack:
            if around is not None:
                stack.enter_context(around)
            _, outputs = self.watcher.eager.run_prepared(tensors, mode=steer)
        return tuple(to_array(output) for output in outputs)
