"""A report made by hand, with one of everything."""

from __future__ import annotations

import math

from onnx_gate.findings.finding import Finding
from onnx_gate.report.model import (
    Check,
    Counts,
    Deviation,
    ExportInfo,
    ManifestInfo,
    Metrics,
    ModelError,
    ModelResult,
    Report,
    Stage,
    Worst,
)


def check(case: str, verdict: str = "pass", **changes: object) -> Check:
    values: dict[str, object] = {
        "runtime": "onnxruntime",
        "suite": case.split("/")[0],
        "case": case,
        "output": "logits",
        "verdict": verdict,
        "budget": 0.4,
        "tolerance": {"auto": 10.0, "basis": "float64", "allowed": 1.2e-6},
        "deviation": Deviation(value=4.8e-7, allowed=1.2e-6),
        "metrics": Metrics(elements=8, max_abs=3e-7, max_rel=1e-6, rms=1e-7),
        "worst": Worst(index=(0, 3), expected=1.0, actual=1.0000003),
        **changes,
    }
    return Check.model_validate(values)


def report(name: str = "tiny_bert", text: str = "NaN at [0, 3] where PyTorch has 1") -> Report:
    broken = Metrics(elements=8, max_abs=0.0, max_rel=0.0, rms=0.0, nonfinite=2, snr_db=math.inf)
    diverged = ModelResult(
        name=name,
        verdict="diverged",
        stages=(Stage(name="export", seconds=1.25), Stage(name="verify", seconds=0.5)),
        export=ExportInfo(exporter="dynamo", opset=20, bytes=4096, nodes=12),
        findings=(Finding(code="OG102", severity="error", message=f"baked: {text}"),),
        checks=(
            check("typical/batch=2/0"),
            check(
                "edges/zeros/batch=2",
                "diverged",
                output=name,
                budget=math.inf,
                deviation=Deviation(value=math.inf, allowed=0.0),
                metrics=broken,
                worst=Worst(index=(0, 3), expected=1.0, actual=math.nan),
                reason=text,
            ),
            check("advice/nan", "diverged", advice=True, reason="not shown"),
        ),
    )
    failed = ModelResult(
        name=f"{name}-2",
        verdict="error",
        required=False,
        error=ModelError(
            kind="export", code="OG207", message=f"failed\n{text}", log="logs/a.log", tail=(text,)
        ),
    )
    passed = ModelResult(
        name="resnet",
        verdict="pass",
        stages=(Stage(name="verify", seconds=2.0),),
        export=ExportInfo(exporter="dynamo", opset=20, bytes=4096, nodes=12),
        checks=(check("typical/batch=2/0"), check("typical/batch=1/0", "waived", reason="known")),
    )
    return Report(
        verdict="diverged",
        counts=Counts.model_validate({"pass": 1, "diverged": 1, "error": 1}),
        environment={
            "torch": "2.13.0+cpu",
            "onnxruntime": "1.31.1",
            "cpu_capability": "AVX2",
            "machine": "x86_64",
        },
        manifest=ManifestInfo(path="onnx-gate.yml", sha256="0" * 64),
        models=(diverged, failed, passed),
    )
