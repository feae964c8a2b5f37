"""ONNX Runtime's execution providers: their options, and which nodes each was given. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.text import listed

CPU = "CPUExecutionProvider"
_CUDA = "CUDAExecutionProvider"
_TENSORRT = "TensorrtExecutionProvider"
NVIDIA = (_CUDA, _TENSORRT)

# Options with which a provider computes in fewer bits than the file says.
_SHORTENING: Mapping[str, str] = {
    "use_tf32": "TF32",
    "trt_fp16_enable": "float16",
    "trt_bf16_enable": "bfloat16",
    "trt_int8_enable": "int8",
    "enable_fp16": "float16",
    "enable_htp_fp16_precision": "float16",
}
_PRECISION = "precision"
_FULL = ("fp32", "f32", "accuracy")
_ON = ("1", "true", "True")
_SHOWN = 5


def settings(provider: str, given: Mapping[str, str], caches: Path) -> dict[str, str]:
    """Return the options of a provider: float32 unless asked otherwise, its caches in ``caches``.

    CUDA multiplies in TF32 on its own, and TensorRT writes its engines to the working directory.
    """
    options = dict(given)
    if provider == _CUDA:
        options.setdefault("use_tf32", "0")
    if provider == _TENSORRT:
        for kind in ("engine", "timing"):
            if options.get(f"trt_{kind}_cache_enable") in _ON:
                options.setdefault(f"trt_{kind}_cache_path", str(caches / "tensorrt"))
    return options


def shortened(label: str, given: Mapping[str, str]) -> list[Finding]:
    """Return a note for each option that asks for fewer bits."""
    asked = {key: _SHORTENING[key] for key in given if key in _SHORTENING and given[key] in _ON}
    if given.get(_PRECISION, "").lower() not in ("", *_FULL):
        asked[_PRECISION] = given[_PRECISION]
    return [
        codes.OG309.finding(
            f"{label} computes in {dtype}, as the manifest asks: {key}", data={"precision": dtype}
        )
        for key, dtype in sorted(asked.items())
    ]


def elsewhere(label: str, provider: str, subgraphs: Iterable[Any]) -> tuple[int, list[Finding]]:
    """Return how many nodes the provider has, and a note on those that it left to others.

    ``subgraphs`` are ONNX Runtime's: each has its provider's name and its nodes.
    """
    own, others = 0, Counter[str]()
    for subgraph in subgraphs:
        types = [node.op_type for node in subgraph.get_nodes()]
        if subgraph.ep_name == provider:
            own += len(types)
        else:
            others.update(types)
    if not others:
        return own, []
    elsewhere = (f"{count} {name}" for name, count in others.most_common())
    return own, [
        codes.OG309.finding(
            f"{label}: {others.total()} of {own + others.total()} nodes do not run on {provider}: "
            f"{listed(elsewhere, _SHOWN, 'operators')}",
            data={"provider": provider, "elsewhere": dict(others)},
        )
    ]
