"""What recorded calls have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_gate.errors import UserError
from onnx_gate.init.learn import RecordedCall, Tensor, learn, stored
from onnx_gate.init.request import Request

REQUEST = Request("m.py:M", Path())


def floats(*shape: int, low: float = -2.0, high: float = 2.5) -> Tensor:
    return Tensor("float32", shape, low, high)


def ids(*shape: int, low: int = 3, high: int = 80) -> Tensor:
    return Tensor("int64", shape, low, high)


def shapes(*calls: RecordedCall) -> dict[str, tuple[int | str, ...]]:
    recorded = learn(REQUEST, calls).recorded
    assert recorded is not None
    return {name: guess.shape for name, guess in recorded.guesses.items()}


def test_sizes_that_vary_together_have_one_name() -> None:
    calls = [
        RecordedCall(
            {"ids": ids(b, s), "mask": ids(b, s), "x": floats(b, s, 8), "past": floats(b, 4, s + 1)}
        )
        for b, s in ((1, 5), (3, 9), (2, 12))
    ]
    assert shapes(*calls) == {
        "ids": ("batch", "seq"),
        "mask": ("batch", "seq"),
        "x": ("batch", "seq", 8),
        "past": ("batch", 4, "seq + 1"),
    }


@pytest.mark.parametrize(
    ("sizes", "relation"),
    [
        (((4, 8), (6, 12)), "2 * seq"),
        (((4, 2), (6, 3)), "seq // 2"),
        (((4, 1), (6, 3)), "seq - 3"),
        (((4, 9), (6, 5)), "other_seq"),
    ],
)
def test_one_size_follows_from_another(sizes: tuple[tuple[int, int], ...], relation: str) -> None:
    calls = [RecordedCall({"x": ids(2, a), "other": ids(2, b)}) for a, b in sizes]
    assert shapes(*calls)["other"] == ("batch", relation)


def test_what_never_varied_stays_but_for_what_is_tried() -> None:
    assert shapes(RecordedCall({"image": floats(4, 3, 32, 32)})) == {"image": ("batch", 3, 32, 32)}
    varied = learn(REQUEST, [RecordedCall({"x": floats(n, 3)}) for n in (4, 2)]).varied
    assert varied == {"batch": (2, 4)}


@pytest.mark.parametrize(
    ("tensor", "bounds"),
    [
        (floats(2, low=0.01, high=0.99), (0, 1)),
        (floats(2, low=-0.9, high=0.99), (-1, 1)),
        (floats(2, low=0.0, high=231.0), (0, 255)),
        (floats(2), None),
        (floats(2, low=-300.5, high=20.5), (-301, 21)),
        (ids(2, low=1, high=1), (1, 2)),
        (Tensor("bool", (2,)), None),
    ],
)
def test_ranges_are_rounded_to_what_was_meant(tensor: Tensor, bounds: object) -> None:
    recorded = learn(REQUEST, [RecordedCall({"x": tensor})]).recorded
    assert recorded is not None
    assert recorded.guesses["x"].range == bounds


def test_arguments_that_are_no_tensors_are_kept_where_they_are_the_same() -> None:
    calls = [
        RecordedCall(
            {"x": floats(n)}, {"scale": 0.5, "step": n}, {"state": "Thing"}, args=(7,), kwargs={}
        )
        for n in (1, 2)
    ]
    request = learn(REQUEST, calls)
    assert (request.call, request.args) == ({"scale": 0.5}, (7,))
    assert [note.text for note in request.notes if "state was a Thing" in note.text]


def test_two_calls_are_kept() -> None:
    files = [Path(name) for name in ("first", "other", "larger")]
    calls = [RecordedCall({"x": floats(2)}, file=file) for file in (*files, None)]
    assert stored(calls) == [files[0], files[2]]


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ([], "was not called"),
        ([RecordedCall({})], "no call of m.py:M had a tensor"),
        ([RecordedCall({"x": floats(2)}), RecordedCall({"x": floats(2, 3)})], "record them apart"),
        ([RecordedCall({"x": Tensor("complex64", (2,))})], "no input of a manifest has"),
    ],
)
def test_what_no_manifest_can_say(calls: list[RecordedCall], words: str) -> None:
    with pytest.raises(UserError, match=words):
        learn(REQUEST, calls)


def test_a_decoders_steps_are_not_mixed_with_its_prompts() -> None:
    prompt = RecordedCall({"ids": ids(2, 5)}, file=Path("prompt"))
    steps = [
        RecordedCall(
            {"ids": ids(2, 1), "past.0.key": floats(2, 4, n, 8), "past.0.value": floats(2, 4, n, 8)}
        )
        for n in (5, 6, 7)
    ]
    request = learn(REQUEST, [prompt, *steps])
    assert request.recorded is not None
    assert request.recorded.guesses["past.0.value"].shape == ("batch", 4, "past", 8)
    assert any("1 of 4 calls had other inputs (ids)" in note.text for note in request.notes)
