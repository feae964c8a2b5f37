"""Which machine verifies which models, or which of their blocks: shards of about equal work."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from onnx_gate.errors import UserError
from onnx_gate.manifest import ModelSpec
from onnx_gate.report.model import MAX_SHARDS, DividedModel, Shard
from onnx_gate.text import counted, quote

BALANCE = 1.3
"""How much longer than the mean the longest shard of ``auto`` may be."""

_PER_SHARD = 4
_MOST_BY_ITSELF = 20
_SECONDS_PER_SHARD = 300.0
# A job's input is a variable of its environment, of which Linux takes 128 KiB at most, and all of
# them are one output of the plan's job, of which GitHub takes 1 MB.
_MOST_NAMES = 100_000


@dataclass(frozen=True)
class Unit:
    """What one machine verifies of a model: all of it, or a part of its blocks, ``index`` of ``count``."""

    name: str
    index: int = 1
    count: int = 1

    @property
    def portion(self) -> tuple[int, int] | None:
        """The part, ``None`` where it is the whole model."""
        return (self.index, self.count) if self.count > 1 else None


def units(
    names: Sequence[str],
    shards: int,
    weights: Mapping[str, float] | None = None,
    divisible: Collection[str] = (),
) -> tuple[Unit, ...]:
    """Return what there is to verify in so many shards, in the order of ``names``.

    A ``divisible`` model is in as many parts as it takes for every shard to have one, and for no part to
    weigh more than a shard's share of all; a weight that is unknown is the median of the others.
    """
    own = _every(names, weights or {})
    mean = math.fsum(own.values()) / shards
    parts = dict.fromkeys(names, 1)
    while True:
        open_ = [name for name in names if name in divisible and parts[name] < shards]
        heaviest = max(open_, key=lambda name: own[name] / parts[name], default=None)
        if heaviest is None or (
            sum(parts.values()) >= shards and own[heaviest] / parts[heaviest] <= mean
        ):
            return tuple(Unit(n, i, parts[n]) for n in names for i in range(1, parts[n] + 1))
        parts[heaviest] += 1


def partition(
    every: Sequence[Unit], count: int, weights: Mapping[str, float] | None = None
) -> tuple[tuple[Unit, ...], ...]:
    """Return ``every`` unit in ``count`` parts of about equal weight, each in the order of ``every``.

    The heaviest goes first, always to the lightest part (Graham's rule) that has nothing else of its
    model; equal ones go in their order. A model's weight, in seconds say, that is unknown or no finite
    number from 0 on is the median of the others. No part is empty where there are ``count`` or more.
    """
    known = _every([unit.name for unit in every], weights or {})
    own = [known[unit.name] / unit.count for unit in every]
    parts: list[list[int]] = [[] for _ in range(count)]
    # An empty part comes before any other that weighs nothing.
    loads = [(0.0, 0, index) for index in range(count)]
    for index in sorted(range(len(every)), key=lambda i: (-own[i], i)):
        passed = []
        while every[index].name in {every[i].name for i in parts[loads[0][2]]} and len(loads) > 1:
            passed.append(heapq.heappop(loads))
        load, size, lightest = loads[0]
        parts[lightest].append(index)
        heapq.heapreplace(loads, (load + own[index], size + 1, lightest))
        for each in passed:
            heapq.heappush(loads, each)
    return tuple(tuple(every[index] for index in sorted(part)) for part in parts)


def _every(names: Sequence[str], weights: Mapping[str, float]) -> dict[str, float]:
    """Return the weight of each name: one that is not known is the median of the others."""
    known = {n: weights[n] for n in names if 0 <= weights.get(n, math.nan) < math.inf}
    usual = median(known.values()) if known else 1.0
    return {name: known.get(name, usual) for name in names}


def matrix(
    names: Sequence[str],
    shards: int | Literal["auto"],
    seconds: Mapping[str, float] | None = None,
    divisible: Collection[str] = (),
) -> dict[str, list[str]]:
    """Return the ``strategy.matrix`` of GitHub: ``{"shard": ["1/3", "2/3", "3/3"]}``.

    There are never more than 256 shards, nor more than models but where some are ``divisible``. ``auto``
    is one for every four models, and at most 20.

    Where ``seconds`` knows one of the models, the shards are of about equal time, and each names
    its models (``"1/3/bert/resnet18"``), so that no job has to know the seconds. ``auto`` then is
    one for every five minutes of work, but fewer where the longest would take more than 1.3 times
    the mean: more machines would only wait for it. Where that many names are more than a job can
    be given, it is as if nothing were known.
    """
    most = MAX_SHARDS if divisible else max(1, min(len(names), MAX_SHARDS))
    known = {name: seconds[name] for name in names if name in seconds} if seconds else {}
    if known and sum(len(name.encode()) + 1 for name in names) <= _MOST_NAMES:
        parts = (
            _balanced(names, most, known, divisible)
            if shards == "auto"
            else _parts(names, min(shards, most), known, divisible)
        )
        named = (shard_of(index, len(parts), part) for index, part in enumerate(parts, 1))
        return {"shard": [shard_text(shard) for shard in named]}
    wanted = (
        min(math.ceil(len(names) / _PER_SHARD), _MOST_BY_ITSELF) if shards == "auto" else shards
    )
    count = max(1, min(wanted, most))
    return {"shard": [f"{index}/{count}" for index in range(1, count + 1)]}


def balance(parts: Sequence[Sequence[Unit]], weights: Mapping[str, float]) -> float:
    """Return how many times the mean the heaviest part is; what has no weight is the median."""
    own = _every([unit.name for part in parts for unit in part], weights)
    loads = [math.fsum(own[unit.name] / unit.count for unit in part) for part in parts]
    total = math.fsum(loads)
    return max(loads) * len(loads) / total if total > 0 else 1.0


def described(
    names: Sequence[str],
    shards: Sequence[str],
    seconds: Mapping[str, float],
    divisible: Collection[str] = (),
) -> str:
    """Return sentences on the ``shards`` that ``matrix`` gave for the same."""
    known = {name: seconds[name] for name in names if name in seconds}
    parts = [part(names, parse_shard(shard), divisible) for shard in shards]
    counts = {unit.name: unit.count for each in parts for unit in each if unit.count > 1}
    shared = "".join(f"; {count} share the blocks of {name}" for name, count in counts.items())
    many = f"{counted(len(names), 'model')} in {counted(len(shards), 'shard')}"
    if not known:
        return f"{many} of about as many models each: no durations are known{shared}"
    new = len(names) - len(known)
    unknown = f", {new} of unknown duration" if new else ""
    return f"{many}{unknown}; the longest takes {balance(parts, known):.2f} times the mean{shared}"


def _parts(
    names: Sequence[str],
    count: int,
    seconds: Mapping[str, float] | None,
    divisible: Collection[str],
) -> tuple[tuple[Unit, ...], ...]:
    return partition(units(names, count, seconds, divisible), count, seconds)


def _balanced(
    names: Sequence[str], most: int, seconds: Mapping[str, float], divisible: Collection[str]
) -> tuple[tuple[Unit, ...], ...]:
    total = math.fsum(_every(names, seconds).values())
    wanted = max(1, min(math.ceil(total / _SECONDS_PER_SHARD), most))
    for count in range(wanted, 1, -1):
        parts = _parts(names, count, seconds, divisible)
        if balance(parts, seconds) <= BALANCE:
            return parts
    return _parts(names, 1, seconds, divisible)


def shard_of(index: int, count: int, part: Sequence[Unit]) -> Shard:
    """Return a shard that names what it has."""
    divided = tuple(
        DividedModel(name=unit.name, index=unit.index, count=unit.count)
        for unit in part
        if unit.portion is not None
    )
    members = tuple(unit.name for unit in part)
    return Shard(index=index, count=count, members=members, divided=divided)


def shard_text(shard: Shard) -> str:
    """Return what ``parse_shard`` reads; no model's name is empty, or has a slash in it."""
    divided = {each.name: each for each in shard.divided}
    whole = [name for name in shard.members or () if name not in divided]
    tail = [str(part) for each in divided.values() for part in (each.name, each.index, each.count)]
    words = (str(shard.index), str(shard.count), *whole, *(("", *tail) if tail else ()))
    return "/".join(words)


def parse_shards(text: str) -> int | Literal["auto"]:
    """Read a number of shards, or ``auto``; raises ``UserError`` for anything else."""
    if text == "auto":
        return "auto"
    if re.fullmatch(r"[1-9][0-9]{0,8}", text):
        return int(text)
    raise UserError(f"--shards {text!r}: write a number from 1 on, or auto")


def parse_shard(text: str) -> Shard:
    """Read ``2/3``, ``2/3/bert/resnet18`` or ``2/3/bert//llama/1/4``; raises ``UserError`` otherwise.

    Behind the empty word are models of which it has a part of the blocks alone, here 1 of 4.
    """
    index, _, rest = text.partition("/")
    count, slash, names = rest.partition("/")
    whole, empty, tail = names.split("/") if slash else [], False, list[str]()
    if "" in whole:
        place = whole.index("")
        whole, tail, empty = whole[:place], whole[place + 1 :], True
    divided = [tail[place : place + 3] for place in range(0, len(tail), 3)]
    if (
        not _is_part(index, count)
        or (slash and not whole and not divided)
        or (empty and not divided)
        or not all(len(e) == 3 and e[0] and e[2] != "1" and _is_part(*e[1:]) for e in divided)
    ):
        raise UserError(
            f"shard {quote(text)}: write which one of how many, from 1/1 to "
            f"{MAX_SHARDS}/{MAX_SHARDS}, such as 2/3, or what `onnx-gate plan` has printed"
        )
    every = tuple(
        DividedModel(name=name, index=int(part), count=int(of)) for name, part, of in divided
    )
    members = (*whole, *(each.name for each in every)) if slash else None
    return Shard(index=int(index), count=int(count), members=members, divided=every)


def _is_part(index: str, count: str) -> bool:
    numbers = all(re.fullmatch(r"[1-9][0-9]{0,2}", each, re.ASCII) for each in (index, count))
    return numbers and int(index) <= int(count) <= MAX_SHARDS


def divisible(models: Iterable[ModelSpec]) -> frozenset[str]:
    """Return the names of the models whose blocks several machines may share.

    What is verified by blocks because it is too large for the memory of one is none: another has more.
    Neither is what takes steps, each of which begins with the end of the one before.
    """
    blocks = (model for model in models if model.verify == "blocks" and model.steps is None)
    return frozenset(model.name for model in blocks)


def part(names: Sequence[str], shard: Shard, divisible: Collection[str] = ()) -> tuple[Unit, ...]:
    """Return what a shard covers of these models; every shard computes the same parts by itself.

    Raises ``UserError`` where there are more shards than there is to verify, and where the shard has
    models that are none of them.
    """
    if shard.members is None:
        every = units(names, shard.count, divisible=divisible)
        if shard.count > len(every):
            models = "1 model" if len(names) == 1 else f"{len(names)} models"
            raise UserError(
                f"shard {shard.index}/{shard.count}: there {'is' if len(names) == 1 else 'are'} only "
                f"{models}; take the shards from `onnx-gate plan`"
            )
        return partition(every, shard.count)[shard.index - 1]
    portions = {each.name: each for each in shard.divided}
    unknown = [name for name in shard.members if name not in names]
    whole = [name for name in portions if name in names and name not in divisible]
    if unknown or whole:
        first = quote((unknown or whole)[0])
        why = (
            f"{first} is none of the {len(names)} that are selected"
            if unknown
            else f"{first} has no verify: blocks, and cannot be divided"
        )
        raise UserError(
            f"shard {shard.index}/{shard.count}: made by a plan for another manifest or other "
            f"--model, as {why}; "
            "take the shards from `onnx-gate plan` at the same commit, with the same --model"
        )
    own = set(shard.members)
    return tuple(
        Unit(name, portions[name].index, portions[name].count) if name in portions else Unit(name)
        for name in names
        if name in own
    )
