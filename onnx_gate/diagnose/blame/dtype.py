"""Is it the dtype? The same file in float32, where an engine alone differs from what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import ml_dtypes
import numpy as np
import onnx

from onnx_gate.diagnose.bench import EVALUATOR_BYTES, Answer, Fresh
from onnx_gate.diagnose.blame.blame_result import BlameResult
from onnx_gate.diagnose.blame.chain import Chain
from onnx_gate.graph.edit import with_floats
from onnx_gate.manifest.spec import DEFAULT_AUTO
from onnx_gate.numerics.scaled import scale_error
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.file_module import PLAIN
from onnx_gate.verify.inspect.reduced import HALF

_OTHER_FLOATS = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE)
_OTHERS = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float64))


def of_dtype(chain: Chain, final: Answer) -> BlameResult | None:
    """Return that an engine computes the dtypes of the file otherwise, where that is all of it.

    A file with 16-bit values is run by the engine in float32: if it agrees there, its kernels are
    right, and what it makes of 16 bits is not what PyTorch makes of them. One with float64 is run in
    float32 by ONNX Runtime: an engine that is as near as that, by the default tolerance, computes in
    float32.
    """
    subject, expected = chain.subject, chain.agreement.expected.array
    if subject.exported.size > EVALUATOR_BYTES or expected is None or final.array is None:
        return None
    model, found = with_floats(
        onnx.load(str(subject.exported.path)), _OTHER_FLOATS, onnx.TensorProto.FLOAT
    )
    short = sorted(HALF[kind] for kind in found if kind in HALF)
    if not found:
        return None
    with TemporaryDirectory(dir=subject.folder) as folder:
        path = Path(folder, "float32.onnx")
        onnx.save(model, str(path))
        fresh = Fresh(path, subject.graph_inputs)
        arrays = _wide(subject.arrays)
        engine = subject.runtime if short else PLAIN
        answer = chain.bench.runtime(engine, arrays, fresh)
    if answer.array is not None:
        answer = replace(answer, array=answer.array.astype(expected.dtype))
    name = subject.runtime.label if short else "ONNX Runtime"
    measured = chain.ask("float32", f"{name}, the file in float32", answer)
    if short and measured.agrees:
        cause = f"{subject.runtime.label} computes {short[0]} otherwise than {chain.against} does"
    elif not short and _as_near(final.array, answer.array, expected):
        cause = f"{subject.runtime.label} computes float64 in float32"
    else:
        return None
    return BlameResult("reduced precision", "float32", cause=cause)


def _wide(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {
        name: array.astype(np.float32) if array.dtype in _OTHERS else array
        for name, array in arrays.items()
    }


def _as_near(actual: Array, other: Array | None, expected: Array) -> bool:
    """Return whether one answer is as near to what is expected as another, as rounding goes."""
    if other is None or not actual.shape == other.shape == expected.shape:
        return False
    own, theirs = (scale_error(each.astype(expected.dtype), expected) for each in (actual, other))
    return bool(own <= DEFAULT_AUTO * theirs)
