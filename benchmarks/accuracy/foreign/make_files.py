"""Write the files that ``own.py`` reads: TorchScript, a checkpoint, an int8 and a half-precision graph."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import onnx
import torch
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.calibrate import CalibrationDataReader
from onnxruntime.transformers.float16 import convert_float_to_float16

sys.path.insert(0, str(Path(__file__).resolve().parent))

from own import Convolutions


class Reader(CalibrationDataReader):
    """Eight batches of noise."""

    def __init__(self) -> None:
        self.batches = iter([{"image": torch.rand(4, 3, 16, 16).numpy()} for _ in range(8)])

    def get_next(self) -> dict[str, object] | None:
        return next(self.batches, None)


def write(folder: Path) -> None:
    """Write all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = Convolutions().eval()
    example = torch.rand(2, 3, 16, 16)
    torch.save(model.state_dict(), folder / "trained.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(model).save(str(folder / "scripted.pt"))
        torch.jit.trace(model, example).save(str(folder / "traced.pt"))
        torch.onnx.export(
            model,
            (example,),
            str(folder / "float.onnx"),
            dynamo=False,
            input_names=["image"],
            output_names=["output"],
            dynamic_axes={"image": {0: "batch"}, "output": {0: "batch"}},
            opset_version=17,
        )
    quantize_static(
        folder / "float.onnx",
        folder / "int8.onnx",
        Reader(),
        quant_format=QuantFormat.QDQ,
        weight_type=QuantType.QInt8,
    )
    half = convert_float_to_float16(onnx.load(folder / "float.onnx"), keep_io_types=True)
    onnx.save(half, folder / "half.onnx")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
