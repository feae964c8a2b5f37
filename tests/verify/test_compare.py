"""Every metric against an oracle that goes through the elements one by one."""

from __future__ import annotations

import decimal
import importlib
import math
import tracemalloc
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onnx_gate.numerics import stream
from onnx_gate.numerics.compare import Comparison, ScaledError, compare, max_ulp, scaled_error
from onnx_gate.numerics.pairs import gather
from onnx_gate.numerics.precision import eps_of
from onnx_gate.numerics.scaled import scale_error
from onnx_gate.verify.judge.noise import distance as apart
from tests.support.profiles import tries

Array = np.ndarray[Any, Any]

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = (*FLOATS, *INTEGERS, "bool")
EXACT = decimal.Context(prec=60, Emax=10**6, Emin=-(10**6))


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> Iterator[None]:
    """Let small arrays cross the borders of blocks and tasks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "BLOCK", 7)
        patch.setattr(stream, "TASK", 2)
        patch.setattr(importlib.import_module("onnx_gate.numerics.compare"), "STRIP", 2)
        yield


# --- the oracle ---------------------------------------------------------------------------------


def values(array: Array) -> list[Any]:
    """The elements in C order as Python's own numbers, exactly."""
    integral = array.dtype.kind in "biu"
    return [int(v) if integral else float(v) for v in array.ravel(order="C")]


def distance(a: Any, e: Any) -> float:
    if isinstance(a, int) and isinstance(e, int):
        return float(abs(a - e))
    return abs(float(a) - float(e))


def first_of_largest(candidates: list[tuple[float, int]]) -> tuple[float, int]:
    best, index = 0.0, -1
    for value, i in candidates:
        if index < 0 or value > best:
            best, index = value, i
    return best, index


def total_of_squares(numbers: list[Decimal]) -> Decimal:
    total = Decimal(0)
    for number in numbers:
        total = EXACT.add(total, EXACT.multiply(number, number))
    return total


def root_mean(total: Decimal, n: int) -> float:
    return float(EXACT.sqrt(EXACT.divide(total, Decimal(n)))) if n else 0.0


def oracle(actual: Array, expected: Array, atol: float, rtol: float) -> Comparison:
    pairs = list(zip(values(actual), values(expected), strict=True))
    finite = [(i, a, e) for i, (a, e) in enumerate(pairs) if math.isfinite(a) and math.isfinite(e)]
    clashes = [
        i
        for i, (a, e) in enumerate(pairs)
        if not (math.isfinite(a) and math.isfinite(e))
        and not (math.isnan(a) and math.isnan(e))
        and a != e
    ]
    max_abs = first_of_largest([(distance(a, e), i) for i, a, e in finite])
    ratios = [
        (distance(a, e) / abs(float(e)) if abs(float(e)) > 1e-300 else slow_ratio(a, e), i)
        for i, a, e in finite
        if e != 0
    ]
    max_rel = first_of_largest(ratios)
    excess = [(math.inf, i) for i in clashes]
    for i, a, e in finite:
        limit = atol + rtol * abs(float(e))
        if distance(a, e) > limit:
            excess.append((distance(a, e) - limit, i))
    worst = first_of_largest(sorted(excess, key=lambda item: item[1]))
    dd = total_of_squares([EXACT.subtract(Decimal(a), Decimal(e)) for _, a, e in finite])
    aa = total_of_squares([Decimal(a) for _, a, _ in finite])
    ee = total_of_squares([Decimal(e) for _, _, e in finite])
    ae = Decimal(0)
    for _, a, e in finite:
        ae = EXACT.add(ae, EXACT.multiply(Decimal(a), Decimal(e)))
    cosine: float | None = None
    snr: float | None = None
    if finite:
        norms = EXACT.multiply(EXACT.sqrt(aa), EXACT.sqrt(ee))
        cosine = float(EXACT.divide(ae, norms)) if norms else float(aa == ee)
        snr = math.inf if ee or not dd else -math.inf
        if dd and ee:
            snr = float(10 * EXACT.log10(EXACT.divide(ee, dd)))
    return Comparison(
        elements=len(pairs),
        finite=len(finite),
        max_abs=max_abs[0],
        max_abs_index=max_abs[1],
        max_rel=max_rel[0],
        rms=root_mean(dd, len(finite)),
        expected_rms=root_mean(ee, len(finite)),
        cosine=cosine,
        snr_db=snr,
        nonfinite=len(clashes),
        nonfinite_index=clashes[0] if clashes else -1,
        exceeding=len(excess),
        exceeding_index=worst[1],
    )


