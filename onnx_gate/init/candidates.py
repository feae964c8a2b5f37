"""From what is seen of a module to arguments worth trying, the likeliest first; pure."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from onnx_gate.init.facts import Attempt, Facts, Guess, Layer, Parameter
from onnx_gate.init.usual_names import SURE, by_name, is_graph, shown

MAX_ATTEMPTS = 300
BATCH, POSITIONS = 2, 7
"""Sizes that are tried first: different from each other, and from what layers have."""

_SIDES = (224, 64, 32, 28, 84, 128, 256, 96, 299, 384, 512, 48, 16)
_LENGTHS = (400, 64, 4000, 16000, 3000)
_SIZES: Mapping[str, tuple[int, ...]] = {
    "batch": (BATCH, 1),
    "length": _LENGTHS,
    "samples": (4000, 16000, 400),
    "frames": (16, 64, 100),
    "nodes": (9,),
    "edges": (11,),
    "context": (5,),
    "past": (11,),
    "target": (5,),
}
_MAX_PART = 64
_MAX_COMBINED = 5000
_MAX_SIZES = 64


def attempts(facts: Facts, given: Mapping[str, Guess] | None = None) -> Iterator[Attempt]:
    """Yield what to call ``forward`` with, at most ``MAX_ATTEMPTS``; what is ``given`` as it is."""
    given = given or {}
    known = {name.partition(".")[0] for name in given}
    count = 0
    for names in _selections(facts, known):
        for chosen, sizes in _ranked(facts, names, given):
            yield Attempt(chosen, sizes)
            count += 1
            if count >= MAX_ATTEMPTS:
                return


def _ranked(
    facts: Facts, names: Sequence[Parameter], given: Mapping[str, Guess]
) -> Iterator[tuple[Mapping[str, Guess], Mapping[str, int]]]:
    """Yield what to try of some parameters: the likeliest guesses and sizes of all together first."""
    lists = [tuple(_guesses(facts, parameter)) for parameter in names]
    # The parts of one argument of which the same is known are taken to be alike.
    alike = [
        (each.name.partition(".")[0], guesses) for each, guesses in zip(names, lists, strict=True)
    ]
    kinds = list({repr(each): each for each in alike}.values())
    places = itertools.product(*(range(len(guesses)) for _, guesses in kinds))
    by_rank: dict[int, list[tuple[int, ...]]] = {}
    for ranks in itertools.islice(places, _MAX_COMBINED):
        chosen = tuple(ranks[kinds.index(each)] for each in alike)
        by_rank.setdefault(sum(ranks), []).append(chosen)
    begun: list[Iterator[tuple[Mapping[str, Guess], Mapping[str, int]]]] = []
    for rank in range(max(by_rank, default=-1) + _MAX_SIZES):
        begun += [_sized(facts, names, lists, ranks, given) for ranks in by_rank.get(rank, ())]
        # Those begun earlier are at a later size by now.
        tried = [(each, next(each, None)) for each in begun]
        begun = [each for each, what in tried if what is not None]
        yield from (what for _, what in tried if what is not None)


def _sized(
    facts: Facts,
    names: Sequence[Parameter],
    lists: Sequence[Sequence[Guess]],
    ranks: Sequence[int],
    given: Mapping[str, Guess],
) -> Iterator[tuple[Mapping[str, Guess], Mapping[str, int]]]:
    guesses = (each[rank] for each, rank in zip(lists, ranks, strict=True))
    chosen = {parameter.name: guess for parameter, guess in zip(names, guesses, strict=True)}
    chosen = _bounded(_in_order(facts, {**chosen, **given}))
    yield from ((chosen, sizes) for sizes in _sizes(facts, chosen))


def _bounded(chosen: Mapping[str, Guess]) -> dict[str, Guess]:
    """Let a range end at the axis that runs where no shape has the size that it is guessed to name."""
    axes = {dim: None for guess in chosen.values() for dim in guess.shape if isinstance(dim, str)}
    last = next((dim for dim in reversed(axes) if dim != "batch"), None)
    found = dict(chosen)
    for name, guess in chosen.items():
        low, high = guess.range or (None, None)
        if low is not None and isinstance(high, str) and high.isidentifier() and high not in axes:
            found[name] = replace(guess, range=(low, last) if last is not None else (low, 1))
    return found


def _in_order(facts: Facts, chosen: Mapping[str, Guess]) -> dict[str, Guess]:
    place = {each.name: number for number, each in enumerate(facts.parameters)}
    last = len(place)
    return dict(sorted(chosen.items(), key=lambda each: place.get(each[0].partition(".")[0], last)))


def widened(facts: Facts, name: str, guess: Guess) -> Guess:
    """Return a recorded guess with the range of the embedding that it goes into."""
    if guess.range is None or "int" not in guess.dtype:
        return guess
    for known in (*by_name(facts, name), *_integers(facts, name, facts.uses.get(name, ()))):
        if known.range is None or known.range == (0, 1):
            continue
        if float(known.range[1]) > float(guess.range[1]):
            return replace(guess, range=known.range, why=f"{guess.why}; {known.why} takes more")
    return guess


def _selections(facts: Facts, known: Collection[str]) -> Iterator[tuple[Parameter, ...]]:
    """Yield the parameters to guess: those that must be, and those that a model of its kind needs.

    Not those that are ``known``; where they are all that must be, nothing is guessed beside them.
    """
    required = [each for each in facts.parameters if each.required and each.name not in known]
    optional = [each for each in facts.parameters if not each.required and each.name not in known]
    if known and not required:
        yield ()
        return
    main = [each for each in optional if each.name == facts.main_input]
    if not required and not main:
        main = [each for each in optional if by_name(facts, each.name)][:1] or optional[:1]
    given = {each.name for each in (*required, *main)}
    # A model that takes tokens is called with their mask by everybody, and computes otherwise.
    masks = [each for each in optional if each.name == "attention_mask" and "input_ids" in given]
    others = [
        each
        for each in optional
        if each.name in ("decoder_input_ids", "pixel_values", "input_ids") and each not in main
    ]
    sets: list[list[Parameter]] = []
    if facts.config.get("is_encoder_decoder"):
        sets.append([*required, *main, *masks, *(o for o in others if o.name.startswith("dec"))])
    sets += [[*required, *main, *masks], [*required, *main, *masks, *others]]
    sets += [[*required, *main], [*required, *main, *others], [*required, *optional[:1]]]
    seen: set[frozenset[str]] = set()
    for chosen in sets:
        names = frozenset(each.name for each in chosen)
        if names and names not in seen:
            seen.add(names)
            yield tuple(each for each in facts.parameters if each.name in names)


def _guesses(facts: Facts, parameter: Parameter) -> Iterator[Guess]:
    """Yield what one parameter may take, each once, the likeliest first."""
    seen: set[tuple[str, tuple[int | str, ...]]] = set()
    for guess in _all_guesses(facts, parameter):
        key = (guess.dtype, guess.shape)
        if key not in seen and _agrees(guess.dtype, parameter.annotation):
            seen.add(key)
            yield guess


def _all_guesses(facts: Facts, parameter: Parameter) -> Iterator[Guess]:
    yield from _of_annotation(facts, parameter)
    used = facts.uses.get(parameter.name, ())
    named = list(by_name(facts, parameter.name))
    if facts.config or not used or is_graph(facts) or re.fullmatch(SURE, parameter.name):
        yield from named
    for layer in used:
        yield from _of_layer(facts, layer, parameter.name, f"goes into {shown(layer)}")
    yield from named
    for layer in (*_namesakes(facts, parameter.name), *facts.layers[:1], *facts.layers[1:4]):
        yield from _of_layer(facts, layer, parameter.name, f"the model has {shown(layer)}")
    why = "no layer says what it takes"
    yield Guess("float32", ("batch", 16), why=why)
    yield Guess("float32", ("batch", "seq", 16), why=why)
    image = Guess("float32", ("batch", 3, 32, 32), why=why)
    # A part of an argument is a layer's cache sooner than an image: heads, what was before, and widths.
    cache = Guess("float32", ("batch", 3, "past", 16), why=why)
    yield from (cache, image) if "." in parameter.name else (image, cache)


def _namesakes(facts: Facts, name: str) -> Iterator[Layer]:
    """Layers that are called like an input: ``user_ids`` and ``user_embedding``."""
    words = {word for word in re.split(r"[_\W\d]+", name.lower()) if len(word) > 2}
    for layer in facts.layers:
        if words & set(re.split(r"[_\W\d]+", layer.path.lower())):
            yield layer


_RECURRENT = ("LSTM", "GRU", "RNN", "MultiheadAttention")


def _of_layer(facts: Facts, layer: Layer, name: str, why: str) -> Iterator[Guess]:
    """Yield what a layer takes, if an input goes straight into it."""
    size, kind = layer.size, layer.kind
    if kind in ("Embedding", "EmbeddingBag"):
        bounds = (0, size - 1)
        one = Guess("int64", ("batch",), bounds, why)
        many = Guess("int64", ("batch", "seq"), bounds, why)
        if is_graph(facts):
            yield Guess("int64", ("nodes",), bounds, why)
        single = re.search(r"(^|_)(user|item|label|class|category|id)(_?id)?$", name)
        yield from (one, many) if single else (many, one)
    elif kind in ("Conv2d", "BatchNorm2d"):
        yield Guess("float32", ("batch", size, "height", "width"), why=why)
        # As a camera has it; what turns it round is in the module.
        yield Guess("uint8", ("batch", "height", "width", size), (0, 255), why=why)
    elif kind == "Conv1d":
        yield Guess("float32", ("batch", size, "length"), why=why)
    elif kind == "Conv3d":
        yield Guess("float32", ("batch", size, "frames", "height", "width"), why=why)
    elif kind in _RECURRENT or kind.startswith("Transformer"):
        first = ("batch", "seq") if layer.batch_first else ("seq", "batch")
        yield Guess("float32", (*first, size), why=why)
        # Beside others that it is concatenated with.
        for part in range(1, min(size, _MAX_PART)) if layer.state and not layer.direct else ():
            yield Guess("float32", (*first, part), why=f"a part of what {why}")
    elif kind in ("Linear", "LayerNorm", "RMSNorm", "BatchNorm1d") or kind.endswith("Cell"):
        yield from _of_features(facts, layer, why)


def _of_features(facts: Facts, layer: Layer, why: str) -> Iterator[Guess]:
    flat = Guess("float32", ("batch", layer.size), why=why)
    along = Guess("float32", ("batch", "seq", layer.size), why=why)
    if not layer.direct:
        for channels in (1, 3):
            side = math.isqrt(layer.size // channels)
            if channels * side * side == layer.size and side > 3:
                yield Guess("float32", ("batch", channels, side, side), why=why)
    yield from (along, flat) if facts.has_sequence else (flat, along)
    if not layer.direct:  # beside others that it is concatenated with
        for size in range(1, min(layer.size, _MAX_PART)):
            yield Guess("float32", ("batch", size), why=f"a part of what {why}")
    yield Guess("float32", ("nodes", layer.size), why=why)


_LIKELIEST = ("float32", "int64", "bool")


def _of_annotation(facts: Facts, parameter: Parameter) -> Iterator[Guess]:
    """Read the shape of jaxtyping's ``Float[Tensor, "batch 3 h w"]``."""
    declared = parameter.declared
    if declared is None or not declared.dtypes:
        return
    dims = [re.sub(r"^[*#?_]+|.*=", "", dim) for dim in declared.dims.split()]
    if not all(dim.isidentifier() or dim.isdigit() for dim in dims):
        return
    dtype = next((each for each in _LIKELIEST if each in declared.dtypes), declared.dtypes[0])
    layers = (
        *facts.uses.get(parameter.name, ()),
        *_namesakes(facts, parameter.name),
        *facts.layers,
    )
    bounds = next((g.range for g in _integers(facts, parameter.name, layers)), None)
    shape = tuple(int(dim) if dim.isdigit() else dim for dim in dims)
    why = f"annotated {parameter.annotation}"
    yield Guess(dtype, shape, bounds if "int" in dtype else None, why)


