"""From what is seen of a module to arguments worth trying, the likeliest first; pure."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from onnx_gate.init.facts import Attempt, Facts, Guess, Layer, Parameter

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
_Names = Callable[[Facts], Iterable[Guess]]


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
    chosen = _in_order(facts, {**chosen, **given})
    yield from ((chosen, sizes) for sizes in _sizes(facts, chosen))


def _in_order(facts: Facts, chosen: Mapping[str, Guess]) -> dict[str, Guess]:
    place = {each.name: number for number, each in enumerate(facts.parameters)}
    last = len(place)
    return dict(sorted(chosen.items(), key=lambda each: place.get(each[0].partition(".")[0], last)))


def widened(facts: Facts, name: str, guess: Guess) -> Guess:
    """Return a recorded guess with the range of the embedding that it goes into."""
    if guess.range is None or "int" not in guess.dtype:
        return guess
    for known in (*_by_name(facts, name), *_integers(facts, name, facts.uses.get(name, ()))):
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
        main = [each for each in optional if _by_name(facts, each.name)][:1] or optional[:1]
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
    named = list(_by_name(facts, parameter.name))
    if facts.config or not used or _is_graph(facts) or re.fullmatch(_SURE, parameter.name):
        yield from named
    for layer in used:
        yield from _of_layer(facts, layer, parameter.name, f"goes into {_shown(layer)}")
    yield from named
    for layer in (*_namesakes(facts, parameter.name), *facts.layers[:1], *facts.layers[1:4]):
        yield from _of_layer(facts, layer, parameter.name, f"the model has {_shown(layer)}")
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


def _shown(layer: Layer) -> str:
    return f"{layer.path or 'the'} {layer.kind}({layer.size})".replace("the ", "a ")


_RECURRENT = ("LSTM", "GRU", "RNN", "MultiheadAttention")


def _of_layer(facts: Facts, layer: Layer, name: str, why: str) -> Iterator[Guess]:
    """Yield what a layer takes, if an input goes straight into it."""
    size, kind = layer.size, layer.kind
    if kind in ("Embedding", "EmbeddingBag"):
        bounds = (0, size - 1)
        one = Guess("int64", ("batch",), bounds, why)
        many = Guess("int64", ("batch", "seq"), bounds, why)
        if _is_graph(facts):
            yield Guess("int64", ("nodes",), bounds, why)
        yield from (one, many) if _is_single(name) else (many, one)
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


def _is_single(name: str) -> bool:
    return bool(re.search(r"(^|_)(user|item|label|class|category|id)(_?id)?$", name))


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
            yield from _of_layer(facts, layer, name, _shown(layer))


def _agrees(dtype: str, annotation: str) -> bool:
    """Whether a dtype is one that an annotation such as ``torch.LongTensor`` allows."""
    if re.search(r"\b(Long|Int|Short)Tensor\b", annotation) and "Float" not in annotation:
        return "int" in dtype
    if re.search(r"\bBoolTensor\b", annotation):
        return dtype == "bool"
    return not (re.search(r"\bFloatTensor\b", annotation) and "int" in dtype)


def _by_name(facts: Facts, name: str) -> list[Guess]:
    """What an input of this name is in the libraries that everybody copies names from."""
    last = name.rpartition(".")[2]
    return [
        guess for pattern, known in _NAMES if re.fullmatch(pattern, last) for guess in known(facts)
    ]


def _tokens(facts: Facts, dim: str = "seq") -> Iterator[Guess]:
    vocabulary = facts.config.get("vocab_size")
    if isinstance(vocabulary, int):
        yield Guess("int64", ("batch", dim), (0, vocabulary - 1), f"config.vocab_size {vocabulary}")


def _mask(facts: Facts) -> Iterator[Guess]:
    why = "what a mask is called"
    yield Guess("int64", ("batch", "seq"), (0, 1), why)
    yield Guess("bool", ("batch", "seq"), None, why)
    yield Guess("float32", ("batch", "seq"), (0, 1), why)
    yield Guess("float32", ("seq", "seq"), None, why)
    yield Guess("bool", ("seq", "seq"), None, why)
    yield Guess("int64", ("batch", "height", "width"), (0, 1), why)
    yield Guess("bool", ("batch", "height", "width"), None, why)


def _states(facts: Facts) -> Iterator[Guess]:
    for layer in facts.layers:
        if layer.state is not None:
            count, width = layer.state
            yield Guess("float32", (count, "batch", width), why=f"a state of {_shown(layer)}")


def _adjacency(_: Facts) -> Iterator[Guess]:
    why = "what a matrix of neighbours is called"
    yield Guess("float32", ("batch", "seq", "seq"), (0, 1), why)
    yield Guess("float32", ("seq", "seq"), (0, 1), why)


def _columns(facts: Facts) -> Iterator[Guess]:
    sizes = [layer.size for layer in facts.layers if layer.kind == "Embedding"]
    if sizes:
        bounds = (0, min(sizes) - 1)
        yield Guess("int64", ("batch", len(sizes)), bounds, "a column for each of the tables")


def _numbers(_: Facts) -> Iterator[Guess]:
    yield Guess("float32", ("batch", 16), why="what columns of numbers are called")


def _lengths(_: Facts) -> Iterator[Guess]:
    yield Guess("int64", ("batch",), (1, "seq"), "what lengths are called")


def _image(facts: Facts) -> Iterator[Guess]:
    channels = facts.image[0] if facts.image else facts.config.get("num_channels")
    first = next((layer.size for layer in facts.layers if layer.kind == "Conv2d"), None)
    for each in dict.fromkeys((channels, first)):
        if isinstance(each, int):
            yield Guess(
                "float32", ("batch", each, "height", "width"), why="what an image is called"
            )


def _wave(facts: Facts) -> Iterator[Guess]:
    yield Guess("float32", ("batch", "samples"), why="what sound is called")
    yield Guess("float32", ("batch", 1, "samples"), why="what sound is called")


def _spectrum(facts: Facts) -> Iterator[Guess]:
    bins, positions = facts.config.get("num_mel_bins"), facts.config.get("max_source_positions")
    if isinstance(bins, int) and isinstance(positions, int):
        yield Guess("float32", ("batch", bins, 2 * positions), why="config.num_mel_bins")
        yield Guess("float32", ("batch", "frames", bins), why="config.num_mel_bins")
    elif isinstance(bins, int):
        yield Guess("float32", ("batch", "frames", bins), why="config.num_mel_bins")


def _latent(facts: Facts) -> Iterator[Guess]:
    channels, side = facts.config.get("in_channels"), facts.config.get("sample_size")
    if isinstance(channels, int):
        sides = (side, side) if isinstance(side, int) else ("height", "width")
        yield Guess("float32", ("batch", channels, *sides), why="config.in_channels, sample_size")


def _time(facts: Facts) -> Iterator[Guess]:
    why = "what the step of a diffusion is called"
    yield Guess("int64", ("batch",), (0, 999), why)
    yield Guess("float32", ("batch",), (0, 1), why)
    yield Guess("float32", ("batch", 1), (0, 1), why)


def _condition(facts: Facts) -> Iterator[Guess]:
    for key in ("cross_attention_dim", "joint_attention_dim", "caption_channels", "hidden_size"):
        width = facts.config.get(key)
        if isinstance(width, int):
            yield Guess("float32", ("batch", "context", width), why=f"config.{key}")


def _edge_index(facts: Facts) -> Iterator[Guess]:
    yield Guess("int64", (2, "edges"), (0, "nodes - 1"), "what edges of a graph are called")


def _is_graph(facts: Facts) -> bool:
    return any(each.name == "edge_index" for each in facts.parameters)


def _edge_values(facts: Facts) -> Iterator[Guess]:
    if _is_graph(facts):
        yield Guess("float32", ("edges",), (0, 1), "a weight of each edge")
        yield Guess("float32", ("edges", 1), why="a value of each edge")


def _graph_of_node(facts: Facts) -> Iterator[Guess]:
    if _is_graph(facts):
        yield Guess("int64", ("nodes",), (0, 3), "the graph of each node")


def _nodes(facts: Facts) -> Iterator[Guess]:
    if _is_graph(facts):
        for layer in facts.layers:
            if layer.kind == "Linear":
                why = f"nodes of a graph, and the model has {_shown(layer)}"
                yield Guess("float32", ("nodes", layer.size), why=why)


# Names that say more than the layers that an input reaches in the end.
_SURE = r"(.*_)?(mask|padding|lengths?|lens)|[hc]_?0|[hc]x|h(idden)?_?state|timesteps?|t|adj.*"
_NAMES: tuple[tuple[str, _Names], ...] = (
    (r"[hc]_?0|[hc]x|h(idden)?_?state|state", _states),
    (r"adj(acency)?(_matrix)?", _adjacency),
    (r"(x_)?(sparse|categ.*|cats?)(_features|_ids|_x)?", _columns),
    (r"(x_)?(cont|num|dense)(inuous|er|eric|erical)?(_features|_x)?", _numbers),
    (r"(input_)?ids|input_tokens|tokens", _tokens),
    (r"decoder_input_ids", lambda facts: _tokens(facts, "target")),
    (r"(.*_)?(mask|padding)", _mask),
    (r"(.*_)?(lengths?|lens)", _lengths),
    (r"pixel_values|images?|imgs?|image_tensor|picture", _image),
    (r"input_values|wave(form)?s?|audio|speech|signal", _wave),
    (r"input_features|mels?|spectrogram", _spectrum),
    (r"sample|hidden_states|latents?", _latent),
    (r"timesteps?|t|time_?steps?", _time),
    (r"encoder_hidden_states", _condition),
    (r"edge_index", _edge_index),
    (r"edge_(weights?|attr|features)", _edge_values),
    (r"batch", _graph_of_node),
    (r"x|node_features", _nodes),
)


def _sizes(facts: Facts, chosen: Mapping[str, Guess]) -> Iterator[dict[str, int]]:
    """Yield the sizes to try for the names in the shapes: those of an image go together."""
    names = list(
        dict.fromkeys(d for guess in chosen.values() for d in guess.shape if isinstance(d, str))
    )
    sides = [name for name in names if name in ("height", "width", "h", "w")]
    options = [_options(facts, name) for name in names if name not in sides]
    rest = [name for name in names if name not in sides]
    for combination in itertools.product(*options):
        sizes = dict(zip(rest, combination, strict=True))
        if not sides:
            yield sizes
        for height, width in _image_sides(facts) if sides else ():
            tall = {each: height for each in sides if each.startswith("h")}
            yield {**sizes, **tall, **{each: width for each in sides if each not in tall}}


def _options(facts: Facts, name: str) -> Sequence[int]:
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
