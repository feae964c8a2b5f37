"""The inputs: the same everywhere, inside their ranges, at every size."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_gate.manifest import (
    DTYPES,
    EDGE_KINDS,
    EdgesSuite,
    ExportSpec,
    FilesSuite,
    GeneratorSuite,
    InputSpec,
    ModelSpec,
    RandomSuite,
)
from onnx_gate.verify.inputs.cases import cases, matches
from onnx_gate.verify.inputs.draw import FLOATS, Stream, draw, exp, numpy_dtype
from onnx_gate.verify.inputs.example import example_sizes, examples
from onnx_gate.verify.inputs.sizes import combinations, concrete
from onnx_gate.verify.inputs.suites.base import SuiteContext
from onnx_gate.verify.inputs.suites.edges import EdgeCases
from onnx_gate.verify.inputs.suites.random import RandomCases
from tests.support.profiles import tries

INTEGERS = [dtype for dtype in DTYPES if dtype not in (*FLOATS, "bool")]


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


# Made once and written down: they must be the same on every platform and with every NumPy.
@pytest.mark.parametrize(
    ("spec", "law", "expected"),
    [
        (InputSpec("float32", (5, 7)), "normal", "ee37fcc4f54d8cda"),
        (InputSpec("float32", (5, 7)), "uniform", "4dc5bc4a3de45e77"),
        (InputSpec("float64", (5, 7), (0.0, 3.0)), "lognormal", "2aa0cf8628791fca"),
        (InputSpec("bfloat16", (5, 7)), "normal", "1e23155f00ebfd54"),
        (InputSpec("int64", (5, 7), (-(2**63), 2**63 - 1)), "normal", "c26c7c7d0fa9a3c5"),
        (InputSpec("bool", (5, 7)), "normal", "1992c74d07c03e34"),
    ],
)
def test_draws_are_the_same_everywhere(spec: InputSpec, law: str, expected: str) -> None:
    assert digest(draw(spec, (5, 7), Stream("golden", law), law)) == expected


def test_a_draw_depends_on_every_part_of_its_key() -> None:
    spec = InputSpec("float32", (64,))
    keys = [("a", "b"), ("ab", ""), ("a", "b", ""), ("b", "a"), (0, "b")]
    assert len({digest(draw(spec, (64,), Stream(*key))) for key in keys}) == len(keys)


def test_normal_numbers_have_the_moments_of_a_normal_distribution() -> None:
    values = Stream("moments").normal(200_000)
    assert abs(values.mean()) < 0.01
    assert abs(values.std() - 1) < 0.01
    assert abs((values**3).mean()) < 0.03
    assert np.abs(values).max() < 4.91


@given(st.lists(st.floats(-40, 40), min_size=1, max_size=20))
def test_exp_is_exp(values: list[float]) -> None:
    assert exp(np.array(values)) == pytest.approx([math.exp(v) for v in values], rel=1e-9)


@st.composite
def input_specs(draw_from: st.DrawFn) -> InputSpec:
    dtype = draw_from(st.sampled_from(DTYPES))
    shape = tuple(draw_from(st.lists(st.sampled_from([1, 2, 3, "batch", "seq"]), max_size=3)))
    bounds: tuple[float, float] | None = None
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        pair = st.tuples(*[st.integers(int(info.min), int(info.max))] * 2)
        low, high = sorted(draw_from(pair))
        bounds = (low, high)
    elif dtype in FLOATS and draw_from(st.booleans()):
        low, high = sorted(draw_from(st.tuples(*[st.integers(-100, 100)] * 2)))
        bounds = (float(low), float(high))
    return InputSpec(dtype, shape, bounds)  # type: ignore[arg-type]


def inside(array: np.ndarray, spec: InputSpec, *, special: bool = False) -> bool:
    if spec.range is None or array.size == 0:
        return True
    values = [int(v) if spec.dtype in INTEGERS else float(v) for v in array.reshape(-1)]
    if special:
        values = [v for v in values if math.isfinite(v)]
    return all(spec.range[0] <= v <= spec.range[1] for v in values)


@given(input_specs(), st.sampled_from(["normal", "uniform", "lognormal"]), st.integers(0, 9))
def test_draws_have_dtype_shape_and_range(spec: InputSpec, law: str, seed: int) -> None:
    shape = concrete(spec, {"batch": 4, "seq": 0})
    array = draw(spec, shape, Stream(seed), law)
    assert array.shape == shape
    assert array.dtype == numpy_dtype(spec.dtype)
    assert inside(array, spec)
    if array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16:
        assert np.isfinite(array.astype(np.float64)).all()


def context(inputs: dict[str, InputSpec], focused: bool = False) -> SuiteContext:
    combos = combinations({"batch": (1, 2), "seq": (1, 5)})
    return SuiteContext("s", inputs, combos, Path(), focus=combos[-1] if focused else None)


@settings(max_examples=tries(60))
@given(st.lists(input_specs(), min_size=1, max_size=3), st.booleans())
def test_edges_have_dtype_shape_and_range(specs: list[InputSpec], focused: bool) -> None:
    inputs = {f"x{number}": spec for number, spec in enumerate(specs)}
    for draft in EdgeCases().cases(EdgesSuite(EDGE_KINDS), context(inputs, focused)):
        for name, spec in inputs.items():
            array = draft.arrays[name]
            assert array.dtype == numpy_dtype(spec.dtype)
            assert array.shape == concrete(spec, draft.sizes)
            assert inside(array, spec, special=draft.parts[0] in ("nan", "inf"))


def test_every_kind_of_edge_makes_what_it_says() -> None:
    inputs = {
        "x": InputSpec("float32", ("batch", 16)),
        "unit": InputSpec("float32", ("batch", 16), (0.0, 1.0)),
        "ids": InputSpec("int64", ("batch",), (3, 9)),
        "mask": InputSpec("bool", ("batch", "seq")),
    }
    found = {d.parts[0]: d for d in EdgeCases().cases(EdgesSuite(EDGE_KINDS), context(inputs))}
    x = {kind: draft.arrays["x"] for kind, draft in found.items()}
    assert (x["zeros"] == 0).all()
    assert (x["ones"] == 1).all()
    assert (x["negative"] <= 0).all()
    assert np.abs(x["large"]).max() > 5e3
    assert np.abs(x["tiny"]).max() < 1e-5
    assert 0 < np.abs(x["subnormal"]).max() < np.finfo(np.float32).smallest_normal
    assert len(np.unique(x["ties"])) <= 5
    assert x["sweep"].min() == -8
    assert x["sweep"].max() == 8
    assert np.isnan(x["nan"]).any()
    assert np.isinf(x["inf"]).any()
    assert (found["bounds.low"].arrays["unit"] == 0).all()
    assert (found["bounds.high"].arrays["unit"] == 1).all()
    assert (found["int_extremes.low.ids"].arrays["ids"] == 3).all()
    assert (found["int_extremes.high.ids"].arrays["ids"] == 9).all()
    assert not found["masks.all_false.mask"].arrays["mask"].any()
    assert found["masks.all_true.mask"].arrays["mask"].all()
    assert found["empty.batch"].arrays["x"].shape == (0, 16)


def test_masks_hold_both_values_in_every_row() -> None:
    spec = InputSpec("bool", (200, 2))
    mask = draw(spec, (200, 2), Stream(1))
    assert (mask.any(1) & ~mask.all(1)).all()


def test_random_cases_have_readable_ids() -> None:
    inputs = {"x": InputSpec("float32", ("batch", "seq"))}
    drafts = RandomCases().cases(RandomSuite("normal", count=2), context(inputs))
    assert ["/".join(draft.parts) for draft in drafts][:3] == [
        "batch=1,seq=1/0",
        "batch=1,seq=1/1",
        "batch=1,seq=5/0",
    ]


@given(
    st.dictionaries(
        st.sampled_from("abcd"),
        st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True),
        max_size=4,
    )
)
def test_each_size_of_each_dimension_appears(dims: dict[str, list[int]]) -> None:
    combos = combinations(dims)
    for name, sizes in dims.items():
        assert {combo[name] for combo in combos} == set(sizes)
    assert len(combos) == len({tuple(c.items()) for c in combos})
    assert len(combos) <= 9
    for a, b in itertools.combinations(dims, 2):
        assert not set.intersection(*map(set, dims.values())) or any(c[a] == c[b] for c in combos)


def shaped(
    shape: tuple[int | str, ...], dims: Mapping[str, Sequence[int]], **fields: Any
) -> ModelSpec:
    """A model of one input whose sizes the manifest gives."""
    sizes = {name: tuple(each) for name, each in dims.items()}
    inputs = {"x": InputSpec("float32", shape)}
    return ModelSpec("m", "m.py:m", inputs, dims=sizes, named_dims=frozenset(sizes), **fields)


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "c"]),
        st.lists(st.integers(0, 200), min_size=1, max_size=4, unique=True),
        min_size=1,
    )
)
def test_the_example_has_distinct_sizes_that_are_not_0_or_1(dims: dict[str, list[int]]) -> None:
    sizes = next(example_sizes(shaped((*dims, 3), dims)))
    assert len(set(sizes.values())) == len(sizes)
    assert all(size >= 2 and all(size % d for d in range(2, size)) for size in sizes.values())


def test_the_example_stays_within_the_tested_sizes_where_it_can() -> None:
    dims = {"batch": (1, 2, 7), "seq": (1, 16, 128)}
    sizes = next(example_sizes(shaped(("batch", "seq", 3), dims)))
    assert 2 <= sizes["batch"] <= 7
    assert 2 <= sizes["seq"] <= 128
    assert 3 not in sizes.values()


def test_the_example_has_the_sizes_that_the_manifest_gives_it() -> None:
    dims = {"batch": (1, 2, 7), "seq": (8, 64)}
    spec = shaped(("batch", "seq", 3), dims, export=ExportSpec(example={"seq": 5}))
    for sizes in example_sizes(spec):
        assert sizes["seq"] == 5
        assert sizes["batch"] != 5


def test_the_example_comes_from_a_suite_where_drawn_values_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(6, dtype=np.float32).reshape(2, 3))
    spec = model(suites={"own": FilesSuite(("*.npz",)), "drawn": RandomSuite("normal")})
    *drawn, (sizes, arrays) = examples(spec, tmp_path)
    assert drawn
    assert sizes == {"batch": 2, "seq": 3}
    assert arrays["x"].ravel().tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("pattern", ["edges/large/batch=2", "edges/large/*", "edges/large", "*"])
def test_patterns_select_cases(pattern: str) -> None:
    assert matches("edges/large/batch=2", pattern)
    assert not matches("typical/batch=2/0", pattern) or pattern == "*"


def model(**fields: Any) -> ModelSpec:
    return shaped(("batch", "seq"), {"batch": (1, 2), "seq": (3,)}, **fields)


def test_cases_carry_their_kind_and_sizes_as_data(tmp_path: Path) -> None:
    np.savez(tmp_path / "seed=abc.npz", x=np.zeros((4, 9), np.float32))
    (tmp_path / "own.py").write_text(
        "import numpy\ndef cases(inputs, seed):\n    yield {'x': numpy.ones((2, 5), 'float32')}\n"
    )
    suites = {
        "run=1": FilesSuite(("*.npz",)),
        "edges": EdgesSuite(("ones", "bounds")),
        "own": GeneratorSuite("own.py:cases"),
        "drawn": RandomSuite("normal", count=1),
    }
    spec = replace(model(suites=suites), named_dims=frozenset(["seq"]))
    drawn = list(cases(spec, {}, tmp_path))
    assert {case.kind for case in drawn if case.sized} == {"files", "generator"}
    made = [(case.suite, case.kind, case.edge, dict(case.sizes)) for case in drawn]
    assert made == [
        ("run=1", "files", "", {"batch": 4, "seq": 9}),
        ("edges", "edges", "ones", {"batch": 1, "seq": 3}),
        ("edges", "edges", "ones", {"batch": 2, "seq": 3}),
        ("own", "generator", "", {"batch": 2, "seq": 5}),
        ("drawn", "random", "", {"batch": 1, "seq": 3}),
        ("drawn", "random", "", {"batch": 2, "seq": 3}),
        ("drawn", "random", "", {"batch": 17, "seq": 3}),
    ]


def test_suites_and_edges_that_make_no_case_are_known(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def cases(inputs, seed):\n    return []\n")
    suites = {
        "mixed": EdgesSuite(("zeros", "masks")),
        "idle": EdgesSuite(("int_extremes",)),
        "own": GeneratorSuite("own.py:cases"),
    }
    chosen = cases(model(suites=suites), {}, tmp_path, ("mixed/zeros/batch=1,*",))
    assert [case.id for case in chosen] == ["mixed/zeros/batch=1,seq=3"]
    assert chosen.without_any == ("idle", "own")
    assert chosen.counts == {
        ("mixed", "zeros"): 2,
        ("mixed", "masks"): 0,
        ("idle", "int_extremes"): 0,
        ("own", ""): 0,
    }


def padded(mask: np.ndarray) -> str:
    """How a mask that is 1 at what counts is padded."""
    rises, falls = (np.diff(mask.astype(int), axis=-1) == step for step in (1, -1))
    if not (rises.any() or falls.any()):
        return "none" if mask.all() else "all"
    if rises.any() and falls.any():
        return "bits"
    return "in front" if rises.any() else "behind"


@pytest.mark.parametrize(
    ("name", "spec", "keeps"),
    [
        ("attention_mask", InputSpec("int64", ("batch", "seq"), (0, 1)), 1),
        ("mask", InputSpec("float32", ("batch", "seq"), (0.0, 1.0)), 1),
        ("src_key_padding_mask", InputSpec("bool", ("batch", "seq")), 0),
        ("valid", InputSpec("bool", ("batch", 1, "seq")), 1),
    ],
)
def test_masks_are_padded_in_front_behind_and_not_at_all(
    name: str, spec: InputSpec, keeps: int
) -> None:
    inputs = {"x": InputSpec("float32", ("batch", "seq", 8)), name: spec}
    dims = {"batch": (1, 2, 7), "seq": (1, 2, 7)}
    drawn = list(cases(ModelSpec("m", "m:m", inputs, dims=dims), {"batch": 2, "seq": 7}, Path()))
    long = [case.arrays[name] for case in drawn if case.sizes["seq"] >= 7 and not case.edge]
    ways = [padded(mask == keeps) for mask in long]
    assert {"behind", "in front", "bits", "none"} <= set(ways)
    for mask, way in zip(long, ways, strict=True):
        kept = (mask == keeps).reshape(-1, mask.shape[-1])
        assert kept.any(axis=-1).all()
        if way in ("behind", "in front") and len(kept) > 1:
            assert kept[0].all()
            assert not kept[1:].all()


def test_what_is_no_mask_along_a_sequence_is_drawn_at_random() -> None:
    inputs = {
        "flags": InputSpec("bool", ("batch",)),
        "features": InputSpec("int64", ("batch", 12), (0, 1)),
        "share": InputSpec("float32", ("batch", "seq"), (0.0, 1.0)),
    }
    drawn = RandomCases().cases(RandomSuite("normal", count=8), context(inputs))
    for draft in drawn:
        key = (0, "s", draft.parts[0], draft.parts[1])
        for name, spec in inputs.items():
            plain = draw(spec, concrete(spec, draft.sizes), Stream(*key, name))
            assert np.array_equal(draft.arrays[name], plain)


def test_sizes_that_are_not_tested_are_tried_for_the_example_as_well() -> None:
    tried = [sizes["batch"] for sizes in example_sizes(shaped(("batch", 8), {"batch": (1, 2, 7)}))]
    assert tried[0] == 2
    assert {2, 7, 3} <= set(tried)


@pytest.mark.parametrize(
    ("fields", "sizes"),
    [
        ({}, {"batch": 2, "time": 809}),
        ({"onnx": "a.onnx"}, {"batch": 2, "time": 1600}),
        ({"export": ExportSpec("torchscript")}, {"batch": 2, "time": 1600}),
    ],
)
def test_the_example_is_a_foreign_prime_only_where_its_guards_are_known(
    fields: dict[str, Any], sizes: dict[str, int]
) -> None:
    dims = {"batch": (1, 2, 8), "time": (800, 1600)}
    assert next(example_sizes(shaped(("batch", "time"), dims, **fields))) == sizes
