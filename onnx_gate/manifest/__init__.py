"""The manifest: what the user wrote, checked and resolved; nothing here imports torch."""

from onnx_gate.manifest.load import load
from onnx_gate.manifest.problems import ManifestError, ManifestProblem
from onnx_gate.manifest.spec import DEFAULT_SIZES, Manifest, ModelSpec
from onnx_gate.manifest.values.coverage import CoverageSpec
from onnx_gate.manifest.values.exports import COMMAND, EXPORTERS, ExportSpec
from onnx_gate.manifest.values.inputs import InputSpec
from onnx_gate.manifest.values.runtimes import OPTIMIZATIONS, Optimization, RuntimeSpec
from onnx_gate.manifest.values.shapes import DTYPES
from onnx_gate.manifest.values.steps import Feed, StepsSpec
from onnx_gate.manifest.values.suites import (
    ADVICE_SUITES,
    BUILT_IN_SUITES,
    DEFAULT_SUITES,
    EDGE_KINDS,
    EdgesSuite,
    FilesSuite,
    GeneratorSuite,
    PluginSuite,
    RandomSuite,
    Suite,
)
from onnx_gate.manifest.values.tolerances import Tolerance, TopK
from onnx_gate.manifest.values.waivers import Waiver
from onnx_gate.manifest.values.weights import WeightsSpec

__all__ = [
    "ADVICE_SUITES",
    "BUILT_IN_SUITES",
    "COMMAND",
    "DEFAULT_SIZES",
    "DEFAULT_SUITES",
    "DTYPES",
    "EDGE_KINDS",
    "EXPORTERS",
    "OPTIMIZATIONS",
    "CoverageSpec",
    "EdgesSuite",
    "ExportSpec",
    "Feed",
    "FilesSuite",
    "GeneratorSuite",
    "InputSpec",
    "Manifest",
    "ManifestError",
    "ManifestProblem",
    "ModelSpec",
    "Optimization",
    "PluginSuite",
    "RandomSuite",
    "RuntimeSpec",
    "StepsSpec",
    "Suite",
    "Tolerance",
    "TopK",
    "Waiver",
    "WeightsSpec",
    "load",
]
