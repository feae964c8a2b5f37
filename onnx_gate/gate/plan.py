"""Which machine verifies which models: shards of about equal work."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Literal

from onnx_gate.errors import UserError
from onnx_gate.report.model import Shard

# GitHub runs no more jobs of one matrix.
MAX_SHARDS = 256
_PER_SHARD = 4
_MOST_BY_ITSELF = 20


def partition(
    names: Sequence[str], count: int, weights: Mapping[str, float] | None = None
) -> tuple[tuple[str, ...], ...]:
    """Return ``names`` in ``count`` parts of about equal weight, each in the order of ``names``.

    The heaviest goes first, always to the lightest part (Graham's rule); equal ones go in the
    order of ``names``. A weight, in seconds say, that is unknown or no finite number from 0 on is
    the median of the others. No part is empty where there are ``count`` names or more.
    """
    known = {
        name: weights[name]
        for name in names
        if weights and 0 <= weights.get(name, math.nan) < math.inf
    }
    usual = median(known.values()) if known else 1.0
    parts: list[list[int]] = [[] for _ in range(count)]
    loads = [0.0] * count
    for index in sorted(range(len(names)), key=lambda i: (-known.get(names[i], usual), i)):
        # An empty part comes before any other that weighs nothing.
        lightest = min(range(count), key=lambda i: (loads[i], len(parts[i]), i))
        parts[lightest].append(index)
        loads[lightest] += known.get(names[index], usual)
    return tuple(tuple(names[index] for index in sorted(part)) for part in parts)


def matrix(names: Sequence[str], shards: int | Literal["auto"]) -> dict[str, list[str]]:
    """Return the ``strategy.matrix`` of GitHub: ``{"shard": ["1/3", "2/3", "3/3"]}``.

    There are never more shards than models, nor more than 256. ``auto`` is one for every four
    models, and at most 20.
    """
    wanted = (
        min(math.ceil(len(names) / _PER_SHARD), _MOST_BY_ITSELF) if shards == "auto" else shards
    )
    count = max(1, min(wanted, len(names), MAX_SHARDS))
    return {"shard": [f"{index}/{count}" for index in range(1, count + 1)]}


def parse_shards(text: str) -> int | Literal["auto"]:
    """Read a number of shards, or ``auto``; raises ``UserError`` for anything else."""
    if text == "auto":
        return "auto"
    if re.fullmatch(r"[1-9][0-9]{0,8}", text):
        return int(text)
    raise UserError(f"--shards {text!r}: write a number from 1 on, or auto")


def parse_shard(text: str) -> Shard:
    """Read ``2/3``; raises ``UserError`` for anything that is not one of at most 256 shards."""
    match = re.fullmatch(r"([1-9][0-9]{0,2})/([1-9][0-9]{0,2})", text)
    if match is None or not int(match[1]) <= int(match[2]) <= MAX_SHARDS:
        raise UserError(
            f"shard {text!r}: write which one of how many, from 1/1 to {MAX_SHARDS}/{MAX_SHARDS}, "
            "such as 2/3"
        )
    return Shard(index=int(match[1]), count=int(match[2]))


def part(names: Sequence[str], shard: Shard) -> tuple[str, ...]:
    """Return the names that a shard covers; every shard computes the same parts by itself.

    Raises ``UserError`` where there are more shards than names.
    """
    if shard.count > len(names):
        models = "1 model" if len(names) == 1 else f"{len(names)} models"
        raise UserError(
            f"shard {shard.index}/{shard.count}: there {'is' if len(names) == 1 else 'are'} only "
            f"{models}; take the shards from `onnx-gate plan`"
        )
    return partition(names, shard.count)[shard.index - 1]
