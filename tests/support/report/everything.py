"""A report in which every field that can hold free text does, and what it takes to replace it.

The fields are found by walking the types: one that is added later has to be filled in here, and is
attacked from then on.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from onnx_gate.findings.finding import Finding
from onnx_gate.known import Known
from onnx_gate.report.model import (
    Baseline,
    Change,
    CheckBase,
    Commit,
    DividedModel,
    Held,
    Metrics,
    ModelError,
    ModelResult,
    Portion,
    Problem,
    Report,
    Run,
    RuntimeResult,
    Sandbox,
    Shard,
)
from onnx_gate.report.model.audit import Audit, ManifestChange, Mutant, Share, Site, Unseen
from onnx_gate.report.model.diagnosis import Diagnosis, Precision
from onnx_gate.report.model.remedy import SettingChange
from onnx_gate.report.model.since import LinkAnswer, Package, Since
from tests.support.report.reports import check
from tests.support.report.scenes import model, whole

Path = tuple[str | int, ...]
KEY = "a key of a mapping"


@functools.cache
def everything() -> Report:
    metrics = Metrics(elements=8, max_abs=1.0, max_rel=1.0, rms=1.0, criteria={"cosine": 0.5})
    bad = check(
        "edges/zeros",
        "diverged",
        budget=41.0,
        seconds=0.25,
        metrics=metrics,
        reason="too far",
        base=CheckBase(verdict="pass", error=1e-3),
    )
    findings = tuple(
        Finding(
            code="OG102",
            severity=severity,
            message="found",
            file="models/a.py",
            line=3,
            data={"dimension": "batch"},
        )
        for severity in ("error", "warning", "note")
    )
    nowhere = Finding(code="OG102", severity="error", message="found")
    shapeless = check(
        "edges/ones",
        "diverged",
        metrics=None,
        worst=None,
        deviation=None,
        reason="shape",
        budget=1,
        edge="ones",
        block="layers.0",
        form="shape",
        sizes={"batch": 2},
        refused=("runtime",),
        causes=("rounding",),
        refusal={"node": "n"},
    )
    known = {
        "title": "wrong",
        "link": "c",
        "package": "torch",
        "fixed": "2.14",
        "workaround": "cast",
    }
    node = {"name": "n", "op_type": "Softmax", "output": "softmax", "module": "blocks.3.attn"}
    diagnosis = Diagnosis.model_validate(
        {
            "runtime": "onnxruntime",
            "case": "edges/zeros",
            "output": "logits",
            "blame": "exporter",
            "evidence": ({"experiment": "tried", "outcome": "agrees", "agrees": True},),
            "node": node,
            "fused_by": "GeluFusion",
            "cause": "swapped",
            "remedy": "swap",
            "source": {"file": "models/a.py", "line": 3, "code": "x.softmax()"},
            "nodes": ({**node, "error": 1.0, "born": 0.5},),
            "nonfinite": {**node, "dtype": "float32", "made": math.inf, "of": (89.0,)},
            "repro": "repro/bert",
            "replay": ("--runtime", "openvino", "--device", "CPU"),
            "hints": ("OG102",),
            "note": "no float64",
            "known": known,
            "pictures": {
                "scale": 1.0,
                "allowed": 1e-6,
                "histogram": [0, 0, 0, 5, 0, 0, 2, 1, 0, 0],
                "pairs": [(0.5, 0.5), (1.0, 1.5)],
                "map": [(0.5, 2e6), (0.0, 20.0)],
                "map_of": (2, 2),
            },
        }
    )
    layer = {**node, "snr_db": 12.5, "total_db": 11.0, "gain": 1.5, "source": diagnosis.source}
    proposal = {
        "output": "logits",
        "checks": 6,
        "case": "typical/0",
        "cosine": 0.9995,
        "snr_db": 30.0,
        "top1": 1.0,
        "margin_db": 1.0,
        "draws": 1,
        "tolerance": {"cosine": 0.999, "snr_db": 29.0},
    }
    reduced = {
        "how": "static",
        "dtype": "int8",
        "operators": {"QuantizeLinear": 4},
        "proposals": (proposal, {**proposal, "output": "hidden"}),
        "names": {"logits": "linear_4", "hidden": "cat_2"},
        "layers": (layer,),
        "saturated": ({**node, "share": 0.24, "ends": (-1.5, 6.0), "source": diagnosis.source},),
    }
    operators = {"exporter": "dynamo", "opset": 20, "bytes": 1, "nodes": 1, "operators": {"Mul": 1}}
    operators["files"] = {"model.onnx": "9f86d081884c7d65"}
    return whole(
        model(
            "bert",
            bad,
            shapeless,
            verdict="diverged",
            base="pass",
            findings=findings,
            line=4,
            seconds=4.5,
            peak_memory=3 << 29,
            diagnosis=diagnosis,
            further=(diagnosis.model_copy(update={"runtime": "openvino"}),),
            # One: the columns of several are by name, of which other texts would make one.
            runtimes=(
                RuntimeResult(
                    runtime="onnxruntime",
                    seconds=1.5,
                    error=ModelError(
                        kind="runtime",
                        code="OG302",
                        message="x",
                        remedy="z",
                        line=9,
                        log="b",
                        tail=("y",),
                        known=Known.model_validate(known),
                    ),
                ),
            ),
            precision=Precision.model_validate(reduced | {"suspect": layer}),
            headroom={
                "dtype": "float16",
                "limit": 65504.0,
                "of": 2,
                "values": ({**node, "largest": 4e5, "small": 0.1},),
                "first": {**node, "largest": 4e5, "small": 0.1, "source": diagnosis.source},
                "summed": {**node, "largest": 1e5, "small": 0.0},
                "in_float32": ("node_sum",),
            },
            audit=audited(),
            decisions={
                "seen": 1,
                "of": 2,
                "before": 1,
                "never": [
                    {
                        "module": "m",
                        "operator": "clamp",
                        "never": ["below"],
                        "source": diagnosis.source,
                    }
                ],
            },
            remedies={
                "held": [
                    {
                        "kind": "source",
                        "changes": [{"key": "export", "value": {"exporter": "dynamo"}}],
                        "rewrite": "where",
                        "file": "a.onnx",
                        "made": "remedies/bert/made.onnx",
                        "edits": [{"file": "a.py", "line": 3, "old": ["x"], "new": ["y"]}],
                        "patch": "--- a/a.py\n+++ b/a.py\n@@ -3 +3 @@\n-x\n+y\n",
                        "files": {"a.py": "9f86d081"},
                        "compared": 3,
                    }
                ],
                "fresh": {"writer": "release.py", "export": {"exporter": "dynamo"}},
                "tried": 2,
                "left": 1,
                "seconds": 4.5,
            },
            answers={"folder": "bert", "sha256": "0123", "bytes": 7},
            weights={"total": 2, "same": 1, "unknown": [{"name": "w", "parameter": "p"}]},
        ),
        ModelResult(
            name="gpt",
            verdict="error",
            portion=Portion(index=1, count=2, of="0123"),
            environment={"torch": "2.13.0", "providers": ["CPUExecutionProvider"]},
            error=ModelError(
                kind="export",
                code="OG201",
                message="bad\nworse",
                remedy="mend",
                changes=(SettingChange(key="inputs.ids.dtype", value="int64"),),
                log="a.log",
                tail=("x", "y"),
                known=Known.model_validate(known),
            ),
        ),
        # One stage in all: those of one name are one row.
        model(
            "resnet",
            base="diverged",
            precision=Precision.model_validate(reduced),
            audit=audited(),
            reference="a.onnx",
            findings=findings,
            export=operators,
            stages=(),
        ),
        model("wrong", verdict="diverged", checks=(), findings=(nowhere,), stages=()),
        environment={
            "torch": "2.9.1",
            "onnxruntime": "1.31",
            "cpu_capability": "AVX2",
            "machine": "x86_64",
            "providers": ["CPU"],
            "nested": {"deep": ["text"]},
            "replaced": {"torch": ["2.13.0", "2.9.1"], "numpy": ["2.0", "1.26"]},
        },
        problems=(
            Problem(message="bad", file="onnx-gate.yml", line=12, column=7, path="models.bert"),
            Problem(message="lost", file="elsewhere.yml", line=3, path="dims", tail=("pip", "!")),
        ),
        changes=(Change(kind="tolerance", model="bert", message="atol", line=9),),
        baseline=Baseline(sha="4f1c2e9", run=1),
        shard=Shard(
            index=1,
            count=2,
            members=("one", "two"),
            plan="the plan",
            divided=(DividedModel(name="two", index=1, count=2),),
        ),
        sandbox=Sandbox(level="partial", missing=("seccomp",)),
        run=Run(id=17, attempt=1, sha="4f1c2e9"),
        commit=Commit(sha="4f1c2e9"),
        held=Held(sha256="0123", verdict="pass", environment={"torch": "2.13.0"}),
        since=Since(
            out_of_time=True,
            base_file="base.txt",
            head_file="head.txt",
            packages=(
                Package(name="onnxscript", old="0.7.1", new="0.7.2"),
                Package(name="numpy", new="2.3"),
            ),
            answers=(
                LinkAnswer(
                    model="bert",
                    link="pytorch",
                    before="pass",
                    verdict="pass",
                    share=0.1,
                    share_before=0.1,
                ),
                LinkAnswer(
                    model="bert",
                    link="export",
                    before="pass",
                    verdict="diverged",
                    share=41.0,
                    share_before=0.7,
                    output="y",
                    case="edges/large",
                    reason="too far",
                    packages=("numpy", "onnxscript"),
                    sure=False,
                ),
            ),
            runs=7,
        ),
        notes=("a note", "another"),
        seconds=9.5,
    )


def audited() -> Audit:
    """An audit with a survivor that something catches, one that nothing does, and a caught fault."""
    site = Site(name="node_3", op_type="Conv", file="a.py", line=3, code="x = conv(x)")
    survivor = Mutant(
        id="pads@3.0x1",
        fault="pads",
        kind="operators",
        words="its pads are [0, 1]",
        source="https://github.com/a/b/issues/1",
        site=site,
        fate="survived",
        moved=12.5,
        answers="9f",
        change=0,
    )
    where = {"runtime": "onnxruntime", "case": "typical/0", "output": "y", "reason": "too far off"}
    share = Share(name="operators", caught=1, of=3, low=0.1, high=0.8)
    return Audit(
        sites=9,
        score=share.model_copy(update={"name": "all"}),
        kinds=(share,),
        mutants=(
            survivor,
            survivor.model_copy(
                update={"change": None, "site": Site(name="image"), "unseen": unseen("original")}
            ),
            survivor.model_copy(update={"change": None, "unseen": unseen("where")}),
            survivor.model_copy(update={"fate": "caught", **where}),
            survivor.model_copy(update={"fate": "equivalent", "by": "float64"}),
        ),
        changes=(ManifestChange(key="tolerance", value={"auto": 10}, catches=1),),
        note="a note",
    )


def unseen(why: str) -> Unseen:
    """Why nothing catches a survivor."""
    return Unseen.model_validate(
        {
            "why": why,
            "runtime": "onnxruntime",
            "case": "typical/0",
            "output": "logits",
            "budget": 0.3,
            "original": 0.4,
            "key": "tolerance",
            "tolerance": {"cosine": 0.9},
            "subject": "mask",
        }
    )


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every path to a text; those to a mapping's keys end in ``KEY``."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from leaves(item, (*path, place))


@functools.cache
def free_paths() -> tuple[Path, ...]:
    """The paths of ``everything`` that take any text at all."""
    found = []
    for path in leaves(everything().model_dump()):
        try:
            replaced({path: "any text"})
        except ValidationError:
            continue
        found.append(path)
    return tuple(found)


def fixed_names() -> set[str]:
    """The names of the fields that take certain words only."""
    paths = set(leaves(everything().model_dump())) - set(free_paths())
    return {str([part for part in path if isinstance(part, str)][-1]) for path in paths}


def replaced(texts: dict[Path, str]) -> Report:
    """``everything`` with other texts at some paths."""
    data = everything().model_dump()
    for path, text in texts.items():
        at: Any = data
        for part in path[:-1]:
            if isinstance(at[part], tuple):
                at[part] = list(at[part])
            at = at[part]
        at[path[-1]] = text
    return Report.model_validate(data)


def all_replaced(text: str) -> Report:
    """``everything`` with ``text`` wherever any text may be."""
    return replaced(dict.fromkeys(free_paths(), text))


def rekeyed(text: str) -> Report:
    """``everything`` with ``text`` in every key of a free mapping."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {f"{text}{number}": walk(item) for number, item in enumerate(value.values())}
        return [walk(item) for item in value] if isinstance(value, list) else value

    report = everything()
    models = []
    for each in report.models:
        export = each.export
        if export is not None:
            export = export.model_copy(update={"operators": {text: 1}})
        checks = tuple(
            c.model_copy(
                update={
                    "tolerance": walk(c.tolerance),
                    "metrics": c.metrics and c.metrics.model_copy(update={"criteria": {text: 1.0}}),
                }
            )
            for c in each.checks
        )
        told = {"environment": walk(each.environment), "export": export, "checks": checks}
        models.append(each.model_copy(update=told))
    environment = walk(report.environment) | {"replaced": walk(report.environment["replaced"])}
    return report.model_copy(update={"environment": environment, "models": tuple(models)})


