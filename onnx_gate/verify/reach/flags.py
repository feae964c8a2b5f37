"""Truths that hold together without an ``and``: products of 0 and 1, and choices within choices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

# What makes numbers of a truth, and what joins two of them.
FLAGGED = frozenset(("_to_copy", "mul"))


class Flags:
    """The truths that tensors of one pass stand for, and those by which they were chosen."""

    def __init__(self) -> None:
        self._of: MutableMapping[torch.Tensor, torch.Tensor] = WeakTensorKeyDictionary()
        self._chosen: MutableMapping[torch.Tensor, torch.Tensor] = WeakTensorKeyDictionary()

    def of(self, value: Any) -> torch.Tensor | None:
        """Return the truth that a value is, or stands for."""
        if not isinstance(value, torch.Tensor):
            return None
        return value if value.dtype == torch.bool else self._of.get(value)

    def joined(
        self, name: str, bound: Mapping[str, Any], result: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
        """Take note of what an operator makes; return two truths that it joins, with what they come to."""
        one, other = self.of(bound["self"]), self.of(bound.get("other"))
        if name == "_to_copy" and one is not None:
            self._of[result] = one
        if name != "mul" or one is None or other is None:
            return None
        self._of[result] = both = one & other
        return one, other, both

    def chosen(self, bound: Mapping[str, Any], result: torch.Tensor) -> Iterator[torch.Tensor]:
        """Yield where a truth chooses, as ``where`` does, what another has chosen: both hold there."""
        held = bound.get("condition")
        if not isinstance(held, torch.Tensor) or held.dtype != torch.bool:
            return
        held = both = held.broadcast_to(result.shape)
        for part, truth in (("self", held), ("other", ~held)):
            tensor = bound.get(part)
            inner = self._chosen.get(tensor) if isinstance(tensor, torch.Tensor) else None
            if inner is not None and inner.shape == held.shape and (met := truth & inner).any():
                yield met
                both = met if both is held else both | met
        self._chosen[result] = both