def slow_ratio(a: Any, e: Any) -> float:
    """A quotient that Python's own division would refuse to overflow on."""
    with np.errstate(all="ignore"):
        return float(np.float64(distance(a, e)) / np.float64(abs(float(e))))


def scaled_oracle(x: Array, reference: Array, scale: float) -> ScaledError:
    pairs = enumerate(zip(values(x), values(reference), strict=True))
    finite = [(i, a, r) for i, (a, r) in pairs if math.isfinite(a) and math.isfinite(r)]
    quotients = []
    for i, a, r in finite:
        above, below = distance(a, r), abs(float(r)) + scale
        if above == 0.0:
            quotient = 0.0
        elif below == 0.0 or math.isinf(above):
            quotient = math.inf
        else:
            with np.errstate(all="ignore"):
                quotient = float(np.float64(above) / np.float64(below))
        quotients.append((quotient, i))
    largest, index = first_of_largest(quotients)
    return ScaledError(max=largest, index=index)


def ulp_oracle(actual: Array, expected: Array) -> tuple[int, int]:
    width = actual.dtype.itemsize * 8

    def place(value: Any) -> Any:
        bits = int(np.asarray(value, np.dtype(actual.dtype.name)).view(f"u{width // 8}"))
        sign, magnitude = bits >> (width - 1), bits & ((1 << (width - 1)) - 1)
        return -magnitude if sign else magnitude

    best, index = 0, -1
    pairs = zip(actual.ravel(order="C"), expected.ravel(order="C"), strict=True)
    for i, (a, e) in enumerate(pairs):
        if math.isnan(float(a)) or math.isnan(float(e)):
            continue
        apart: int = abs(place(a) - place(e))
        if index < 0 or apart > best:
            best, index = apart, i
    return best, index


def assert_same(found: Comparison, wanted: Comparison) -> None:
    close = {"rms", "expected_rms", "cosine", "snr_db"}
    for name, value in vars(wanted).items():
        got = getattr(found, name)
        if name not in close or value is None:
            assert got == value, name
        elif name == "cosine":
            assert got == pytest.approx(value, abs=1e-14), name
        elif name == "snr_db":
            assert got == pytest.approx(value, rel=1e-12, abs=1e-11), name
        else:
            assert got == pytest.approx(value, rel=1e-13, abs=0.0), name


# --- what is compared ---------------------------------------------------------------------------


def elements(name: str) -> st.SearchStrategy[Any]:
    if name == "bool":
        return st.booleans()
    if name in INTEGERS:
        info = np.iinfo(name)
        few = [v for v in (-1, 0, 1, 2) if info.min <= v <= info.max]
        ends = [info.min, info.min + 1, info.max - 1, info.max]
        return st.one_of(st.sampled_from(few + ends), st.integers(info.min, info.max))
    finfo: Any = ml_dtypes.finfo(name)  # type: ignore[no-untyped-call]
    edges: list[float] = [0.0, 1.0, math.nan, math.inf, float(finfo.max), float(finfo.tiny)]
    edges += [float(finfo.smallest_subnormal), 1.0 + float(finfo.eps)]
    return st.one_of(
        st.sampled_from(edges + [-v for v in edges]),
        st.floats(-4.0, 4.0, width=16),
        st.floats(width=64),
    )


def draw_array(draw: st.DrawFn, name: str, shape: tuple[int, ...]) -> Array:
    size = math.prod(shape)
    drawn = draw(st.lists(elements(name), min_size=size, max_size=size))
    with np.errstate(all="ignore"):
        return np.array(drawn, dtype=np.dtype(name)).reshape(shape)