def text_fields() -> set[tuple[str, str]]:
    """Every (type, field) reachable from a report whose type has free text in it."""
    found: set[tuple[str, str]] = set()
    seen: set[type[BaseModel]] = set()

    def walk(kind: type[BaseModel]) -> None:
        if kind in seen:
            return
        seen.add(kind)
        for name, field in kind.model_fields.items():
            for part in _parts(field.annotation):
                if part in (str, Any):
                    found.add((kind.__name__, name))
                elif isinstance(part, type) and issubclass(part, BaseModel):
                    walk(part)

    walk(Report)
    return found


def filled_fields(value: Any = None) -> set[tuple[str, str]]:
    """Every (type, field) that holds a text in ``everything``."""
    value = everything() if value is None else value
    found: set[tuple[str, str]] = set()
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            item = getattr(value, name)
            if _holds_text(item):
                found.add((type(value).__name__, name))
            found |= filled_fields(item) if item is not None else set()
    elif isinstance(value, list | tuple):
        for item in value:
            found |= filled_fields(item)
    return found


def _parts(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Literal:
        return
    yield annotation
    for part in get_args(annotation):
        yield from _parts(part)


def _holds_text(value: Any) -> bool:
    if isinstance(value, dict):
        return bool(value)
    if isinstance(value, list | tuple):
        return any(isinstance(item, str) for item in value)
    return isinstance(value, str)


HUGE = [10**5000, -(10**400), math.inf, math.nan]
