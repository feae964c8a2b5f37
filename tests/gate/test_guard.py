"""What the guard finds: everything that is looser, and nothing that is not."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from onnx_gate.guard import loosened
from onnx_gate.guard.loosened import covers
from onnx_gate.guard.tolerance import looser
from onnx_gate.manifest import (
    DEFAULT_SUITES,
    CoverageSpec,
    EdgesSuite,
    ExportSpec,
    FilesSuite,
    GeneratorSuite,
    InputSpec,
    Manifest,
    ModelSpec,
    PluginSuite,
    RandomSuite,
    RuntimeSpec,
    StepsSpec,
    Suite,
    Tolerance,
    TopK,
    Waiver,
    WeightsSpec,
)
from onnx_gate.manifest.load import load_bytes
from onnx_gate.manifest.values.targets import Target
from onnx_gate.report.model import Change
from onnx_gate.verify.inputs.cases import matches
from onnx_gate.verify.inputs.sizes import combinations

DAY = datetime.date(2030, 1, 1)
LATER = datetime.date(2031, 1, 1)
TIGHT = Tolerance(atol=1e-6, rtol=1e-5)
STRICT = Tolerance(
    auto=10.0,
    atol=1e-5,
    rtol=1e-4,
    mismatch=0.01,
    cosine=0.99,
    snr_db=30.0,
    top1=0.9,
    topk=TopK(5, 0.9),
    max_ulp=4,
    metric="a.b:f",
    max=0.1,
    indices="exact",
)
MODEL = ModelSpec(
    name="net",
    model="nets.py:build",
    inputs={
        "x": InputSpec("float32", ("batch", "seq", 3), (-1.0, 1.0)),
        "ids": InputSpec("int64", ("batch",), (0, 9)),
        "free": InputSpec("float32", (4,)),
    },
    outputs={"logits": TIGHT, "scores": None},
    dims={"batch": (1, 2), "seq": (1, 4, 8)},
    named_dims=frozenset({"batch", "seq"}),
    runtimes=(
        RuntimeSpec("onnxruntime"),
        RuntimeSpec("onnxruntime", provider="cuda", optimization="extended"),
        RuntimeSpec("reference"),
    ),
    suites={
        "typical": RandomSuite("normal", 3, 1),
        "edges": EdgesSuite(("zeros", "nan", "inf")),
        "real": FilesSuite(("a/*.npz", "b/*.npz")),
        "own": GeneratorSuite("gen.py:cases", 1),
        "other": PluginSuite("fuzz", {"fuzz": 3}),
    },
    tolerance=STRICT,
    waivers=(Waiver("edges/nan/*", DAY, "known", 0.1), Waiver("real/*", DAY, "known")),
    line=7,
)
STEPS = StepsSpec(3, {"x": "logits"})
BARE = ModelSpec(name="bare", model="nets.py:bare", inputs={"x": InputSpec("float32", ("n",))},
                 dims={"n": (1, 2, 7)}, line=3)  # fmt: skip
COMMITTED = replace(BARE, onnx="artifacts/a.onnx")

Edit = Callable[[ModelSpec], ModelSpec]


def manifest(*models: ModelSpec) -> Manifest:
    return Manifest(Path("onnx-gate.yml"), "", None, models)


def changes(base: ModelSpec, head: ModelSpec) -> tuple[Change, ...]:
    return loosened(manifest(base), manifest(head))


def tolerance(**changed: Any) -> Edit:
    return lambda model: replace(model, tolerance=replace(model.tolerance, **changed))


def outputs(**changed: Tolerance | None) -> Edit:
    return lambda model: replace(model, outputs={**(model.outputs or {}), **changed})


def suites(**changed: Suite) -> Edit:
    return lambda model: replace(model, suites={**model.suites, **changed})


def without(field: str, *keys: str) -> Edit:
    return lambda model: replace(
        model,
        **{field: {k: v for k, v in getattr(model, field).items() if k not in keys}},  # type: ignore[arg-type]
    )


def inputs(**changed: InputSpec) -> Edit:
    return lambda model: replace(model, inputs={**model.inputs, **changed})


def sizes(**changed: tuple[int, ...]) -> Edit:
    return lambda model: replace(model, dims={**model.dims, **changed})


def runtimes(*every: RuntimeSpec) -> Edit:
    return lambda model: replace(model, runtimes=every)


def waivers(*every: Waiver) -> Edit:
    return lambda model: replace(model, waivers=every)


def fields(**changed: Any) -> Edit:
    return lambda model: replace(model, **changed)


def of(base: ModelSpec, **edits: tuple[str, Edit, str]) -> list[Any]:
    return [pytest.param(base, *edit, id=name) for name, edit in edits.items()]


# The edits of one model that ask less, each of an aspect of its own, with what is said of it.
LOOSER: dict[str, tuple[str, Edit, str]] = {
    "required": ("required", fields(required=False), "required: true → false"),
    "auto": ("tolerance", tolerance(auto=30.0), "auto 10 → 30"),
    "atol": ("tolerance", tolerance(atol=1e-3), "atol 1e-05 → 0.001"),
    "rtol": ("tolerance", tolerance(rtol=1.00000001e-4), "rtol 0.0001 → 0.000100000001"),
    "mismatch": ("tolerance", tolerance(mismatch=0.02), "mismatch 0.01 → 0.02"),
    "cosine": ("tolerance", tolerance(cosine=0.9), "cosine 0.99 → 0.9"),
    "snr": ("tolerance", tolerance(snr_db=20.0), "snr_db 30 → 20"),
    "top1": ("tolerance", tolerance(top1=0.8), "top1 0.9 → 0.8"),
    "topk": ("tolerance", tolerance(topk=TopK(5, 0.8)), "topk agreement 0.9 → 0.8"),
    "ulp": ("tolerance", tolerance(max_ulp=5), "max_ulp 4 → 5"),
    "metric": ("tolerance", tolerance(metric="a.b:g"), "metric 'a.b:f' → 'a.b:g'"),
    "max": ("tolerance", tolerance(max=0.2), "max 0.1 → 0.2"),
    "indices": ("tolerance", tolerance(indices="values"), "indices exact → values"),
    "own": ("tolerance", outputs(logits=Tolerance(atol=1e-5, rtol=1e-5)),
            "output 'logits': atol 1e-06 → 1e-05"),
    "own_added": ("tolerance", outputs(scores=replace(STRICT, auto=20.0)),
                  "output 'scores': auto 10 → 20"),
    "seeds": ("suites", suites(typical=RandomSuite("normal", 2, 1)), "count 3 → random normal, co"),
    "edges": ("suites", suites(edges=EdgesSuite(("zeros",))), "suite 'edges': nan, inf dropped"),
    "globs": ("suites", suites(real=FilesSuite(("a/*.npz",))), "files 'b/*.npz' dropped"),
    "generator": ("suites", suites(own=GeneratorSuite("gen.py:less")), "'gen.py:cases' → generat"),
    "plugin": ("suites", suites(other=PluginSuite("fuzz", {"fuzz": 2})), "3} → {"),
    "sizes": ("dims", sizes(batch=(1,)), "batch: sizes 1, 2 → 1"),
    "range": ("other", inputs(x=replace(MODEL.inputs["x"], range=(0.0, 1.0))), "[-1, 1] → [0, 1]"),
    "ranged": ("other", inputs(free=InputSpec("float32", (4,), (0.0, 1.0))), "none → [0, 1]"),
    "dtype": ("other", inputs(ids=InputSpec("int32", ("batch",), (0, 9))),
              "declares another input 'ids': int64[batch] → int32[batch]"),
    "input": ("other", without("inputs", "free"), "no longer declares the input 'free'"),
    "runtime": ("other", runtimes(*MODEL.runtimes[:2]), "runtime 'reference' dropped"),
    "half": ("other", runtimes(*MODEL.runtimes, RuntimeSpec("half", options={"off": True})),
             "runtime half off: 16-bit results are no more rounded as they are stored"),
    "model": ("subject", fields(model="toy.py:f"), "another model: 'nets.py:build' → 'toy.py:f'"),
    "weights": ("subject", fields(weights=WeightsSpec("w.pt")), "other weights: none → 'w.pt'"),
    "args": ("subject", fields(args=(1, "toy")), "verifies other args: none → [1, 'toy']"),
    "kwargs": ("subject", fields(kwargs={"toy": True}), "other kwargs: none → {'toy': True}"),
    "call": ("subject", fields(call={"mode": "easy"}), "another call: none → {'mode': 'easy'}"),
    "seed": ("subject", fields(seed=4), "verifies another seed: 0 → 4"),
    "added": ("subject", inputs(new=InputSpec("bool", ("batch",))), "with the input 'new', too"),
    "waiver": ("waiver", waivers(*MODEL.waivers, Waiver("own/*", DAY, "why")),
               "added: 'own/*', any error until 2030-01-01: 'why'"),
}  # fmt: skip

OTHERS = [
    *of(
        MODEL,
        dropped=("tolerance", tolerance(cosine=None), "cosine 0.99 dropped"),
        replaced=("tolerance", fields(tolerance=Tolerance(atol=1.0)), "atol 1e-05 → 1"),
        other_k=("tolerance", tolerance(topk=TopK(4, 0.9)), "topk k 5 → 4"),
        own_gone=("tolerance", outputs(logits=None), "output 'logits': atol 1e-06 → 1e-05"),
        nameless=("other", fields(outputs=None), "'logits', 'scores' → none"),
        integers=("tolerance", outputs(scores=replace(STRICT, atol=0.0, rtol=1e-5)), "integers"),
        kind=("suites", suites(typical=EdgesSuite(("zeros",))), "normal, count 3 → edges zeros"),
        draws=("suites", suites(typical=RandomSuite("uniform", 9)), "count 3 → random uniform"),
        suite=("suites", without("suites", "real"), "suite 'real' (files 'a/*.npz', files 'b/*."),
        defaults=("suites", fields(suites={}), "'own', 'other' → the default ones"),
        static=("dims", inputs(ids=InputSpec("int64", (2,), (0, 9))), "batch (1, 2) → 2 only"),
        unnamed=("dims", fields(named_dims=frozenset({"seq"})), "the default ones, which PyTorch"),
        product=("dims", sizes(seq=(1, 4, 8, 9, 10)), "combinations of sizes are tried no more"),
        dynamic=(
            "dims",
            lambda m: sizes(n=(1, 2))(inputs(free=InputSpec("float32", ("n",)))(m)),
            "input 'free': 4 → n (1, 2)",
        ),
        rank=("other", inputs(free=InputSpec("float32", (4, 1))), "float32[4] → float32[4, 1]"),
        size=("other", inputs(free=InputSpec("float32", (5,))), "float32[4] → float32[5]"),
        rangeless=("other", inputs(ids=InputSpec("int64", ("batch",))), "[0, 9] → none"),
        lower=(
            "other",
            runtimes(*MODEL.runtimes[::2], RuntimeSpec("onnxruntime", "cuda", "basic")),
            "'onnxruntime:cuda:extended' → 'onnxruntime:cuda:basic': lower optimization",
        ),
        provider=(
            "other",
            runtimes(*MODEL.runtimes[::2], RuntimeSpec("onnxruntime", "dml", "extended")),
            "another provider",
        ),
        own_of_runtime=(
            "other",
            runtimes(
                RuntimeSpec("onnxruntime", tolerance=replace(STRICT, auto=20.0)),
                *MODEL.runtimes[1:],
            ),
            "runtime 'onnxruntime': auto 10 → 20",
        ),
        lenient=(
            "other",
            runtimes(
                *MODEL.runtimes[::2], RuntimeSpec("onnxruntime", "cuda", "extended", strict=False)
            ),
            "strict no more: nodes may run elsewhere",
        ),
        options=(
            "other",
            runtimes(RuntimeSpec("onnxruntime", session_options={"no": "1"}), *MODEL.runtimes[1:]),
            "other session options",
        ),
        explicit=(
            "other",
            runtimes(RuntimeSpec("onnxruntime", optimization="all"), *MODEL.runtimes[1:]),
            "with optimizations off",
        ),
        prolonged=(
            "waiver",
            waivers(replace(MODEL.waivers[0], until=LATER)),
            "'edges/nan/*': until 2030-01-01 → 2031-01-01",
        ),
        ceiling=("waiver", waivers(replace(MODEL.waivers[0], ceiling=0.2)), "ceiling 0.1 → 0.2"),
        unlimited=("waiver", waivers(replace(MODEL.waivers[0], ceiling=None)), "0.1 → none"),
        widened=("waiver", waivers(Waiver("edges/*", DAY, "y", 0.1)), "'edges/nan/*' → 'edges/*'"),
        renamed_under_a_waiver=(
            "suites",
            lambda m: suites(edges2=m.suites["edges"])(without("suites", "edges")(m)),
            "suite 'edges' (edges zeros, nan, inf) dropped",
        ),
        exporter=("other", fields(export=ExportSpec("tools/own.py:export")), "'dynamo' → 'tools/"),
        command=(
            "other",
            fields(export=ExportSpec("command", command="make {output}")),
            "'dynamo' → 'make {output}', a command of the repository's own",
        ),
        opset=("subject", fields(export=ExportSpec(opset=18)), "another export: opset none → 18"),
        unoptimised=("subject", fields(export=ExportSpec(optimize=False)), "optimize none → False"),
        committed=("subject", fields(onnx="toy.onnx"), "'toy.onnx', no longer an export"),
        caches=(
            "subject",
            fields(caches={"past": "dynamic"}),
            "other caches: none → {'past': 'dyn",
        ),
        where=("other", fields(where={"logits": "ids"}), "everywhere → only where 'ids' is not 0"),
        blocks=("other", fields(verify="blocks"), "verify as memory allows → blocks"),
        reference=(
            "other",
            fields(model=None, reference="a.onnx", onnx="b.onnx"),
            "held against the file 'a.onnx', no longer against PyTorch",
        ),
    ),
    *of(
        replace(MODEL, coverage=CoverageSpec(0.9), targets=(Target("onnxruntime", (1, 18)),)),
        coverage=("other", fields(coverage=None), "coverage of decisions: 0.9 → 0"),
        target=("other", fields(targets=()), "→ none"),
    ),
    *of(
        BARE,
        auto=("tolerance", fields(tolerance=Tolerance(atol=1e-3)), "auto 10 replaced by atol 0.00"),
        fewer=("suites", fields(suites={"edges": DEFAULT_SUITES["edges"]}), "'typical' (random no"),
        own=("tolerance", outputs(y=Tolerance(cosine=0.9)), "output 'y': auto 10 replaced by cos"),
    ),
    *of(
        COMMITTED,
        export=("other", fields(onnx=None), "'artifacts/a.onnx' is no longer verified"),
        other=("subject", fields(onnx="toy.onnx"), "another file: 'artifacts/a.onnx' → 'toy.onnx'"),
    ),
    *of(
        replace(MODEL, weights=WeightsSpec("w.pt"), call={"causal": True}, steps=STEPS),
        gone=("subject", fields(weights=None), "verifies other weights: 'w.pt' → none"),
        key=(
            "subject",
            fields(weights=WeightsSpec("w.pt", "ema")),
            "→ {'file': 'w.pt', 'key': 'em",
        ),
        typed=(
            "subject",
            fields(call={"causal": 1}),
            "another call: {'causal': True} → {'causal': ",
        ),
        steps=("other", fields(steps=None), "steps: 3 → none"),
    ),
]

# The edits that ask as much or more, or that the guard leaves to whoever reads the change.
TIGHTER: dict[str, Edit] = {
    "auto": tolerance(auto=5.0),
    "atol": tolerance(atol=1e-6),
    "rtol": tolerance(rtol=None),
    "mismatch": tolerance(mismatch=0.0),
    "cosine": tolerance(cosine=0.999),
    "snr": tolerance(snr_db=31.0),
    "top": tolerance(top1=0.95, topk=TopK(5, 0.95)),
    "ulp": tolerance(max_ulp=3),
    "max": tolerance(max=0.01),
    "own": outputs(logits=Tolerance(atol=1e-7)),
    "own_more": outputs(logits=replace(TIGHT, auto=1.0)),
    "own_added": outputs(scores=replace(STRICT, atol=1e-9, rtol=None, mismatch=0.0)),
    "z_outputs_renamed": lambda m: (
        fields(outputs={"a": m.outputs["logits"], "b": None})(m)
        if m.outputs and "logits" in m.outputs
        else m
    ),
    "z_outputs_moved": lambda m: fields(outputs=dict(reversed(list((m.outputs or {}).items()))))(m),
    "draws": suites(typical=RandomSuite("normal", 4, 9)),
    "edges": suites(edges=EdgesSuite(("inf", "nan", "ones", "zeros"), 3)),
    "globs": suites(real=FilesSuite(("c/*.npz", "b/*.npz", "a/*.npz"))),
    "suite": suites(more=EdgesSuite(("large",))),
    "sizes": sizes(batch=(2, 3, 1)),
    "range": inputs(x=replace(MODEL.inputs["x"], range=(-2.0, 1.0))),
    "runtimes": runtimes(
        RuntimeSpec("onnxruntime", provider="cpu"),
        RuntimeSpec("reference"),
        RuntimeSpec("onnxruntime", provider="cuda", optimization="all"),
        RuntimeSpec("openvino"),
    ),
    "waivers": waivers(Waiver("edges/nan/batch=1*", DAY, "another reason", 0.1)),
    "shorter": waivers(*(replace(w, until=datetime.date(2029, 1, 1)) for w in MODEL.waivers)),
    "rest": fields(timeout=9.0, memory=2**30, line=99),
}

# The keys of an entry that say neither what is verified nor how much is asked of it.
INDIFFERENT = {"name", "timeout", "memory", "given", "portion", "line", "lines"}


@pytest.mark.parametrize(
    ("base", "kind", "edit", "words"),
    [*of(MODEL, **LOOSER), *OTHERS],
)
def test_every_way_to_ask_less_is_told(base: ModelSpec, kind: str, edit: Edit, words: str) -> None:
    head = replace(edit(base), line=40)
    found = changes(base, head)
    told = [change for change in found if words in change.message]
    assert told, found
    assert {(change.kind, change.model, change.line) for change in told} == {(kind, base.name, 40)}


def test_no_key_of_an_entry_is_overlooked() -> None:
    """Whoever adds a key adds it to the guard, or says here that nothing can be hidden in it."""
    every = [*of(MODEL, **LOOSER), *OTHERS]
    edited = {
        each.name
        for base, _, edit, _ in (param.values for param in every)
        for each in dataclass_fields(ModelSpec)
        if getattr(base, each.name) != getattr(edit(base), each.name)
    }
    assert edited | INDIFFERENT == {each.name for each in dataclass_fields(ModelSpec)}
    assert not edited & INDIFFERENT


@given(st.sets(st.sampled_from(sorted(TIGHTER))), st.booleans())
def test_asking_more_is_silent(names: set[str], plain: bool) -> None:
    base = replace(MODEL, waivers=()) if plain else MODEL
    head = base
    for name in sorted(names - ({"waivers", "shorter"} if plain else set())):
        head = TIGHTER[name](head)
    assert changes(base, head) == ()


@given(st.sampled_from(sorted(LOOSER)), st.sets(st.sampled_from(sorted(TIGHTER))))
def test_nothing_hides_behind_what_asks_more(loose: str, tight: set[str]) -> None:
    kind, edit, _ = LOOSER[loose]
    head = MODEL
    for name in sorted(tight):
        head = TIGHTER[name](head)
    assert kind in {change.kind for change in changes(MODEL, edit(head))}


@pytest.mark.parametrize("model", [MODEL, BARE, COMMITTED])
def test_nothing_changed_is_nothing(model: ModelSpec) -> None:
    assert changes(model, model) == ()


def test_models_that_are_gone_or_renamed_come_in_the_order_of_the_base() -> None:
    base = manifest(MODEL, BARE, replace(COMMITTED, name="a"))
    head = manifest(replace(COMMITTED, name="z", line=1), replace(MODEL, required=False, line=4))
    assert [(c.kind, c.model, c.message, c.line) for c in loosened(base, head)] == [
        ("required", "net", "required: true → false", 4),
        ("model", "bare", "removed", None),
        ("model", "a", "removed; a model with the same entry is now called 'z'", None),
    ]


def test_suites_may_be_renamed_split_and_joined() -> None:
    base = replace(MODEL, waivers=())
    head = replace(
        base,
        suites={
            "zero": EdgesSuite(("zeros",)),
            "special": EdgesSuite(("inf", "nan")),
            "one": RandomSuite("normal", 1),
            "two": RandomSuite("normal", 2, 5),
            "files": FilesSuite(("b/*.npz", "a/*.npz")),
            "g": base.suites["own"],
            "h": base.suites["other"],
        },
    )
    assert changes(base, head) == ()
    assert [c.message for c in changes(base, without("suites", "two")(head))] == [
        "suite 'typical' (random normal, count 3) dropped"
    ]
    twice = replace(base, suites={"a": EdgesSuite(("nan",)), "b": RandomSuite("normal", 2)})
    twice = replace(twice, suites={**twice.suites, "c": RandomSuite("normal", 2)})
    once = replace(twice, suites={"n": EdgesSuite(("nan",)), "m": RandomSuite("normal", 3)})
    assert [c.message for c in changes(twice, once)] == [
        "suite 'c' (random normal, count 2) dropped"
    ]


def test_dimensions_are_known_by_their_place() -> None:
    base = replace(MODEL, inputs={"x": InputSpec("float32", ("a", "b")), "y": InputSpec("bool", ("b",))},
                   dims={"a": (1, 2), "b": (1, 2)}, named_dims=frozenset({"a", "b"}))  # fmt: skip

    def head(x: tuple[int | str, ...], y: str, dims: dict[str, tuple[int, ...]]) -> ModelSpec:
        shapes = {"x": InputSpec("float32", x), "y": InputSpec("bool", (y,))}
        return replace(base, inputs=shapes, dims=dims, named_dims=frozenset(dims))

    assert changes(base, head(("n", "m"), "m", {"n": (1, 2), "m": (2, 1)})) == ()
    assert [c.message for c in changes(base, head(("b", "a"), "a", {"a": (1, 2), "b": (2,)}))] == [
        "a → b: sizes 1, 2 → 2"
    ]
    # One name for both: they never differ any more.
    assert [c.message for c in changes(base, head(("n", "n"), "n", {"n": (1, 2)}))] == [
        "2 of 4 combinations of sizes are tried no more, as a=1,b=2"
    ]
    many = {"a": (1, 2, 3, 4), "b": (1, 2, 3)}
    assert [c.message for c in changes(head(("a", "b"), "b", many), head(("a", "a"), "a", many))]


SIZES = st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True).map(tuple)
DIMS = st.fixed_dictionaries({"a": SIZES, "b": SIZES, "c": SIZES})


@given(DIMS, DIMS)
def test_silence_on_sizes_means_that_each_combination_is_tried(
    before: dict[str, tuple[int, ...]], after: dict[str, tuple[int, ...]]
) -> None:
    model = replace(BARE, inputs={"x": InputSpec("float32", tuple(before))})
    found = changes(replace(model, dims=before), replace(model, dims=after))
    dropped = any(set(before[name]) - set(after[name]) for name in before)
    assert not dropped or found
    tried = combinations(before)
    if len(tried) == len(list(itertools.product(*before.values()))) and not found:
        assert all(sizes in combinations(after) for sizes in tried)


def grid(*values: float) -> st.SearchStrategy[Any]:
    return st.sampled_from([None, *values])


@st.composite
def tolerances(draw: st.DrawFn) -> Tolerance:
    atol, rtol = draw(grid(0.0, 1.0, 2.0)), draw(grid(0.0, 0.5))
    close = (atol, rtol) != (None, None)
    metric = draw(st.sampled_from([None, "m:f", "m:g"]))
    made = Tolerance(
        auto=draw(grid(1.0, 10.0)),
        atol=atol,
        rtol=rtol,
        mismatch=draw(st.sampled_from([0.0, 0.4])) if close else 0.0,
        cosine=draw(grid(0.5, 0.9)),
        snr_db=draw(grid(10.0, 20.0)),
        top1=draw(grid(0.5, 1.0)),
        topk=draw(
            st.none() | st.builds(TopK, st.sampled_from([2, 3]), st.sampled_from([0.5, 1.0]))
        ),
        max_ulp=draw(grid(0, 4)),
        metric=metric,
        max=draw(st.sampled_from([0.1, 0.2])) if metric else None,
        indices=draw(st.sampled_from(["values", "exact"])),
    )
    assume(replace(made, indices="values") != Tolerance())
    return made


@dataclass(frozen=True)
class Measured:
    """What a comparison may find; the values of ``topk`` and of metrics by their names."""

    auto: float
    elements: tuple[tuple[float, float], ...]
    minima: dict[str, float]
    topk: dict[int, float]
    ulp: int
    metrics: dict[str, float]


MEASURED = st.builds(
    Measured,
    auto=st.sampled_from([0.5, 5.0, 50.0]),
    elements=st.tuples(*[st.tuples(st.sampled_from([0.0, 0.9, 1.4, 3.0]), st.just(1.0))] * 3),
    minima=st.fixed_dictionaries(
        {"cosine": st.sampled_from([0.4, 0.7, 1.0]), "snr_db": st.sampled_from([5.0, 15.0, 50.0]),
         "top1": st.sampled_from([0.0, 0.7, 1.0])}),
    topk=st.fixed_dictionaries({k: st.sampled_from([0.0, 0.7, 1.0]) for k in (2, 3)}),
    ulp=st.sampled_from([0, 3, 9]),
    metrics=st.fixed_dictionaries({k: st.sampled_from([0.0, 0.15, 1.0]) for k in ("m:f", "m:g")}),
)  # fmt: skip


def accepts(limit: Tolerance, found: Measured) -> bool:
    """The documented meaning of a tolerance: all that is named has to hold."""
    close = True
    if limit.atol is not None or limit.rtol is not None:
        beyond = [d for d, e in found.elements if d > (limit.atol or 0) + (limit.rtol or 0) * e]
        close = len(beyond) / len(found.elements) <= limit.mismatch
    return (
        close
        and (limit.auto is None or found.auto <= limit.auto)
        and all(
            getattr(limit, name) is None or value >= getattr(limit, name)
            for name, value in found.minima.items()
        )
        and (limit.topk is None or found.topk[limit.topk.k] >= limit.topk.agreement)
        and (limit.max_ulp is None or found.ulp <= limit.max_ulp)
        and (limit.metric is None or found.metrics[limit.metric] <= (limit.max or 0))
    )


@given(tolerances(), st.data())
def test_silence_on_a_tolerance_means_that_it_accepts_no_more(
    base: Tolerance, data: st.DataObject
) -> None:
    # Mostly the same tolerance but for one field, so that silence is common.
    other = data.draw(tolerances())
    name = data.draw(st.sampled_from(["auto", "cosine", "snr_db", "top1", "topk", "max_ulp", None]))
    head = other if name is None else replace(base, **{name: getattr(other, name)})
    found = data.draw(MEASURED)
    if not list(looser(base, head)):
        assert accepts(base, found) or not accepts(head, found)


@given(tolerances(), tolerances())
def test_of_two_different_tolerances_one_is_looser(one: Tolerance, two: Tolerance) -> None:
    def meant(limit: Tolerance) -> Tolerance:
        close = (limit.atol, limit.rtol) != (None, None)
        return replace(limit, atol=limit.atol or 0.0, rtol=limit.rtol or 0.0) if close else limit

    differ = meant(one) != meant(two)
    assert bool([*looser(one, two), *looser(two, one)]) == differ


PATTERNS = [
    "".join(letters) for n in (1, 2, 3) for letters in itertools.product("a*/?[]", repeat=n)
]
PATTERNS += [
    "a/b/**",
    "a/b/*/",
    "a/*/*/",
    "a/*/*",
    "a/**",
    "*/a/*",
    "*a*",
    "[ab]",
    "[ab]*",
    "a/[ab]/a",
    "*]b",
    "[a]b",
]
IDS = [
    "/".join(parts) for n in (2, 3) for parts in itertools.product(["a", "b", "ab", "aa"], repeat=n)
]


def test_a_waiver_covers_another_only_where_it_matches_all_of_it() -> None:
    matched = {pattern: {case for case in IDS if matches(case, pattern)} for pattern in PATTERNS}
    for wide, narrow in itertools.product(PATTERNS, PATTERNS):
        assert not covers(wide, narrow) or matched[wide] >= matched[narrow], (wide, narrow)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("*", "edges/[ab]?"),
        ("edges", "edges/large"),
        ("edges/*", "edges"),
        ("edges/*", "edges/large/*"),
        ("edges/*/", "edges/large/batch=2/"),
        ("*/batch=1*", "edges/*/batch=1,seq=?"),
        ("edges/lar?e", "edges/lar?e/"),
    ],
)
def test_a_waiver_covers_those_below_it(wide: str, narrow: str) -> None:
    assert covers(wide, narrow)


def test_manifests_are_compared_without_their_files() -> None:
    base = b"""