def laid_out(array: Array, layout: str) -> Array:
    """A view of the same elements at the same indices, laid out otherwise in memory."""
    if array.ndim == 0:
        return array
    if layout == "fortran":
        return np.asfortranarray(array)
    if layout == "reversed":
        return np.flip(np.flip(array).copy())
    if layout == "strided":
        wide = np.zeros([2 * n + 1 for n in array.shape], array.dtype)
        view = wide[tuple(slice(1, None, 2) for _ in array.shape)]
        view[...] = array
        return view
    if layout == "transposed":
        return array.T.copy().T
    if layout == "swapped" and array.dtype.name != "bfloat16":
        return array.astype(array.dtype.newbyteorder())
    return array


LAYOUTS = ("contiguous", "fortran", "reversed", "strided", "transposed", "swapped")
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6).filter(
    lambda shape: math.prod(shape) <= 48
)


@st.composite
def pairs(draw: st.DrawFn, names: tuple[str, ...] = DTYPES, mixed: bool = True) -> Any:
    name = draw(st.sampled_from(names))
    shape = draw(SHAPES)
    expected = draw_array(draw, name, shape)
    other = draw(st.sampled_from(names)) if mixed and draw(st.booleans()) else name
    if {"uint64"} & {name, other} and other != name and "int" in other and "int" in name:
        other = name
    if other == name and draw(st.booleans()):
        actual = expected.copy()
        changes = draw(st.lists(st.tuples(st.integers(0, 47), elements(name)), max_size=4))
        with np.errstate(all="ignore"):
            for place, value in changes:
                if place < actual.size:
                    actual.reshape(-1)[place] = np.array(value).astype(actual.dtype)
    else:
        actual = draw_array(draw, other, shape)
    if shape and shape[0] and draw(st.integers(0, 7)) == 0:
        expected = np.broadcast_to(expected[:1], shape)
    else:
        expected = laid_out(expected, draw(st.sampled_from(LAYOUTS)))
    return laid_out(actual, draw(st.sampled_from(LAYOUTS))), expected


# Differences and limits that overflow, beside one that does not.
OVERFLOWING = np.array([1.7e308, 5e300, 0.0]), np.array([-1.7e308, 0.0, 0.0])

# A quotient close to overflow, then a difference beyond it.
BARELY_FINITE = np.array([1.0, *[0.0] * 8, 1.7e308]), np.array([2.3e-308, *[1.0] * 8, -1.7e308])

TOLERANCES = st.sampled_from([0.0, 1e-3, 0.5, 2.0, 1e300])


# --- properties ---------------------------------------------------------------------------------


@settings(max_examples=tries(500))
@given(pair=pairs(), atol=TOLERANCES, rtol=TOLERANCES, threads=st.integers(1, 3))
@example(pair=(np.float64(1e308), np.float64(-1e308)), atol=0.0, rtol=0.0, threads=1)
@example(pair=OVERFLOWING, atol=1e300, rtol=2.0, threads=1)
@example(pair=(np.zeros(1), np.array([2e-308], ">f8")), atol=0.0, rtol=0.0, threads=1)
@example(pair=BARELY_FINITE, atol=0.0, rtol=0.0, threads=1)
def test_compare_agrees_with_the_oracle(
    pair: tuple[Array, Array], atol: float, rtol: float, threads: int
) -> None:
    actual, expected = (np.asarray(side) for side in pair)
    found = compare(actual, expected, atol=atol, rtol=rtol, threads=threads)
    assert_same(found, oracle(actual, expected, atol, rtol))
    assert found == compare(actual, expected, atol=atol, rtol=rtol)


