"""Kinds of edges that a suite asks for and that none of the inputs has."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_gate.manifest import BUILT_IN_SUITES, EdgesSuite, InputSpec, ModelSpec, Suite
from onnx_gate.verify.inputs.cases import cases

FLOATS = {"x": InputSpec("float32", ("batch", 3))}
INTEGERS = {"x": InputSpec("int64", (2, 3), (0, 9))}


@pytest.mark.parametrize(
    ("inputs", "suite", "lacking"),
    [
        (FLOATS, EdgesSuite(("zeros", "masks", "bounds")), ("masks", "bounds")),
        (FLOATS, EdgesSuite(("zeros", "nan", "empty")), ()),
        (INTEGERS, EdgesSuite(("int_extremes", "nan", "empty")), ("nan", "empty")),
        # The built-in ones are for whatever the inputs have, and a suite without any is OG402's.
        (FLOATS, BUILT_IN_SUITES["edges"], ()),
        (FLOATS, EdgesSuite(("masks",)), ()),
    ],
)
def test_a_kind_that_fits_nothing_is_known(
    inputs: dict[str, InputSpec], suite: Suite, lacking: tuple[str, ...], tmp_path: Path
) -> None:
    spec = ModelSpec(
        name="m",
        model="m.py:m",
        inputs=inputs,
        dims={"batch": (1, 2)} if inputs is FLOATS else {},
        suites={"edges": suite},
    )
    every = cases(spec, {"batch": 2} if inputs is FLOATS else {}, tmp_path)
    list(every)
    assert every.edges_without_any == tuple(("edges", kind) for kind in lacking)
