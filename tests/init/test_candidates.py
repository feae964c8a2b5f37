"""What is tried first, by what is seen of a model."""

from __future__ import annotations

import itertools

import pytest

from onnx_gate.init.candidates import MAX_ATTEMPTS, attempts, widened
from onnx_gate.init.facts import Attempt, Declared, Facts, Guess, Layer, Parameter


def first(facts: Facts) -> Attempt:
    return next(attempts(facts))


def facts(*parameters: Parameter | str, **fields: object) -> Facts:
    named = tuple(Parameter(p, True) if isinstance(p, str) else p for p in parameters)
    return Facts("Model", named, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("layer", "name", "dtype", "shape", "bounds"),
    [
        (Layer("fc", "Linear", 20), "x", "float32", ("batch", 20), None),
        (Layer("emb", "Embedding", 50), "tokens", "int64", ("batch", "seq"), (0, 49)),
        (Layer("emb", "Embedding", 50), "user_id", "int64", ("batch",), (0, 49)),
        (Layer("c", "Conv2d", 3), "x", "float32", ("batch", 3, "height", "width"), None),
        (Layer("c", "Conv1d", 4), "x", "float32", ("batch", 4, "length"), None),
        (Layer("g", "GRU", 8, batch_first=False), "x", "float32", ("seq", "batch", 8), None),
        (Layer("f", "Linear", 784, direct=False), "x", "float32", ("batch", 1, 28, 28), None),
    ],
)
def test_the_layer_that_an_input_reaches_says_what_it_is(
    layer: Layer, name: str, dtype: str, shape: tuple[int | str, ...], bounds: object
) -> None:
    guess = first(facts(name, layers=(layer,), uses={name: (layer,)})).guesses[name]
    assert (guess.dtype, guess.shape, guess.range) == (dtype, shape, bounds)
    assert layer.path in guess.why


def test_tokens_of_a_library_come_with_their_mask() -> None:
    optional = [Parameter(n, False) for n in ("input_ids", "attention_mask", "labels")]
    config = {"vocab_size": 100}
    chosen = first(facts(*optional, config=config, main_input="input_ids")).guesses
    assert list(chosen) == ["input_ids", "attention_mask"]
    assert chosen["input_ids"].range == (0, 99)
    assert {guess.shape for guess in chosen.values()} == {("batch", "seq")}


def test_edges_of_a_graph_point_at_its_nodes() -> None:
    layer = Layer("own", "Linear", 6)
    chosen = first(facts("x", "edge_index", layers=(layer,))).guesses
    assert chosen["x"].shape == ("nodes", 6)
    assert (chosen["edge_index"].shape, chosen["edge_index"].range) == (
        (2, "edges"),
        (0, "nodes - 1"),
    )


def test_lengths_end_at_the_axis_that_runs_whatever_it_is_called() -> None:
    """They ended at 'seq', which no input had: the sizes were a KeyError, and floats were written."""
    layer = Layer("stem", "Conv1d", 40)
    chosen = first(facts("mel", "lengths", layers=(layer,), uses={"mel": (layer,)})).guesses
    assert chosen["mel"].shape == ("batch", 40, "length")
    lengths = chosen["lengths"]
    assert (lengths.dtype, lengths.shape, lengths.range) == ("int64", ("batch",), (1, "length"))


@pytest.mark.parametrize(
    ("annotation", "dtype", "shape"),
    [
        (Declared(("float16", "float32"), "batch 3 h w"), "float32", ("batch", 3, "h", "w")),
        (Declared(("int32", "int64"), "*b #t"), "int64", ("b", "t")),
        (Declared(("uint8",), "side=4 _c"), "uint8", (4, "c")),
        ("torch.LongTensor", "int64", ("batch", "seq")),
    ],
)
def test_annotations_are_believed(
    annotation: Declared | str, dtype: str, shape: tuple[object, ...]
) -> None:
    layer = Layer("emb", "Embedding", 50)
    if isinstance(annotation, Declared):
        parameter = Parameter("x", True, declared=annotation)
    else:
        parameter = Parameter("x", True, annotation)
    guess = first(facts(parameter, layers=(Layer("fc", "Linear", 8), layer))).guesses["x"]
    assert (guess.dtype, guess.shape) == (dtype, shape)
    assert guess.range == ((0, 49) if "int" in dtype else None)


def test_what_goes_with_edges_is_known_by_its_name_before_any_layer() -> None:
    layer = Layer("own", "Linear", 6)
    names = ("x", "edge_index", "edge_weight", "batch")
    chosen = first(facts(*names, layers=(layer,), uses=dict.fromkeys(names, (layer,)))).guesses
    assert {name: (chosen[name].dtype, chosen[name].shape) for name in names} == {
        "x": ("float32", ("nodes", 6)),
        "edge_index": ("int64", (2, "edges")),
        "edge_weight": ("float32", ("edges",)),
        "batch": ("int64", ("nodes",)),
    }


def test_the_size_that_a_model_says_is_tried_first() -> None:
    layer = Layer("stem", "Conv2d", 3, stride=2)
    known = facts("x", layers=(layer,), uses={"x": (layer,)}, image=(3, 240, 320))
    assert first(known).sizes == {"batch": 2, "height": 240, "width": 320}


def test_there_is_an_end_to_trying() -> None:
    layers = tuple(Layer(f"l{n}", "Linear", 8 + n, direct=False) for n in range(9))
    many = facts("a", "b", "c", "d", layers=layers)
    tried = list(itertools.islice(attempts(many), MAX_ATTEMPTS + 1))
    assert len(tried) == MAX_ATTEMPTS


def test_a_recorded_range_is_widened_to_the_embeddings() -> None:
    layer = Layer("emb", "Embedding", 500)
    known = facts("x", layers=(layer,), uses={"x": (layer,)})
    assert widened(known, "x", Guess("int64", ("batch",), (3, 77))).range == (0, 499)
    assert widened(known, "x", Guess("int64", ("batch",), (0, 700))).range == (0, 700)


def test_states_columns_and_neighbours_are_known_by_their_names() -> None:
    recurrent = Layer("lstm", "LSTM", 24, state=(4, 32))
    tables = (Layer("a", "Embedding", 50), Layer("b", "Embedding", 20))
    known = facts("x", "h0", "sparse", "adjacency", "padding_mask", layers=(recurrent, *tables))
    guesses = first(known).guesses
    assert guesses["x"].shape == ("batch", "seq", 24)
    assert guesses["h0"].shape == (4, "batch", 32)
    assert (guesses["sparse"].shape, guesses["sparse"].range) == (("batch", 2), (0, 19))
    assert guesses["adjacency"].shape == ("batch", "seq", "seq")
    assert guesses["padding_mask"].shape == ("batch", "seq")


def test_a_later_guess_is_tried_before_the_last_size_of_the_first() -> None:
    image = Layer("conv", "Conv2d", 3, stride=2)
    known = facts("image", "joints", layers=(image, Layer("head", "Linear", 20, direct=False)))
    tried = list(attempts(known))
    parts = [n for n, each in enumerate(tried) if each.guesses["joints"].shape == ("batch", 7)]
    sides = [n for n, each in enumerate(tried) if each.sizes.get("height") == 84]
    assert parts
    assert sides
    assert len(tried) == MAX_ATTEMPTS
