"""What the operators of a run decide: kept in one run, and decided the same way in another.

Where rounding decides how many rows an answer has (peaks, thresholds, suppressed boxes), no element of
a run with moved rounding stands for one of PyTorch's. What moved rounding does to those is told by
a run in which the numbers move and the decisions stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree


class Decided:
    """The results of operators that are truth values or whole numbers, in order.

    Kept in a run in which nothing moves, followed in others. Which elements are taken, in which order
    and how many is in them; numbers that jump (a floor) are not. Costs what those results take.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[str, list[Any]]] = []
        self._next: Iterator[tuple[str, list[Any]]] | None = None

    def followed(self) -> Decided:
        """Return the same decisions, for one run that is to take them."""
        followed = Decided()
        followed._next = iter(self._kept)
        return followed

    def take(self, name: str, result: Any) -> Any:
        """Keep what an operator has decided, or return its result with what was kept.

        Raises ``LookupError`` where other operators follow each other than in the run that was kept.
        """
        leaves, form = pytree.tree_flatten(result)
        decided = [place for place, leaf in enumerate(leaves) if _decides(leaf)]
        if self._next is None:
            self._kept.append((name, [_copy(leaves[place]) for place in decided]))
            return result
        expected, kept = next(self._next, ("", []))
        if expected != name or len(kept) != len(decided):
            raise LookupError(f"{name} where {expected or 'nothing'} was decided by")
        for place, value in zip(decided, kept, strict=True):
            leaf = leaves[place]
            if isinstance(leaf, torch.Tensor) and leaf.shape == value.shape:
                leaf.copy_(value)  # it may be what was written to
            else:
                leaves[place] = _copy(value)
        return pytree.tree_unflatten(leaves, form)


def _decides(leaf: Any) -> bool:
    if isinstance(leaf, torch.Tensor):
        return not leaf.is_floating_point() and not leaf.is_complex()
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.dtype.kind in "biu"
    return isinstance(leaf, int)


def _copy(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.clone()
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
