"""How far ONNX Runtime's mean of n equal numbers is off, in units in the last place of the mean.

Normalising a constant gives 0; what comes out instead is the error of the mean, divided by the
root of epsilon. The jitter of repetitive inputs (onnx_gate/verify/reference/equal.py) rests on this.
"""

from __future__ import annotations

import argparse

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from benchmarks.support import results

CHANNELS = 64
EPSILON = 1e-5


def units_off(side: int) -> float:
    """Return the largest error over the channels of a constant image of ``side`` squared."""
    shape = [1, CHANNELS, side, side]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x", "y")]
    affine = [
        helper.make_tensor(name, TensorProto.FLOAT, [CHANNELS], [value] * CHANNELS)
        for name, value in (("scale", 1.0), ("bias", 0.0))
    ]
    node = helper.make_node("InstanceNormalization", ["x", "scale", "bias"], ["y"], epsilon=EPSILON)
    graph = helper.make_graph([node], "constant", ends[:1], ends[1:], affine)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options)
    values = np.random.default_rng(0).normal(size=CHANNELS).astype(np.float32)
    image = np.broadcast_to(values[None, :, None, None], shape).copy()
    output = session.run(None, {"x": image})[0][0, :, 0, 0]
    unit = np.abs(values) * np.finfo(np.float32).eps
    return float(np.max(np.abs(output) * np.sqrt(EPSILON) / unit))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    results.add_option(parser)
    options = parser.parse_args()
    rows = [{"n": side * side, "units": units_off(side)} for side in (8, 32, 64, 128, 224)]
    for row in rows:
        print(f"n = {row['n']:6}: {row['units']:6.1f} units")
    if options.save:
        results.save(__file__, "instance norm", rows)


if __name__ == "__main__":
    main()
