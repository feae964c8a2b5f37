"""Whether a size is baked in, or what is repeated to come to another size is what makes a difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from onnx_gate.manifest import InputSpec, ModelSpec
from onnx_gate.report.model import Check
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.baked import baked_size
from onnx_gate.verify.checks import Checker
from onnx_gate.verify.inputs.cases import Case

SPEC = ModelSpec(
    name="model",
    model="m.py:Model",
    inputs={"x": InputSpec("float32", ("n",)), "cell": InputSpec("int64", ("n",), range=(0, 31))},
    dims={"n": (2, 7)},
)


def check(case: Case, verdict: str) -> Check:
    return Check(
        runtime="onnxruntime",
        suite="typical",
        case=case.id,
        output="y",
        verdict=cast("Any", verdict),
        sizes=dict(case.sizes),
    )


def judged(wrong: Callable[[Array], bool]) -> Sequence[Any]:
    """Return what is found of a file that is wrong where ``wrong`` says so of the cells."""
    rng = np.random.default_rng(0)
    cases = [
        Case(
            suite="typical",
            id=f"typical/n={n}",
            kind="random",
            arrays={"x": rng.standard_normal(n).astype("f"), "cell": np.array(cells)},
            sizes={"n": n},
        )
        for n, cells in ((2, [4, 9]), (7, [4, 9, 1, 4, 6, 4, 2]))
    ]
    known = {case.id: case for case in cases}

    def verdict(case: Case) -> str:
        return "diverged" if wrong(case.arrays["cell"]) else "pass"

    checker = SimpleNamespace(
        setting=SimpleNamespace(spec=SPEC, example={"n": 2}),
        again=lambda each: (known[each.case], 0, None),
        try_again=lambda case: [check(case, verdict(case))],
    )
    checks = [check(case, verdict(case)) for case in cases]
    return list(baked_size(cast("Checker", checker), checks, ()))


WRONG: dict[str, tuple[Callable[[Array], bool], int]] = {
    "another size": (lambda cells: len(cells) != 2, 1),
    "the same cell twice": (lambda cells: len(set(cells.tolist())) < len(cells), 0),
}


@pytest.mark.parametrize("kind", WRONG)
def test_duplicates_are_no_size(kind: str) -> None:
    wrong, found = WRONG[kind]
    assert [finding.code for finding in judged(wrong)] == ["OG102"] * found
