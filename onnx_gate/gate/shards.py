"""Which machine verifies which models: shards of about equal work."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Literal

from onnx_gate.errors import UserError
from onnx_gate.report.model import MAX_SHARDS, Shard
from onnx_gate.text import counted, quote

BALANCE = 1.3
"""How much longer than the mean the longest shard of ``auto`` may be."""

_PER_SHARD = 4
_MOST_BY_ITSELF = 20
_SECONDS_PER_SHARD = 300.0
# A job's input is a variable of its environment, of which Linux takes 128 KiB at most, and all of
# them are one output of the plan's job, of which GitHub takes 1 MB.
_MOST_NAMES = 100_000


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
    # An empty part comes before any other that weighs nothing.
    loads = [(0.0, 0, index) for index in range(count)]
    for index in sorted(range(len(names)), key=lambda i: (-known.get(names[i], usual), i)):
        load, size, lightest = loads[0]
        parts[lightest].append(index)
        heapq.heapreplace(loads, (load + known.get(names[index], usual), size + 1, lightest))
    return tuple(tuple(names[index] for index in sorted(part)) for part in parts)


def matrix(
    names: Sequence[str],
    shards: int | Literal["auto"],
    seconds: Mapping[str, float] | None = None,
) -> dict[str, list[str]]:
    """Return the ``strategy.matrix`` of GitHub: ``{"shard": ["1/3", "2/3", "3/3"]}``.

    There are never more shards than models, nor more than 256. ``auto`` is one for every four
    models, and at most 20.

    Where ``seconds`` knows one of the models, the shards are of about equal time, and each names
    its models (``"1/3/bert/resnet18"``), so that no job has to know the seconds. ``auto`` then is
    one for every five minutes of work, but fewer where the longest would take more than 1.3 times
    the mean: more machines would only wait for it. Where that many names are more than a job can
    be given, it is as if nothing were known.
    """
    most = max(1, min(len(names), MAX_SHARDS))
    known = {name: seconds[name] for name in names if name in seconds} if seconds else {}
    if known and sum(len(name.encode()) + 1 for name in names) <= _MOST_NAMES:
        parts = (
            _balanced(names, most, known)
            if shards == "auto"
            else partition(names, min(shards, most), known)
        )
        named = (Shard(index=i, count=len(parts), members=part) for i, part in enumerate(parts, 1))
        return {"shard": [shard_text(shard) for shard in named]}
    wanted = (
        min(math.ceil(len(names) / _PER_SHARD), _MOST_BY_ITSELF) if shards == "auto" else shards
    )
    count = max(1, min(wanted, most))
    return {"shard": [f"{index}/{count}" for index in range(1, count + 1)]}


def balance(parts: Sequence[Sequence[str]], weights: Mapping[str, float]) -> float:
    """Return how many times the mean the heaviest part is; what has no weight is the median."""
    usual = median(weights.values()) if weights else 1.0
    loads = [math.fsum(weights.get(name, usual) for name in part) for part in parts]
    total = math.fsum(loads)
    return max(loads) * len(loads) / total if total > 0 else 1.0


def described(names: Sequence[str], shards: Sequence[str], seconds: Mapping[str, float]) -> str:
    """Return a sentence on the ``shards`` that ``matrix`` gave for ``names`` and ``seconds``."""
    known = {name: seconds[name] for name in names if name in seconds}
    many = f"{counted(len(names), 'model')} in {counted(len(shards), 'shard')}"
    if not known:
        return f"{many} of about as many models each: no durations are known"
    parts = [part(names, parse_shard(shard)) for shard in shards]
    new = len(names) - len(known)
    unknown = f", {new} of unknown duration" if new else ""
    return f"{many}{unknown}; the longest takes {balance(parts, known):.2f} times the mean"


def _balanced(
    names: Sequence[str], most: int, seconds: Mapping[str, float]
) -> tuple[tuple[str, ...], ...]:
    usual = median(seconds.values())
    total = math.fsum(seconds.get(name, usual) for name in names)
    wanted = max(1, min(math.ceil(total / _SECONDS_PER_SHARD), most))
    for count in range(wanted, 1, -1):
        parts = partition(names, count, seconds)
        if balance(parts, seconds) <= BALANCE:
            return parts
    return partition(names, 1, seconds)


def shard_text(shard: Shard) -> str:
    """Return what ``parse_shard`` reads; no model's name has a slash in it."""
    return "/".join((str(shard.index), str(shard.count), *(shard.members or ())))


def parse_shards(text: str) -> int | Literal["auto"]:
    """Read a number of shards, or ``auto``; raises ``UserError`` for anything else."""
    if text == "auto":
        return "auto"
    if re.fullmatch(r"[1-9][0-9]{0,8}", text):
        return int(text)
    raise UserError(f"--shards {text!r}: write a number from 1 on, or auto")


def parse_shard(text: str) -> Shard:
    """Read ``2/3`` or ``2/3/bert/resnet18``; raises ``UserError`` for anything else."""
    index, _, rest = text.partition("/")
    count, slash, names = rest.partition("/")
    members = tuple(names.split("/")) if slash else None
    if (
        not all(re.fullmatch(r"[1-9][0-9]{0,2}", each, re.ASCII) for each in (index, count))
        or not int(index) <= int(count) <= MAX_SHARDS
        or (members is not None and not all(members))
    ):
        raise UserError(
            f"shard {quote(text)}: write which one of how many, from 1/1 to "
            f"{MAX_SHARDS}/{MAX_SHARDS}, such as 2/3, or what `onnx-gate plan` has printed"
        )
    return Shard(index=int(index), count=int(count), members=members)


def part(names: Sequence[str], shard: Shard) -> tuple[str, ...]:
    """Return the names that a shard covers; every shard computes the same parts by itself.

    Raises ``UserError`` where there are more shards than names, and where the shard has models
    that are none of them.
    """
    if shard.count > len(names):
        models = "1 model" if len(names) == 1 else f"{len(names)} models"
        raise UserError(
            f"shard {shard.index}/{shard.count}: there {'is' if len(names) == 1 else 'are'} only "
            f"{models}; take the shards from `onnx-gate plan`"
        )
    if shard.members is None:
        return partition(names, shard.count)[shard.index - 1]
    unknown = [name for name in shard.members if name not in names]
    if unknown:
        raise UserError(
            f"shard {shard.index}/{shard.count}: made by a plan for another manifest or other "
            f"--model, as {quote(unknown[0])} is none of the {len(names)} that are selected; "
            "take the shards from `onnx-gate plan` at the same commit, with the same --model"
        )
    own = set(shard.members)
    return tuple(name for name in names if name in own)
