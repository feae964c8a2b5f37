"""What an input takes whose name many libraries share: masks, tokens, images, edges of graphs; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from onnx_gate.init.facts import Bound, Facts, Guess, Layer

_Names = Callable[[Facts], Iterable[Guess]]
_Known = tuple[str, tuple[int | str, ...], tuple[Bound, Bound] | None]


def shown(layer: Layer) -> str:
    """Return a layer as a reason names it: its path, kind and size."""
    return f"{layer.path or 'the'} {layer.kind}({layer.size})".replace("the ", "a ")


def by_name(facts: Facts, name: str) -> list[Guess]:
    """What an input of this name is in the libraries that everybody copies names from."""
    last = name.rpartition(".")[2]
    return [
        guess for pattern, known in _NAMES if re.fullmatch(pattern, last) for guess in known(facts)
    ]


def _tokens(facts: Facts, dim: str = "seq") -> Iterator[Guess]:
    vocabulary = facts.config.get("vocab_size")
    if isinstance(vocabulary, int):
        yield Guess("int64", ("batch", dim), (0, vocabulary - 1), f"config.vocab_size {vocabulary}")


def _states(facts: Facts) -> Iterator[Guess]:
    for layer in facts.layers:
        if layer.state is not None:
            count, width = layer.state
            yield Guess("float32", (count, "batch", width), why=f"a state of {shown(layer)}")


def _columns(facts: Facts) -> Iterator[Guess]:
    sizes = [layer.size for layer in facts.layers if layer.kind == "Embedding"]
    if sizes:
        bounds = (0, min(sizes) - 1)
        yield Guess("int64", ("batch", len(sizes)), bounds, "a column for each of the tables")


def _image(facts: Facts) -> Iterator[Guess]:
    channels = facts.image[0] if facts.image else facts.config.get("num_channels")
    first = next((layer.size for layer in facts.layers if layer.kind == "Conv2d"), None)
    for each in dict.fromkeys((channels, first)):
        if isinstance(each, int):
            yield Guess(
                "float32", ("batch", each, "height", "width"), why="what an image is called"
            )


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


def _condition(facts: Facts) -> Iterator[Guess]:
    for key in ("cross_attention_dim", "joint_attention_dim", "caption_channels", "hidden_size"):
        width = facts.config.get(key)
        if isinstance(width, int):
            yield Guess("float32", ("batch", "context", width), why=f"config.{key}")


def is_graph(facts: Facts) -> bool:
    """Return whether a module takes a graph of nodes and edges."""
    return any(each.name == "edge_index" for each in facts.parameters)


def _edge_values(facts: Facts) -> Iterator[Guess]:
    if is_graph(facts):
        yield Guess("float32", ("edges",), (0, 1), "a weight of each edge")
        yield Guess("float32", ("edges", 1), why="a value of each edge")


def _graph_of_node(facts: Facts) -> Iterator[Guess]:
    if is_graph(facts):
        yield Guess("int64", ("nodes",), (0, 3), "the graph of each node")


def _nodes(facts: Facts) -> Iterator[Guess]:
    if is_graph(facts):
        for layer in facts.layers:
            if layer.kind == "Linear":
                why = f"nodes of a graph, and the model has {shown(layer)}"
                yield Guess("float32", ("nodes", layer.size), why=why)


def _always(why: str, *known: _Known) -> _Names:
    """Return guesses that nothing of the module decides: dtypes, shapes and ranges."""
    guesses = [Guess(*each, why) for each in known]
    return lambda _: guesses


# Names that say more than the layers that an input reaches in the end.
SURE = r"(.*_)?(mask|padding|lengths?|lens)|[hc]_?0|[hc]x|h(idden)?_?state|timesteps?|t|adj.*"
_ADJACENCY = _always(
    "what a matrix of neighbours is called",
    ("float32", ("batch", "seq", "seq"), (0, 1)),
    ("float32", ("seq", "seq"), (0, 1)),
)
_MASK = _always(
    "what a mask is called",
    ("int64", ("batch", "seq"), (0, 1)),
    ("bool", ("batch", "seq"), None),
    ("float32", ("batch", "seq"), (0, 1)),
    ("float32", ("seq", "seq"), None),
    ("bool", ("seq", "seq"), None),
    ("int64", ("batch", "height", "width"), (0, 1)),
    ("bool", ("batch", "height", "width"), None),
)
_TIME = _always(
    "what the step of a diffusion is called",
    ("int64", ("batch",), (0, 999)),
    ("float32", ("batch",), (0, 1)),
    ("float32", ("batch", 1), (0, 1)),
)
_NUMBERS = _always("what columns of numbers are called", ("float32", ("batch", 16), None))
_LENGTHS = _always("what lengths are called", ("int64", ("batch",), (1, "seq")))
_WAVE = _always(
    "what sound is called",
    ("float32", ("batch", "samples"), None),
    ("float32", ("batch", 1, "samples"), None),
)
_EDGE_INDEX = _always("what edges of a graph are called", ("int64", (2, "edges"), (0, "nodes - 1")))
_NAMES: tuple[tuple[str, _Names], ...] = (
    (r"[hc]_?0|[hc]x|h(idden)?_?state|state", _states),
    (r"adj(acency)?(_matrix)?", _ADJACENCY),
    (r"(x_)?(sparse|categ.*|cats?)(_features|_ids|_x)?", _columns),
    (r"(x_)?(cont|num|dense)(inuous|er|eric|erical)?(_features|_x)?", _NUMBERS),
    (r"(input_)?ids|input_tokens|tokens", _tokens),
    (r"decoder_input_ids", lambda facts: _tokens(facts, "target")),
    (r"(.*_)?(mask|padding)", _MASK),
    (r"(.*_)?(lengths?|lens)", _LENGTHS),
    (r"pixel_values|images?|imgs?|image_tensor|picture", _image),
    (r"input_values|wave(form)?s?|audio|speech|signal", _WAVE),
    (r"input_features|mels?|spectrogram", _spectrum),
    (r"sample|hidden_states|latents?", _latent),
    (r"timesteps?|t|time_?steps?", _TIME),
    (r"encoder_hidden_states", _condition),
    (r"edge_index", _EDGE_INDEX),
    (r"edge_(weights?|attr|features)", _edge_values),
    (r"batch", _graph_of_node),
    (r"x|node_features", _nodes),
)