@settings(max_examples=tries(250))
@example(pair=OVERFLOWING, scale=1e308, threads=1)
@given(pair=pairs(), scale=st.sampled_from([0.0, 1e-3, 1.0, 1e308]), threads=st.integers(1, 3))
def test_scaled_error_agrees_with_the_oracle(
    pair: tuple[Array, Array], scale: float, threads: int
) -> None:
    found = scaled_error(*pair, scale, threads)
    assert found == scaled_oracle(*pair, scale)
    assert found == scaled_error(*pair, scale)


@settings(max_examples=tries(250))
@given(pair=pairs(("float16", "bfloat16", "float32"), mixed=False))
def test_the_fast_scaled_error_is_the_whole_one(pair: tuple[Array, Array]) -> None:
    actual, expected = (np.asarray(side) for side in pair)
    found = compare(actual, expected)
    if found.nonfinite:
        assert scale_error(actual, expected) == math.inf
    else:
        wanted = scaled_error(actual, expected, found.expected_rms).max
        assert scale_error(actual, expected) == pytest.approx(wanted, rel=1e-12, abs=0.0)


@pytest.mark.parametrize("name", FLOATS)
def test_eps_is_the_step_behind_one(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    assert eps_of(dtype) == float(ml_dtypes.finfo(dtype).eps)
    assert eps_of(np.dtype("int32")) == 0.0


@settings(max_examples=tries(250))
@given(pair=pairs(FLOATS, mixed=False))
def test_max_ulp_agrees_with_the_oracle(pair: tuple[Array, Array]) -> None:
    assert max_ulp(*pair) == ulp_oracle(*pair)


@settings(max_examples=tries(200))
@given(data=st.data())
def test_gather_follows_the_flat_index(data: st.DataObject) -> None:
    shape = data.draw(SHAPES.filter(lambda s: len(s) > 0 and math.prod(s) > 0))
    array = np.transpose(
        np.arange(math.prod(shape)).reshape(shape), data.draw(st.permutations(range(len(shape))))
    )
    low = data.draw(st.integers(0, array.size - 1))
    high = data.draw(st.integers(low, array.size))
    out = np.full(high - low, -1.0)
    gather(out, array, low)
    assert out.tolist() == array.ravel(order="C")[low:high].tolist()


# --- blocks of about the real size --------------------------------------------------------------------


@pytest.fixture
def full_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BLOCK", 32768)
    monkeypatch.setattr(stream, "TASK", 2)
    module = importlib.import_module("onnx_gate.numerics.compare")
    monkeypatch.setattr(module, "STRIP", stream.STRIP)


@pytest.mark.usefixtures("full_blocks")
@pytest.mark.parametrize("name", [*FLOATS, "int64", "bool"])
@pytest.mark.parametrize(("atol", "rtol"), [(0.0, 0.0), (1e-2, 0.0), (0.0, 1e-2), (1e-3, 1e-1)])
@pytest.mark.parametrize("noise", ["relative", "absolute"])
def test_whole_arrays(name: str, atol: float, rtol: float, noise: str) -> None:
    rng = np.random.default_rng(0)
    expected = (rng.standard_normal((5, 41, 1001)) * 100).astype(name)
    wide = expected.astype(np.float64)
    step = rng.standard_normal(expected.shape) * 1e-2 * (wide if noise == "relative" else 1)
    actual = (wide + step).astype(name)
    e, a = wide.ravel(), actual.astype(np.float64).ravel()
    d = np.abs(a - e)
    excess = d - (atol + rtol * np.abs(e))
    relative = d / np.where(e == 0, np.inf, np.abs(e))
    for threads in (1, 2):
        found = compare(actual, expected, atol=atol, rtol=rtol, threads=threads)
        assert (found.max_abs, found.max_abs_index) == (float(d.max()), int(d.argmax()))
        assert found.max_rel == float(relative.max())
        assert found.exceeding == np.count_nonzero(excess > 0)
        assert found.exceeding_index == (excess.argmax() if found.exceeding else -1)
        assert found.rms == pytest.approx(math.sqrt(math.fsum(d * d) / d.size), rel=1e-13)
        assert found.cosine == pytest.approx(
            math.fsum(a * e) / math.sqrt(math.fsum(a * a) * math.fsum(e * e)), abs=1e-13
        )
        scaled = scaled_error(actual, expected, 3.0, threads)
        quotients = d / (np.abs(e) + 3.0)
        assert (scaled.max, scaled.index) == (float(quotients.max()), int(quotients.argmax()))


@pytest.mark.usefixtures("full_blocks")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_lone_fault_is_found_wherever_it_is(layout: str) -> None:
    shape = (3, 97, 701)
    base = np.ones(shape, np.float32)
    last = math.prod(shape) - 1
    for place in (0, 1, 32767, 32768, 65535, 65536, 131072, last - 1, last):
        for fault, clash in ((2.0, False), (math.nan, True), (-math.inf, True)):
            actual = base.copy()
            actual.reshape(-1)[place] = fault
            found = compare(laid_out(actual, layout), base, atol=0.5, threads=2)
            assert found.exceeding == 1
            assert found.exceeding_index == place
            assert (found.nonfinite_index, found.finite) == (
                (place, last) if clash else (-1, last + 1)
            )
            assert found.max_abs == (0.0 if clash else 1.0)
            assert clash or found.max_abs_index == place


def test_extra_memory_is_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BLOCK", 1 << 18)
    monkeypatch.setattr(stream, "TASK", 4)
    expected = np.ones((2048, 4096), np.float32)
    actual = np.ones((4096, 2048), np.float32).T[::-1]
    tracemalloc.start()
    try:
        compare(actual, expected, threads=2)
        scaled_error(actual, expected, 1.0, threads=2)
        max_ulp(actual, expected)
        # Half of what a copy of one array would take.
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()


# --- single cases -------------------------------------------------------------------------------


def test_large_integers_are_compared_exactly() -> None:
    near = np.array([2**63 - 1, -(2**63), 2**53 + 1])
    off = np.array([2**63 - 2, -(2**63) + 1, 2**53])
    found = compare(near, off)
    assert (found.max_abs, found.exceeding) == (1.0, 3)
    ends = compare(near[:1], near[1:2])
    assert ends.max_abs == float(2**64 - 1)
    assert compare(np.array([2**64 - 1], np.uint64), np.array([2**64 - 2], np.uint64)).max_abs == 1


def test_unsigned_against_signed() -> None:
    unsigned = np.array([0, 2**63, 2**64 - 1, 5], np.uint64)
    signed = np.array([-(2**63), -1, -(2**63), 6])
    for pair in ((unsigned, signed), (signed, unsigned)):
        found = compare(*pair)
        assert found.exceeding == 4
        assert (found.max_abs, found.max_abs_index) == (float(2**64 + 2**63), 2)
    assert compare(unsigned[3:], signed[3:]).max_abs == 1.0


def test_quotients_of_subnormal_numbers() -> None:
    unit = 5e-324
    expected = np.ones(30)
    actual = expected.copy()
    expected[[0, 10]] = 10 * unit, unit
    actual[[0, 10]] = 16 * unit, 2 * unit
    # 0.6 * unit is rounded to unit, yet 1.0 is above 0.6.
    found = compare(actual, expected)
    assert found.max_rel == 1.0


def test_small_excesses_count_beside_a_large_relative_difference() -> None:
    expected = np.ones(40)
    actual = np.full(40, 1.4)
    actual[0] = 1.6
    found = compare(actual, expected, rtol=0.35)
    assert (found.exceeding, found.exceeding_index) == (40, 0)


def test_the_first_of_equal_extremes_wins() -> None:
    parts = [stream.Best() for _ in range(3)]
    parts[0].offer(1.0, 9)
    parts[2].offer(1.0, 4)
    for order in (parts, parts[::-1]):
        best = stream.Best.of(order)
        assert (best.value, best.index) == (1.0, 4)


@pytest.mark.parametrize("scale", [0.0, 3.0])
def test_the_first_finite_pair_counts_even_where_nothing_differs(scale: float) -> None:
    x = np.array([np.nan, np.nan, np.inf, 0.0, 0.0])
    assert scaled_error(x, np.zeros(5), scale) == ScaledError(0.0, 3)
    assert compare(x, np.zeros(5)).max_abs_index == 3


def test_cosine_keeps_its_digits_near_one() -> None:
    rng = np.random.default_rng(0)
    for i in range(400):
        expected = rng.standard_normal(20)
        actual = (expected + 1e-7 * rng.standard_normal(20)) * (1.0 + i / 1000)
        found, wanted = compare(actual, expected).cosine, oracle(actual, expected, 0, 0).cosine
        assert found == pytest.approx(wanted, rel=0, abs=1.2e-16)
    assert compare(expected, expected).cosine == 1.0


@pytest.mark.parametrize("size", [1e300, 1e-300, 5e-324, 1e200])
@pytest.mark.parametrize("other", [1e300, 1e-300, 1.0, -1e308])
def test_extreme_magnitudes_have_finite_ratios(size: float, other: float) -> None:
    actual, expected = np.full(20, size), np.full(20, other)
    found = compare(actual, expected)
    assert found.cosine == pytest.approx(math.copysign(1.0, size * math.copysign(1, other)))
    assert found.expected_rms == pytest.approx(abs(other))
    assert found.snr_db is not None
    assert not math.isnan(found.snr_db)


def test_nothing_to_compare() -> None:
    for array in (np.zeros((3, 0, 2), np.float32), np.full(3, np.nan)):
        found = compare(array, array)
        assert found == Comparison(array.size, 0, 0.0, -1, 0.0, 0.0, 0.0, None, None, 0, -1, 0, -1)
        assert scaled_error(array, array, 1.0) == ScaledError(0.0, -1)
        assert max_ulp(array, array) == (0, -1)


def test_ulp_by_hand() -> None:
    one = np.array([1.0], np.float32)
    assert max_ulp(np.nextafter(one, np.float32(2)), one) == (1, 0)
    assert max_ulp(np.array([0.0], np.float32), np.array([-0.0], np.float32)) == (0, 0)
    tiny = np.array([5e-324])
    assert max_ulp(tiny, -tiny) == (2, 0)
    assert max_ulp(np.array([np.inf]), np.array([-np.inf])) == (2 * 0x7FF0 << 48, 0)
    with pytest.raises(TypeError):
        max_ulp(one, one.astype(np.float64))
    with pytest.raises(TypeError):
        max_ulp(np.array([1]), np.array([1]))


def test_arguments_are_checked() -> None:
    one = np.ones(1)
    with pytest.raises(ValueError, match="shapes differ"):
        compare(one, np.ones((1, 1)))
    with pytest.raises(TypeError, match="complex128"):
        compare(one.astype(complex), one)
    with pytest.raises(TypeError, match="object"):
        compare(one, one.astype(object))
    for atol, rtol in ((-1.0, 0.0), (0.0, math.nan), (math.nan, 0.0), (0.0, math.inf)):
        with pytest.raises(ValueError, match="tolerances"):
            compare(one, one, atol=atol, rtol=rtol)
    with pytest.raises(ValueError, match="threads"):
        compare(one, one, threads=0)
    for scale in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="scale"):
            scaled_error(one, one, scale)


def test_inputs_are_left_alone() -> None:
    actual, expected = np.array([1.0, np.nan, 3.0]), np.array([1.5, np.nan, np.inf])
    copies = actual.copy(), expected.copy()
    for array in (actual, expected):
        array.setflags(write=False)
    compare(actual, expected, rtol=1e-3)
    scaled_error(actual, expected, 1.0)
    max_ulp(actual, expected)
    np.testing.assert_array_equal(actual, copies[0])
    np.testing.assert_array_equal(expected, copies[1])


def test_a_number_without_axes_is_as_far_off_as_in_an_array() -> None:
    for a, b in ((np.nan, np.nan), (np.inf, np.inf), (np.inf, 1.0), (1.0, 1.5)):
        one, other = np.array(a, np.float32), np.array(b, np.float32)
        assert apart(one, other) == apart(one[None], other[None])[0]
