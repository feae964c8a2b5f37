"""The manifest: what the user wrote, checked and resolved; nothing here imports torch."""

from onnx_gate.manifest.load import load
from onnx_gate.manifest.problems import ManifestError, Problem
from onnx_gate.manifest.spec import (
    BUILT_IN_SUITES,
    DEFAULT_SIZES,
    DTYPES,
    EDGE_KINDS,
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
    Suite,
    Tolerance,
    TopK,
    Waiver,
)

__all__ = [
    "BUILT_IN_SUITES",
    "DEFAULT_SIZES",
    "DTYPES",
    "EDGE_KINDS",
    "EdgesSuite",
    "ExportSpec",
    "FilesSuite",
    "GeneratorSuite",
    "InputSpec",
    "Manifest",
    "ManifestError",
    "ModelSpec",
    "PluginSuite",
    "Problem",
    "RandomSuite",
    "RuntimeSpec",
    "Suite",
    "Tolerance",
    "TopK",
    "Waiver",
    "load",
]
