"""What comes back as what: the inputs of the next step, and one check of many steps."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onnx_gate.errors import GateError
from onnx_gate.manifest import Feed, GeneratorSuite, InputSpec, ModelSpec, StepsSpec, Tolerance
from onnx_gate.report.model import Check, Metrics
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.reach.size_search import further_steps
from onnx_gate.verify.steps.feedback import chosen, feedback_of
from onnx_gate.verify.steps.measured_steps import Step, fold
from onnx_gate.verify.steps.trajectory import steps_answered

CACHE = InputSpec("float32", ("batch", "past", 2))
INPUTS = {
    "ids": InputSpec("int64", ("batch", "seq"), (0, 9)),
    "mask": InputSpec("int64", ("batch", "past + seq"), (0, 1)),
    "bias": InputSpec("float32", ("batch", "past + seq")),
    "at": InputSpec("int64", ("batch", "seq"), (0, 99)),
    "past.0.key": CACHE,
    "past.0.value": CACHE,
    "fixed": InputSpec("float32", (3,)),
}
OUTPUTS = ("logits", "present.0.key", "present.0.value")


def _spec(**steps: Any) -> ModelSpec:
    return ModelSpec("m", "m.py:m", INPUTS, steps=StepsSpec(8, **steps))


def _arrays(past: int, seq: int) -> dict[str, np.ndarray[Any, Any]]:
    return {
        "ids": np.full((1, seq), 4),
        "mask": np.zeros((1, past + seq), np.int64),
        "bias": np.full((1, past + seq), -1, np.float32),
        "at": np.arange(past, past + seq)[None],
        "past.0.key": np.zeros((1, past, 2), np.float32),
        "past.0.value": np.zeros((1, past, 2), np.float32),
        "fixed": np.ones(3, np.float32),
    }


def _outputs(past: int, seq: int) -> tuple[np.ndarray[Any, Any], ...]:
    logits = np.zeros((1, seq, 10), np.float32)
    logits[:, -1, 7] = 1
    cache = np.ones((1, past + seq, 2), np.float32)
    return logits, cache, 2 * cache


def test_a_decoder_goes_on_from_its_prompt() -> None:
    feedback = feedback_of(
        _spec(
            carry={"past": "present"},
            feed={"ids": Feed("logits", argmax=True), "at": Feed("at", add=1)},
        ),
        OUTPUTS,
    )
    arrays, sizes = feedback.after(_arrays(2, 3), _outputs(2, 3), {"batch": 1, "past": 2, "seq": 3})
    assert sizes == {"batch": 1, "past": 5, "seq": 1}
    assert list(arrays) == list(INPUTS)
    assert arrays["ids"].tolist() == [[7]]
    assert arrays["at"].tolist() == [[5]]
    assert arrays["mask"].tolist() == [[0, 0, 0, 0, 0, 1]]
    assert arrays["bias"].tolist() == [[-1, -1, -1, -1, -1, 0]]
    assert arrays["past.0.key"].shape == (1, 5, 2)
    assert arrays["past.0.value"].max() == 2
    # The candidate has PyTorch's tokens and its own cache.
    mine = feedback.mine(arrays, [np.full_like(each, 3) for each in _outputs(2, 3)])
    assert mine["ids"] is arrays["ids"]
    assert mine["past.0.key"].max() == 3


def test_rows_take_turns_where_the_gate_has_drawn_them() -> None:
    """Others may need their order: lengths that are sorted, offsets that begin at 0."""
    inputs = {"x": InputSpec("float32", ("batch", 2)), "held": InputSpec("float32", ("batch", 2))}
    drawn = ModelSpec("m", "m.py:m", inputs, steps=StepsSpec(8, carry={"held": "held_out"}))
    given = replace(drawn, suites={"own": GeneratorSuite("m.py:rows")})
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for spec, rows in ((drawn, [2, 0, 1]), (given, [0, 1, 2])):
        after, _ = feedback_of(spec, ("held_out",)).after({"x": x, "held": x}, (-x,), {"batch": 3})
        np.testing.assert_array_equal(after["x"], x[rows])
        np.testing.assert_array_equal(after["held"], -x)


@pytest.mark.parametrize(
    ("shape", "rank", "expected"),
    [
        ((2, 5, 9), 2, (2, 1)),
        ((2, 5, 9), 1, (2,)),
        ((2, 9), 2, (2, 1)),
        ((2, 9), 1, (2,)),
        ((9,), 0, ()),
        ((9,), 1, (1,)),
        ((2, 5, 9), 4, None),
        ((2, 5, 0), 2, None),
    ],
)
def test_tokens_have_the_shape_of_the_input(
    shape: tuple[int, ...], rank: int, expected: tuple[int, ...] | None
) -> None:
    tokens = chosen(np.zeros(shape, np.float32), rank)
    assert (None if tokens is None else tokens.shape) == expected


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (
            {"carry": {"past": "presnt"}},
            "'past' is to be given 'presnt', and the model has no output of that name; did you mean "
            "'present'?",
        ),
        (
            {"carry": {"past.0.key": "present"}},
            "'past.0.key' has 1 tensors (past.0.key), and 'present' has 2 "
            "(present.0.key, present.0.value)",
        ),
        (
            {"feed": {"ids": Feed("logits")}},
            "the input ids is int64[batch, seq] and cannot be given logits: logits is "
            "float32[1, 3, 10]",
        ),
        (
            {"carry": {"fixed": "present.0.key"}},
            "the input fixed is float32[3] and cannot be given present.0.key",
        ),
    ],
    ids=["no output", "other parts", "no argmax", "other rank"],
)
def test_what_does_not_fit_is_an_error(steps: dict[str, Any], message: str) -> None:
    def run() -> None:
        feedback = feedback_of(_spec(**steps), OUTPUTS)
        feedback.after(_arrays(2, 3), _outputs(2, 3), {"batch": 1, "past": 2, "seq": 3})

    with pytest.raises(GateError) as error:
        run()
    assert error.value.code == "OG412"
    assert message in error.value.message


def test_sides_that_grow_apart_need_two_names() -> None:
    feedback = feedback_of(_spec(carry={"past": "present"}), OUTPUTS)
    logits, key, value = _outputs(2, 3)
    with pytest.raises(GateError, match="'past' is 5 in one of the outputs that come back and 4"):
        feedback.after(_arrays(2, 3), (logits, key, value[:, 1:]), {"past": 2, "seq": 3})


def _step(number: int, verdict: str, budget: float, tokens: tuple[int, int] = (0, 0)) -> Step:
    metrics = Metrics(elements=2, max_abs=budget, max_rel=0.0, rms=0.0)
    check = Check.model_validate(
        {
            "runtime": "onnxruntime",
            "suite": "typical",
            "case": "typical/0",
            "output": "logits",
            "verdict": verdict,
            "budget": budget,
            "metrics": metrics,
            "compared": 2,
            "reason": "" if verdict == "pass" else "too far",
        }
    )
    return Step(number, check, budget / 1e6, None, budget, *tokens)


def test_what_diverged_decides_and_what_follows_is_measured() -> None:
    rows = [_step(1, "pass", 0.1, (2, 2)), _step(2, "diverged", 3.0, (1, 2))]
    check = fold(3, [*rows, Step(3, None, 0.5, None, 9.0, 0, 2)])
    assert (check.verdict, check.budget) == ("diverged", 3.0)
    assert check.reason == "at step 2 of 3: too far"
    assert check.steps is not None
    assert check.steps.tokens is not None
    assert (check.steps.at, check.steps.errors) == (2, (1e-7, 3e-6, 0.5))
    assert check.steps.max_abs == 9.0
    assert (check.steps.tokens.same, check.steps.tokens.of) == (3, 6)
    assert check.steps.tokens.differ_at == 2


def test_of_steps_that_pass_the_one_nearest_to_its_limit_decides() -> None:
    check = fold(3, [_step(n, "pass", budget) for n, budget in enumerate((0.1, 0.4, 0.2), 1)])
    assert check.steps is not None
    assert (check.verdict, check.budget, check.steps.at) == ("pass", 0.4, 2)
    assert (check.compared, check.reason, check.steps.tokens) == (6, "", None)


def test_a_step_of_another_form_has_no_largest_difference() -> None:
    check = fold(2, [_step(1, "diverged", 1.0), Step(2, None)])
    assert check.steps is not None
    assert math.isinf(check.steps.max_abs)


class _Growing(nn.Module):
    """Doubles what it is given, and refuses to beyond 2,000."""

    def forward(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        if self.training and bool((x > 2000).any()):
            raise ValueError("too large")
        return 2 * x, torch.cat([past, x[:, None]], 1)


@pytest.mark.parametrize(
    ("named", "trained", "count", "steps"),
    [
        ((), False, 50, 50),
        ((), False, 200, 127),  # 2 ** 128 is infinite
        ((), True, 50, 11),  # 2 ** 11 is refused
        (("past",), False, 50, 8),
    ],
    ids=["all", "finite", "answered", "sizes-of-dims"],
)
def test_steps_beyond_the_manifests_end_where_nothing_promises_more(
    named: tuple[str, ...], trained: bool, count: int, steps: int
) -> None:
    spec = ModelSpec(
        "m",
        "m.py:m",
        {
            "x": InputSpec("float32", ("batch",)),
            "past": InputSpec("float32", ("batch", "past")),
        },
        steps=StepsSpec(8, carry={"x": "0", "past": "1"}),
        named_dims=frozenset(named),
    )
    arrays = {"x": np.ones(2, np.float32), "past": np.zeros((2, 0), np.float32)}
    case = Case("s", "s/0", "random", arrays, {"batch": 2, "past": 0})
    eager = Eager(_Growing().train(trained), ("x", "past"))
    assert steps_answered(spec, eager, case, count) == steps


def test_more_steps_go_beyond_what_is_named_first_and_none_where_a_tolerance_was_chosen() -> None:
    spec = _spec(carry={"past": "present"})
    assert [n for n, _ in further_steps(spec, {3, 48, 100}, 1.0)] == [102, 50, 33, 17]
    chosen = replace(spec, tolerance=Tolerance(atol=1e-5))
    assert not [*further_steps(chosen, {48}, 1.0)]
