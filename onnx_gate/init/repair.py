"""From what a module says as it refuses arguments to arguments that it may take; pure.

A complaint names sizes: one that a guess has, or that a few make together, and one that is wanted. A
size of a guess that a complaint names is put right by the number beside it, whatever the words; words are
read for dtypes alone, for indices, and for how many axes there are to be.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from onnx_gate.init.facts import Attempt, Guess
from onnx_gate.manifest.dimensions import size_of

UNKNOWN_ROWS = 10**6
"""The range of an index of which nothing is known: larger than a table of a model that is tried."""

_SMALL = 2
_MOST_ELEMENTS = 2**20
_RANK = re.compile(r"unpack \(expected (\d)|(\d)[dD]\b")
_DTYPES: tuple[tuple[str, str], ...] = (
    (r"\bint64\b|\bLong\b|\blong\b", "int64"),
    (r"\bbool\b|\bBool\b", "bool"),
    (r"\bBFloat16\b", "bfloat16"),
    (r"\bHalf\b", "float16"),
)
_Place = tuple[str, int]
"""An input, and one of its axes."""


def repaired(attempt: Attempt, complaint: str) -> Iterator[tuple[int, Attempt]]:
    """Yield what to try instead, and how bold it is: 0 changes sizes of layers, 1 sides, 2 kinds."""
    for bold, other in _repaired(attempt, complaint):
        shapes = [[size_of(dim, other.sizes) for dim in g.shape] for g in other.guesses.values()]
        if all(math.prod(shape) <= _MOST_ELEMENTS for shape in shapes):
            yield bold, other


def _repaired(attempt: Attempt, complaint: str) -> Iterator[tuple[int, Attempt]]:
    numbers = _numbers(complaint)
    pairs = [(a, b) for a, b in itertools.pairwise(numbers) if a != b and min(a, b) > 1]
    pairs += [(b, a) for a, b in pairs]
    if "out of bounds" in complaint and numbers:
        yield from ((0, each) for each in _bounded(attempt, numbers[-1]))
    for a, b in pairs:
        yield from ((0, each) for each in _layers(attempt, a, b))
    for a, b in pairs:
        yield from ((1, each) for each in _sides(attempt, a, b))
    for match in _RANK.finditer(complaint):
        yield from ((2, each) for each in _ranked(attempt, int(match[1] or match[2])))
    for pattern, dtype in _DTYPES:
        if re.search(pattern, complaint):
            yield from ((2, each) for each in _of_dtype(attempt, dtype))


def _numbers(complaint: str) -> list[int]:
    """The sizes in the order of the text; of a list of sizes the last, which layers are about."""
    text = re.sub(r"\[[^\]]*?(\d+)\]", r" \1 ", complaint)
    return [int(each) for each in re.findall(r"(?<![\w.])\d+|(?<=\dx)\d+", text)]


def _bounded(attempt: Attempt, rows: int) -> Iterator[Attempt]:
    """An index has to stay below a number of rows, which may be a size of another input."""
    name = next((n for n, size in attempt.sizes.items() if size == rows and n != "batch"), None)
    high = rows - 1 if name is None else f"{name} - 1"
    for key, guess in attempt.guesses.items():
        if "int" in guess.dtype and guess.range and guess.range != (0, 1):
            top = guess.range[1]
            if (size_of(top, attempt.sizes) if isinstance(top, str) else top) >= rows:
                why = f"{guess.why}, of which forward reads {rows if name is None else name}"
                yield _with(attempt, {key: replace(guess, range=(0, high), why=why.strip(", "))})


def _layers(attempt: Attempt, a: int, b: int) -> Iterator[Attempt]:
    """Sizes that are numbers: all that are ``a``, each of them, or those that make ``a`` together."""
    fixed = {
        (key, axis): dim
        for key, guess in attempt.guesses.items()
        for axis, dim in enumerate(guess.shape)
        if isinstance(dim, int)
    }
    same = [place for place, dim in fixed.items() if dim == a]
    if same:
        yield _resized(attempt, dict.fromkeys(same, b))
    if len(same) > 1:
        yield from (_resized(attempt, {place: b}) for place in same)
    for size in dict.fromkeys(fixed.values()):
        parts = [place for place, dim in fixed.items() if dim == size]
        if len(parts) > 1 and size * len(parts) == a and b % len(parts) == 0:
            yield _resized(attempt, dict.fromkeys(parts, b // len(parts)))


def _sides(attempt: Attempt, a: int, b: int) -> Iterator[Attempt]:
    """Sizes that have names: one that is ``a``, or as much larger as ``b`` is than ``a``."""
    free = {name: size for name, size in attempt.sizes.items() if name != "batch"}
    for name, size in free.items():
        if size == a:
            yield replace(attempt, sizes={**attempt.sizes, name: b})
    for name, size in free.items():
        if size != a and size * b % a == 0 and size * b // a >= _SMALL:
            yield replace(attempt, sizes={**attempt.sizes, name: size * b // a})
    area = math.prod(free.get(name, 0) for name in ("height", "width"))
    side = math.isqrt(area * b // a)
    if area and side >= _SMALL and side * side * a == area * b:
        yield replace(attempt, sizes={**attempt.sizes, "height": side, "width": side})


def _ranked(attempt: Attempt, rank: int) -> Iterator[Attempt]:
    """An input has another number of axes: the last are kept, and lengths are put before or left out."""
    for key, guess in attempt.guesses.items():
        more = rank - len(guess.shape)
        if not more or not 1 <= rank <= 5 or guess.shape[:1] != ("batch",):
            continue
        own = [f"{key.rpartition('.')[2]}_{number}" for number in range(1, more + 1)]
        lengths = ["seq", *own[1:]] if "seq" not in guess.shape else own
        rest = guess.shape[1:]
        shape = ("batch", *lengths[:more], *rest) if more > 0 else ("batch", *rest[-more:])
        sizes = {**{n: 5 + 2 * i for i, n in enumerate(lengths[:more])}, **attempt.sizes}
        used = {dim for g in attempt.guesses.values() for dim in g.shape} | set(shape)
        known = {name: size for name, size in sizes.items() if name in used}
        yield replace(_with(attempt, {key: replace(guess, shape=shape)}), sizes=known)


def _of_dtype(attempt: Attempt, dtype: str) -> Iterator[Attempt]:
    """Floating inputs are of another dtype: all of them, or one."""
    floats = {k: g for k, g in attempt.guesses.items() if g.dtype.startswith(("float", "bfloat"))}
    limits = (0, UNKNOWN_ROWS) if dtype == "int64" else None
    changed = {
        key: replace(guess, dtype=dtype, range=limits, why=f"{guess.why}, as {dtype}")
        for key, guess in floats.items()
        if guess.dtype != dtype
    }
    if len(changed) > 1 and limits is None:
        yield _with(attempt, changed)
    yield from (_with(attempt, {key: guess}) for key, guess in changed.items())


def _resized(attempt: Attempt, sizes: Mapping[_Place, int]) -> Attempt:
    guesses = dict(attempt.guesses)
    for (key, axis), size in sizes.items():
        shape = guesses[key].shape
        guesses[key] = replace(guesses[key], shape=(*shape[:axis], size, *shape[axis + 1 :]))
    return replace(attempt, guesses=guesses)


def _with(attempt: Attempt, guesses: Mapping[str, Guess]) -> Attempt:
    return replace(attempt, guesses={**attempt.guesses, **guesses})
