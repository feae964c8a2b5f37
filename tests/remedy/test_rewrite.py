"""Rewrites of source: what comes out parses, differs only where it says, and means what it should."""

from __future__ import annotations

import ast
import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_gate.remedy.patterns import PATTERNS
from onnx_gate.remedy.source_remedies import rewrites
from onnx_gate.report.story.remedied import REWRITES

FILE = '''\
"""A model."""

from __future__ import annotations

# the first import
from torch import nn


class Model(nn.Module):
    def forward(self, x, mask, i):
{body}
'''

KNOWN = [
    ("size", "n = int(x.shape[0])", "n = x.shape[0]"),
    ("size", "n = int(x.size(1)) * 2", "n = x.size(1) * 2"),
    ("item", "s = max(x.abs().max().item(), 1e-6)", "s = x.abs().max().clamp(min=1e-6)"),
    ("item", "s = min(3, x.max().item()) / 2", "s = x.max().clamp(max=3) / 2"),
    ("item", "s = (x + 1).mean().item()", "s = (x + 1).mean()"),
    ("item", "s = float(x.max())", "s = x.max()"),
    ("length", "n = len(x)", "n = x.shape[0]"),
    ("double", "y = x.double() * 2", "y = x.float() * 2"),
    ("double", "y = x.to(torch.float64)", "y = x.to(torch.float32)"),
    ("shift", "y = x >> 2", 'y = torch.div(x, 4, rounding_mode="floor")'),
    ("shift", "y = x + 1 << 3", "y = ((x + 1) * 8)"),
    ("masked", "x[mask] = 0.5", "x = torch.where(mask, 0.5, x)"),
    ("finfo", "y = x.masked_fill(mask, torch.finfo(torch.float16).min)", "finfo(x.dtype).min)"),
    ("validated", "d = Normal(x, 1)", "d = Normal(x, 1, validate_args=False)"),
    (
        "parametrized",
        "self.f = orthogonal(f)",
        "torch.nn.utils.parametrize.remove_parametrizations(",
    ),
    ("softplus", "y = F.logsigmoid(x + 1) ** 2", "y = (-F.softplus(-(x + 1))) ** 2"),
    ("softplus", "y = nn.functional.logsigmoid(x)", "y = (-nn.functional.softplus(-x))"),
    ("rows", "y = x[torch.arange(3), i]", "torch.take_along_dim(x, i.reshape("),
    (
        "cond",
        "y = x if x.sum() > 0 else -x",
        "y = torch.cond(x.sum() > 0, lambda: x.clone(), lambda: (-x))",
    ),
    (
        "cond",
        "if x.any():\n    x *= y",
        "x = torch.cond(x.any(), lambda: (x * y), lambda: x.clone())",
    ),
    ("state", "self.past = x\nreturn -self.past", "past = x\n        return -past, past"),
    ("state", "self.past += x\nreturn x, i", "past = past + x\n        return x, i, past"),
    ("state", "self.past.mul_(2).add_(x)\nreturn x", "past = past.mul(2).add(x)"),
    ("state", "self.past.copy_(x)\nreturn x", "def forward(self, x, mask, i, past):"),
    ("where", "y = x if x.sum() > 0 else -x", "y = torch.where(x.sum() > 0, x, -x)"),
    ("where", "if x.any():\n    x = x + 1", "x = torch.where(x.any(), x + 1, x)"),
    ("where", "if x.any(): x = x + 1", "x = torch.where(x.any(), x + 1, x)"),
    ("where", "if x.max() > 1:\n    x *= y + 1", "x = torch.where(x.max() > 1, x * (y + 1), x)"),
    (
        "where",
        "if not bool((x < 0).all()):\n    y = x\nelse:\n    y = -x",
        "y = torch.where(~(x < 0).all(), x, -x)",
    ),
    ("where", "if x.sum().item() > 0:\n    return x\nreturn -x", "torch.where(x.sum() > 0, x, -x)"),
]
LEFT_ALONE = [
    "n = int(x.shape[0] * 0.5)",  # another number than the size
    "n = int(3.5)",
    "if self.training:\n    x = x * 2",
    "if x.shape[0] > 4:\n    x = x * 2",
    "if x.dim() == 3 and x.sum() > 0:\n    x = x * 2",
    "if x.sum() > 0:\n    x = x * 2\n    self.calls.append(1)",
    "d = Normal(x, 1, validate_args=True)",
    "y = x[i]",
    "y = x >> i",
    "past = self.past\nself.past = x\nreturn past",
    "self.past = x\nreturn (lambda: self.past)()",
    "self.past.append(x)\nreturn x",
]


