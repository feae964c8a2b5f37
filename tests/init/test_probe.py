"""What trying finds out, on modules that say little of themselves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import Float32, Int
from pydantic import TypeAdapter
from torch import nn

from onnx_gate.init import probe
from onnx_gate.init.facts import Guess, Learned
from onnx_gate.init.request import Identity, Request

FOLDER = Path(__file__).parent


class Classes(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.head = nn.Linear(20, num_classes)

    def forward(self, x):
        return self.head(x)


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.user_embedding = nn.Embedding(50, 4)
        self.item_embedding = nn.Embedding(70, 4)
        self.head = nn.Linear(4 + 4 + 3, 1)

    def forward(self, user_id, item_id, dense):
        parts = [self.user_embedding(user_id), self.item_embedding(item_id), dense]
        return self.head(torch.cat(parts, 1))


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.head = nn.Linear(2 * 26 * 26, 3)

    def forward(self, x):
        return self.head(self.conv(x).flatten(1))


class Restorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 2, 4, 4), nn.ConvTranspose2d(2, 3, 4, 4)

    def forward(self, image):
        return image + self.up(self.down(image))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, query, memory):
        return self.attention(query, memory, memory)[0]


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 4)

    def forward(self, tokens, mask=None, labels=None):
        return self.embed(tokens)


class Single(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(x.reshape(4))


class Settings:
    def __init__(self, words=30, width=4):
        self.words, self.width = words, width


class Configured(nn.Module):
    def __init__(self, config: Settings):
        super().__init__()
        self.embed = nn.Embedding(config.words, config.width)

    def forward(self, words):
        return self.embed(words)


class Head(nn.Module):
    export = False

    def forward(self, x):
        return x if self.export else {"x": x, "shapes": "text"}


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), Head()

    def forward(self, x):
        return self.head(self.body(x))


class Remembers(nn.Module):
    """What follows its code gets into its state."""

    def __init__(self):
        super().__init__()
        self.head, self.first = nn.Linear(6, 2), None

    def forward(self, x):
        self.first = x.sum() if self.first is None else self.first
        return self.head(x) + self.first


class Dictionary(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(30, 4), nn.Linear(4 + 3, 1)

    def forward(self, parts: dict):
        return self.head(torch.cat([self.embed(parts["words"]), parts["dense"]], -1))


@dataclass
class Clip:
    frames: torch.Tensor


class Tagger(nn.Module):
    """A dataclass, and a pair of caches for each of the layers, which grow together."""

    def __init__(self):
        super().__init__()
        self.see = nn.Linear(6, 4)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, clip: Clip, caches: list[tuple[torch.Tensor, torch.Tensor]]):
        _, frames, _ = clip.frames.shape
        x = self.see(clip.frames).sum(1) / frames
        for layer, (keys, values) in zip(self.layers, caches, strict=True):
            weights = torch.cat([keys, x[:, None]], 1) @ x[..., None]
            x = layer((weights * torch.cat([values, x[:, None]], 1)).sum(1))
        return x


class Impossible(nn.Module):
    def forward(self, parts: dict):
        raise ValueError("not today")


class Boxed(nn.Module):
    def forward(self, x, where=None, bbox=None, return_dict: bool = True):
        if bbox is None:
            raise ValueError("Bbox is required")
        raise ValueError("not of this kind")


class Conditioned(nn.Module):
    def forward(self, x, return_dict: bool = True, states=None, output_mask=None):
        return x + states.shape[1]


class Timed(nn.Module):
    def forward(self, x, timespans=None):
        raise RuntimeError("shapes cannot be multiplied")


class Annotated(nn.Module):
    """Nothing but its annotations says what it takes."""

    def forward(
        self,
        ids: Int[torch.Tensor, "batch time"],  # noqa: F722
        dense: Float32[torch.Tensor, "batch 5"] | None,  # noqa: F722
    ):
        return ids.float() @ ids.float().T, dense @ torch.ones(5, 2)


class Needs:
    def __init__(self, vocabulary: int, width=4):
        self.words, self.width = vocabulary, width


class Needy(nn.Module):
    def __init__(self, config: Needs):
        super().__init__()
        self.embed = nn.Embedding(config.words, config.width)

    def forward(self, words):
        return self.embed(words)


class Layers(nn.Module):
    def __init__(self, hidden_dims: list[int]):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(6, size) for size in hidden_dims[:1]))

    def forward(self, x):
        return self.layers(x)


def unknowable(tokenizer, other):
    raise AssertionError


def broken():
    raise RuntimeError("no weights here")


class Padded(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.mix = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, words, padding):
        x = self.embed(words)
        return self.mix(x, x, x, key_padding_mask=padding)[0]


class Frames(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 3)

    def forward(self, frames):
        if frames.dtype != torch.uint8:
            raise TypeError("frames are bytes")
        return self.conv(frames.permute(0, 3, 1, 2).float() / 255)


class Odd(nn.Module):
    def forward(self, left, right):
        if right.shape[1:] != (9, left.shape[1]) or right.dtype != torch.int32:
            raise ValueError("nobody guesses this")
        return left[:, None] * right


def several():
    return Classes(3), "tokenizer"


def scripted():
    return torch.jit.script(Classes(3))


def learned(name: str, **kwargs: object) -> Learned:
    """What a worker answers; ``kwargs`` are what the target is called with."""
    request = Request(f"test_probe.py:{name}", FOLDER, kwargs=kwargs)
    answers: list[dict[str, Any]] = []
    probe.work(request, answers.append)
    if "error" in answers[0]:
        raise AssertionError(answers[0]["error"])
    return TypeAdapter(Learned).validate_python(answers[0]["answer"])


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("Classes", {"x": ("float32", ("batch", 20), None)}),
        ("scripted", {"x": ("float32", ("batch", 20), None)}),
        (
            "Recommender",
            {
                "user_id": ("int64", ("batch",), (0, 49)),
                "item_id": ("int64", ("batch",), (0, 69)),
                "dense": ("float32", ("batch", 3), None),
            },
        ),
        ("Digits", {"x": ("float32", ("batch", 1, 28, 28), None)}),
        ("Restorer", {"image": ("float32", ("batch", 3, "height", "width"), None)}),
        (
            "Attention",
            {
                "query": ("float32", ("batch", "seq", 8), None),
                "memory": ("float32", ("batch", "memory_seq", 8), None),
            },
        ),
        ("Masked", {"tokens": ("int64", ("batch", "seq"), (0, 29))}),
        (
            "Padded",
            {
                "words": ("int64", ("batch", "seq"), (0, 19)),
                "padding": ("bool", ("batch", "seq"), None),
            },
        ),
        ("Frames", {"frames": ("uint8", ("batch", "height", "width", 3), (0, 255))}),
        ("Remembers", {"x": ("float32", ("batch", 6), None)}),
        ("Single", {"x": ("float32", (1, 4), None)}),
        (
            "Dictionary",
            {
                "parts.words": ("int64", ("batch",), (0, 29)),
                "parts.dense": ("float32", ("batch", 3), None),
            },
        ),
        (
            "Tagger",
            {
                "clip.frames": ("float32", ("batch", "seq", 6), None),
                **{
                    f"caches.{layer}.{part}": ("float32", ("batch", "caches_0_0_seq", 4), None)
                    for layer in (0, 1)
                    for part in (0, 1)
                },
            },
        ),
        (
            "Annotated",
            {"ids": ("int64", ("batch", "time"), None), "dense": ("float32", ("batch", 5), None)},
        ),
    ],
)
def test_what_forward_takes(name: str, inputs: dict[str, object]) -> None:
    answer = learned(name)
    assert {n: (g.dtype, g.shape, g.range) for n, g in answer.inputs.items()} == inputs


def test_what_nobody_guesses_can_be_said() -> None:
    with pytest.raises(AssertionError, match="--input 'left=float32"):
        learned("Odd")
    given = {"right": Guess("int32", ("batch", 9, 16), (0, 4))}
    answer = probe.learn(Request("test_probe.py:Odd", FOLDER, given=given))
    assert {n: (g.dtype, g.shape) for n, g in answer.inputs.items()} == {
        "left": ("float32", ("batch", 16)),
        "right": ("int32", ("batch", 9, 16)),
    }
    both = {
        "left": Guess("float32", ("batch", "wide")),
        "right": Guess("int32", ("batch", 9, "wide"), (0, 4)),
    }
    answer = probe.learn(Request("test_probe.py:Odd", FOLDER, given=both))
    assert [g.shape for g in answer.inputs.values()] == [("batch", "wide"), ("batch", 9, "wide")]


def test_a_file_of_torchscript_is_a_target(tmp_path: Path) -> None:
    torch.jit.save(scripted(), str(tmp_path / "net.pt"))
    answer = probe.learn(Request("net.pt", tmp_path))
    assert {name: guess.shape for name, guess in answer.inputs.items()} == {"x": ("batch", 20)}


def test_sizes_are_named_where_the_gates_own_do_not_fit() -> None:
    assert learned("Restorer").dims == {"height": (32, 64), "width": (32, 64)}
    assert learned("Classes").dims == {}


def test_guessed_arguments_are_said_to_be_guessed() -> None:
    answer = learned("Classes")
    assert answer.kwargs == {"num_classes": 10}
    assert [note.text for note in answer.notes if note.kind == "guessed"] == [
        "num_classes=10 of test_probe.py:Classes, by its name"
    ]
    assert learned("Classes", num_classes=4).kwargs == {"num_classes": 4}
    assert learned("Layers").kwargs == {"hidden_dims": [64, 64]}


def test_what_is_left_out_is_said() -> None:
    unknown = [note.text for note in learned("Masked").notes if note.kind == "unknown"]
    assert unknown == ["whether your callers give mask, labels: left at the default"]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("Configured", "config = Settings()"),
        ("Needy", "vocabulary=1000"),
        ("Detector", "part.export = True"),
    ],
)
def test_a_factory_is_written_where_one_is_needed(name: str, line: str, tmp_path: Path) -> None:
    source = learned(name).factory
    assert source is not None
    assert line in source
    scope: dict[str, object] = {}
    exec(source.replace("from test_probe", f"from {__name__}"), scope)
    module = scope["build"]()
    assert isinstance(module, nn.Module)
    assert not module.training


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Impossible", "forward(parts: dict) of Impossible took none of"),
        ("Boxed", "--input 'bbox="),
        ("Conditioned", "--input 'states="),
        ("Timed", "--input 'x="),
        ("Anotated", "has no attribute 'Anotated'; did you mean 'Annotated'?"),
        ("unknowable", "tokenizer, other, of which nothing is known: --arg tokenizer=VALUE"),
        ("broken", "it raised RuntimeError: no weights here (test_probe.py:"),
        ("several", "it returned a tuple, not an nn.Module"),
        ("FOLDER", "name an nn.Module, a class or a function"),
    ],
)
def test_where_nothing_was_learned_it_says_why(name: str, words: str) -> None:
    with pytest.raises(AssertionError, match=words.replace("(", r"\(").replace(")", r"\)")):
        learned(name)


def test_a_class_is_known_by_its_name_and_file() -> None:
    answer = probe.identify(Request("test_probe.py:Classes", FOLDER))
    assert answer == Identity("Classes", str(Path(__file__).resolve()))
