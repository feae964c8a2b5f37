"""Reports made by hand for the renderings: one for each thing a pull request can come to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from onnx_gate.findings.finding import Finding
from onnx_gate.report.model import (
    Baseline,
    Change,
    Check,
    CheckBase,
    Deviation,
    ExportInfo,
    ManifestInfo,
    Metrics,
    ModelError,
    ModelResult,
    Problem,
    Report,
    Sandbox,
    Shard,
    Stage,
    Worst,
)
from onnx_gate.report.model.diagnosis import Diagnosis, Evidence, GraphNode, NodeError, Source
from onnx_gate.report.render.markdown import View
from tests.support.report.reports import check

SHA = "9b7d0c1e" * 5
VIEW = View(
    repository_url="https://github.example/acme/vision",
    sha=SHA,
    base="main@4f1c2e9",
    run_url="https://github.example/acme/vision/actions/runs/17301",
    run_label="Run #17301",
    report_url="https://github.example/acme/vision/actions/runs/17301#artifacts",
    manifest_path="ml/onnx-gate.yml",
)
ENVIRONMENT = {
    "torch": "2.13.0",
    "onnxruntime": "1.31.1",
    "cpu_capability": "AVX2",
    "machine": "x86_64",
}


NOTHING: dict[str, Any] = {"metrics": None, "worst": None, "deviation": None, "budget": 2.0}


def far(error: float, base: float | None, budget: float) -> dict[str, Any]:
    """A check that is ``error`` away, and was ``base`` away."""
    metrics = Metrics(elements=8, max_abs=error, max_rel=error, rms=error)
    before = CheckBase(verdict="pass", error=base, budget=0.1) if base is not None else None
    worst = Worst(index=(0, 3), expected=0.25, actual=0.25 + error)
    deviation = Deviation(value=error, allowed=error / budget)
    return {
        "deviation": deviation,
        "metrics": metrics,
        "base": before,
        "budget": budget,
        "worst": worst,
    }


def model(name: str, *checks: object, verdict: str = "pass", **changes: object) -> ModelResult:
    values: dict[str, object] = {
        "name": name,
        "verdict": verdict,
        "stages": (Stage(name="verify", seconds=2.0),),
        "export": ExportInfo(exporter="dynamo", opset=20, bytes=4096, nodes=12),
        "checks": checks or (check("typical/batch=2/0"),),
        **changes,
    }
    return ModelResult.model_validate(values)


def whole(*models: ModelResult, **changes: object) -> Report:
    verdicts = [each.verdict for each in models]
    values: dict[str, object] = {
        "verdict": next((v for v in ("error", "diverged", "pass") if v in verdicts), "error"),
        "environment": ENVIRONMENT,
        "manifest": ManifestInfo(path="onnx-gate.yml", sha256="0123456789ab" + "0" * 52),
        "models": models,
        **changes,
    }
    counts = {v: verdicts.count(v) for v in ("pass", "diverged", "error")}
    return Report.model_validate({**values, "counts": counts})


def passing() -> Report:
    warned = Finding(code="OG103", severity="warning", message="float64 input, issue #12, @octo")
    return whole(model("resnet18"), model("tiny_bert", findings=(warned,)), verdict="pass")


def diverged() -> Report:
    baked = Finding(
        code="OG102",
        severity="error",
        message="the size of 'batch' is baked into the graph",
        file="models/attention.py",
        line=88,
    )
    bert = model(
        "tiny_bert",
        check(
            "edges/large/batch=2",
            "diverged",
            output="pooled",
            reason="error 0.039 where 1.2e-06 is allowed",
            **far(3.9e-2, 4.9e-6, 3.2e4),
        ),
        check(
            "edges/ties/batch=2",
            "diverged",
            reason="shape [2, 4] where PyTorch has [2, 3]",
            form="shape",
            **NOTHING,
        ),
        verdict="diverged",
        base="pass",
        findings=(baked,),
    )
    better = model(
        "detector",
        check("typical/0", "diverged", **far(1e-3, 1e-2, 41.0)),
        verdict="diverged",
        required=False,
        base="diverged",
    )
    known = Diagnosis(
        runtime="onnxruntime",
        case="typical/0",
        output="logits",
        blame="exporter",
        source=Source(file="models/gpt.py", line=7, code="x = gelu(self.fc(x))"),
        evidence=(
            Evidence(
                experiment="ONNX Runtime without optimisations against PyTorch",
                outcome="differs by 1.0e-03",
                agrees=False,
                error=1e-3,
            ),
            Evidence(
                experiment="the exported program against PyTorch", outcome="equal", agrees=True
            ),
        ),
        node=GraphNode(name="node_gelu", op_type="Gelu", output="gelu", module="mlp.act"),
        nodes=tuple(
            NodeError(name=f"n{i}", op_type=op, module="mlp", error=error, born=born)
            for i, (op, error, born) in enumerate(
                [
                    ("MatMul", 1e-7, 1e-7),
                    ("Add", 2e-7, 0.0),
                    ("Gelu", 1e-3, 1e-3),
                    ("MatMul", 9e-4, 1e-7),
                    ("Softmax", math.inf, None),
                ]
            )
        ),
        guilty=2,
        repro="repro/gpt/typical-0",
        hints=("OG602",),
        note="two nodes have no counterpart in PyTorch",
    )
    apart = check("typical/0", "diverged", **far(1e-3, None, 12.0))
    new = model("gpt", apart, verdict="diverged", diagnosis=known)
    lost = model(
        "whisper",
        verdict="error",
        base="pass",
        checks=(),
        line=31,
        error=ModelError(kind="export", code="OG201", message="aten::foo has no translation\nx"),
    )
    same = model("resnet18", check("typical/0", **far(2e-7, 2e-7, 0.2)), base="pass")
    mended = model("unet", base="diverged")
    environment = {**ENVIRONMENT, "torch": "2.9.1", "replaced": {"torch": ["2.13.0", "2.9.1"]}}
    return whole(
        same,
        better,
        bert,
        mended,
        new,
        lost,
        baseline=Baseline(sha="4f1c2e9" + "0" * 33, run=17),
        sandbox=Sandbox(level="full", uid=1001, landlock=5, seccomp=True),
        environment=environment,
    )


def invalid() -> Report:
    return whole(
        verdict="error",
        environment={},
        problems=(
            Problem(
                message="unknown key 'atoll'; did you mean 'atol'?",
                file="onnx-gate.yml",
                line=12,
                column=7,
                path="models.resnet18.tolerance",
            ),
            Problem(message="not a mapping", file="onnx-gate.yml", line=20, column=1),
        ),
    )


def loosened() -> Report:
    return whole(
        model("resnet18", line=4),
        verdict="pass",
        changes=(
            Change(kind="tolerance", model="resnet18", message="atol: 1e-4 -> 1e-2", line=9),
            Change(kind="model", model="unet", message="is no longer verified"),
        ),
    )


def sharded() -> Report:
    return whole(
        model("resnet18"),
        verdict="error",
        shard=Shard(index=2, count=4),
        problems=(Problem(message="shard 3 of 4 left no report"),),
        notes=("2 results are from the cache",),
    )


def unsandboxed() -> Report:
    box = Sandbox(
        level="partial", uid=65534, missing=("seccomp: the kernel refuses filters", "Landlock")
    )
    return whole(model("resnet18"), verdict="pass", sandbox=box)


def compared() -> Report:
    """Every way to stand against a baseline."""

    def beside(case: str, verdict: str, error: float, base: str, before: float) -> Check:
        found = far(error, None, error * 10)
        found["base"] = CheckBase.model_validate(
            {"verdict": base, "error": before, "budget": before * 10}
        )
        return check(case, verdict, **found)

    return whole(
        model(
            "worse",
            beside("typical/0", "diverged", 0.18, "pass", 0.1),
            beside("typical/1", "pass", 0.02, "pass", 0.02),
            verdict="diverged",
            base="pass",
            line=3,
        ),
        model("mended", beside("typical/0", "pass", 0.05, "diverged", 0.5), base="diverged"),
        model("new", check("typical/0", "diverged", **far(0.2, None, 2.0)), verdict="diverged"),
        model("new-and-right", check("typical/0")),
        model("same", beside("typical/0", "pass", 0.05, "pass", 0.05), base="pass"),
        model(
            "lost",
            verdict="error",
            base="diverged",
            checks=(),
            export=None,
            error=ModelError(kind="export", code="OG201", message="aten::foo has no translation"),
        ),
        model(
            "still",
            beside("typical/0", "diverged", 0.2, "diverged", 0.4),
            verdict="diverged",
            base="diverged",
            required=False,
        ),
        baseline=Baseline(sha="4f1c2e9" + "0" * 33, run=17),
    )


def timed() -> Report:
    def took(*seconds: float) -> tuple[Stage, ...]:
        names = ("build", "export", "verify|*compare*")
        return tuple(Stage(name=n, seconds=s) for n, s in zip(names, seconds, strict=False))

    slow = model("bert", stages=took(1.5, 100.25, 20.5), seconds=123.5, peak_memory=3 << 29)
    parts = (Stage(name="verify: inputs", seconds=0.03), Stage(name="verify: float64", seconds=0.1))
    quick = model("mlp", stages=(*took(0.001, 0.5), *parts), seconds=0.66)
    kept = model("gpt", stages=took(9.0, 9.0), seconds=19.0, cached=True)
    killed = model(
        "whisper",
        verdict="error",
        checks=(),
        stages=(),
        seconds=600.0,
        export=None,
        error=ModelError(kind="timeout", code="OG502", message="over its time limit of 600 s"),
    )
    return whole(slow, quick, kept, killed, seconds=4000.0)


SCENES: dict[str, tuple[Callable[[], Report], View]] = {
    "pass": (passing, VIEW),
    "diverged": (diverged, VIEW),
    "invalid": (invalid, VIEW),
    "loosened": (loosened, VIEW),
    "sharded": (sharded, VIEW),
    "sandbox": (unsandboxed, View()),
    "compared": (compared, View()),
    "timed": (timed, View()),
}