version: 1
requirements: requirements.txt
suites:
  real: {files: "data/*.npz"}
  fuzzed: {fuzz: 3, seed: 1}
tolerances: {close: {atol: 1.0e-5, metric: "metrics.py:f", max: 1}}
defaults: {tolerance: close, suites: [real, fuzzed], runtimes: [engine_of_another_package]}
models:
  a: {model: "nets.py:a", inputs: {x: "float32[n]"}, weights: w.pt}
  b: {model: "nets.py:b", inputs: {x: "float32[n]"}, onnx: b.onnx}
"""
    head = base.replace(b"1.0e-5", b"1.0e-3").replace(b", onnx: b.onnx", b"")
    head = head.replace(b"weights: w.pt", b"weights: w.pt, verify: blocks")
    found = loosened(*(load_bytes(text, Path("nowhere/onnx-gate.yml")) for text in (base, head)))
    assert [(c.model, c.kind, c.line, c.message) for c in found] == [
        ("a", "tolerance", 10, "atol 1e-05 → 0.001"),
        (
            "a",
            "other",
            10,
            "verify as memory allows → blocks: each block is run alone, no inputs are looked for, and "
            "nothing is optimised across blocks",
        ),
        ("b", "tolerance", 11, "atol 1e-05 → 0.001"),
        ("b", "other", 11, "the committed file 'b.onnx' is no longer verified: an export is"),
    ]
