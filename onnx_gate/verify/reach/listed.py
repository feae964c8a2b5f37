"""The numbers of whole lists of limits that a module holds values against, as edges and thresholds are."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import torch

from onnx_gate.graph.arithmetic import MOST_LIMITS
from onnx_gate.runtimes import state
from onnx_gate.verify.reach.rules import BITWISE, DIVIDES

# Rows that were read of limits are few numbers; those of tables of vectors are not kept.
_LARGEST = 2**16


class ListedLimits:
    """Those of one pass, by the ``own`` addresses of a module's tensors."""

    def __init__(self, own: Collection[int]) -> None:
        self.numbers: dict[float, None] = {}
        self.masks: set[int] = set()
        self.divisors: set[int] = set()
        self._own = own
        # What was read of tables, with the table: held, so that nothing else comes to lie there.
        self._read: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def read(self, table: Any, rows: Any) -> None:
        """Take note of rows that were read of a table: a tree's thresholds are limits of its nodes."""
        if not isinstance(rows, torch.Tensor) or not isinstance(table, torch.Tensor):
            return
        few = rows.is_floating_point() and rows.numel() <= _LARGEST
        if few and state.address(table) in self._own:
            self._read[state.address(rows)] = rows, table

    def named(self, name: str, bound: Mapping[str, Any]) -> None:
        """Keep what an operator holds values against, takes bits by or divides whole numbers by."""
        if name == "isin":
            self.take(bound["test_elements"])
        elif name in BITWISE:
            for side in ("self", "other"):
                masks = self._whole(bound.get(side))
                self.masks |= masks
                # The last bits are what is left of a division by a power of two.
                self.divisors |= {each + 1 for each in masks if each > 0 and not each & (each + 1)}
        elif name in DIVIDES and not bound["self"].is_floating_point():
            self.divisors |= {each for each in self._whole(bound.get("other")) if each > 1}

    def _whole(self, given: Any) -> set[int]:
        """Return a number, or those of a small tensor of whole ones."""
        if isinstance(given, int):
            return {given}
        if not isinstance(given, torch.Tensor) or given.is_floating_point():
            return set()
        few = 0 < given.numel() <= MOST_LIMITS and state.address(given) in self._own
        return {*map(int, given.detach().reshape(-1).tolist())} if few else set()

    def take(self, limits: Any) -> bool:
        """Keep the numbers of limits that are the module's, or rows of those: of many some of all sizes.

        Return whether they are.
        """
        if not isinstance(limits, torch.Tensor):
            return False
        at = state.address(limits)
        if at in self._read:
            limits = self._read[at][1]
        elif at not in self._own:
            return False
        flat = limits.detach().reshape(-1)
        if flat.numel() > MOST_LIMITS:
            flat = flat.sort().values[torch.linspace(0, flat.numel() - 1, MOST_LIMITS).long()]
        values = (float(v) for v in flat.tolist())
        self.numbers.update(dict.fromkeys(v for v in values if math.isfinite(v)))
        return True