def text_of(body: str) -> str:
    indented = "\n".join(f"        {line}" for line in body.splitlines())
    return FILE.format(body=indented)


@pytest.mark.parametrize(("name", "body", "wanted"), KNOWN)
def test_a_known_line_becomes_the_other(name: str, body: str, wanted: str) -> None:
    found = [each for each in rewrites(text_of(body)) if each.name == name]
    assert len(found) == 1
    assert wanted in found[0].text
    assert ("import torch\n" in found[0].text) == ("torch" in wanted or "torch" in body)


@pytest.mark.parametrize("body", LEFT_ALONE)
def test_what_may_mean_something_else_is_left_alone(body: str) -> None:
    assert not list(rewrites(text_of(body)))


def test_every_rewrite_has_its_words() -> None:
    assert set(PATTERNS) == set(REWRITES)
    assert {name for name, _, _ in KNOWN} == set(PATTERNS)


BODIES = st.lists(
    st.sampled_from([body for _, body, _ in KNOWN] + LEFT_ALONE + ["x = x + 1  # kept", "y = x\n"]),
    min_size=1,
    max_size=6,
)


@given(BODIES, st.booleans(), st.booleans())
def test_a_rewritten_file_parses_and_differs_only_there(
    bodies: list[str], windows: bool, marked: bool
) -> None:
    text = "\ufeff" * marked + text_of("\n".join(bodies))
    text = text.replace("\n", "\r\n") if windows else text
    before = text.split("\n")
    for each in rewrites(text):
        ast.parse(each.text.encode())
        after = each.text.split("\n")
        assert windows == ("\r\n" in each.text)
        assert all(line.endswith("\r") for line in after[:-1]) == windows
        matcher = difflib.SequenceMatcher(a=before, b=after, autojunk=False)
        changed = [op for op in matcher.get_opcodes() if op[0] != "equal"]
        new = [line.strip() for op in changed for line in after[op[3] : op[4]]]
        # Beside the import nothing is put in but at a line that is named, or below it in its block.
        touched = {n + 1 for op in changed for n in range(op[1], max(op[2], op[1] + 1))}
        if "import torch" in new:
            assert before[4].strip() == "# the first import"
            touched -= {5, 6}
        assert touched
        assert min(touched) >= min(each.lines)


def test_comments_stay_with_what_takes_their_place() -> None:
    body = "# why\nif x.any():  # if any\n    # of them\n    x = x + 1  # more\ny = x  # after"
    text = FILE.format(body="\n".join(f"        {line}" for line in body.splitlines()))
    made = next(each.text for each in rewrites(text) if each.name == "where")
    at = made.index("# why")
    kept = [line.strip() for line in made[at:].splitlines()]
    wanted = ["# why", "# if any", "# of them", "# more"]
    assert kept == [*wanted, "x = torch.where(x.any(), x + 1, x)", "y = x  # after"]


def test_lines_that_are_blamed_come_first_then_what_the_model_is_made_of() -> None:
    one = "class {}:\n    def f(self, x):\n        return int(x.shape[0]) + 1 if x.any() else x\n"
    text = "import torch\n\n\n" + "\n\n".join(map(one.format, "ABC"))
    found = list(rewrites(text + "\n\ndef make():\n    return B()\n", lines={16}, target="make"))
    assert [each.lines for each in found] == [*[(16,)] * 3, *[(11,)] * 3]


@given(st.text(max_size=300))
def test_any_text_is_taken(text: str) -> None:
    for each in rewrites(text):
        ast.parse(each.text)