def _integers(facts: Facts, name: str, layers: Iterable[Layer]) -> Iterator[Guess]:
    for layer in layers:
        if layer.kind.startswith("Embedding"):
            yield from _of_layer(facts, layer, name, shown(layer))


def _agrees(dtype: str, annotation: str) -> bool:
    """Whether a dtype is one that an annotation such as ``torch.LongTensor`` allows."""
    if re.search(r"\b(Long|Int|Short)Tensor\b", annotation) and "Float" not in annotation:
        return "int" in dtype
    if re.search(r"\bBoolTensor\b", annotation):
        return dtype == "bool"
    return not (re.search(r"\bFloatTensor\b", annotation) and "int" in dtype)


def _sizes(facts: Facts, chosen: Mapping[str, Guess]) -> Iterator[dict[str, int]]:
    """Yield the sizes to try for the names in the shapes: those of an image go together."""
    names = list(
        dict.fromkeys(d for guess in chosen.values() for d in guess.shape if isinstance(d, str))
    )
    sides = [name for name in names if name in ("height", "width", "h", "w")]
    options = [_options(name) for name in names if name not in sides]
    rest = [name for name in names if name not in sides]
    for combination in itertools.product(*options):
        sizes = dict(zip(rest, combination, strict=True))
        if not sides:
            yield sizes
        for height, width in _image_sides(facts) if sides else ():
            tall = {each: height for each in sides if each.startswith("h")}
            yield {**sizes, **tall, **{each: width for each in sides if each not in tall}}


def _options(name: str) -> Sequence[int]:
    if name in _SIZES:
        return _SIZES[name]
    return (POSITIONS,) if re.match(r"seq|t|len|tok|past", name) else (5,)


def _image_sides(facts: Facts) -> Iterator[tuple[int, int]]:
    if facts.image:
        yield facts.image[1:]
    known = facts.config.get("image_size")
    if isinstance(known, int):
        yield known, known
    elif isinstance(known, list) and len(known) == 2:
        yield int(known[0]), int(known[1])
    strided = any(layer.kind == "Conv2d" and layer.stride > 1 for layer in facts.layers[:1])
    for side in _SIDES if strided else (32, *_SIDES):
        yield side, side
