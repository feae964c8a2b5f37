"""``files``: stored inputs, and stored outputs where the files hold them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.manifest import FilesSuite, InputSpec
from onnx_gate.runtimes.base import Array, first_line
from onnx_gate.verify.inputs.suites.base import Draft, SuiteContext, as_array, check_arrays

_SUFFIXES = (".npz", ".npy", ".safetensors", ".pt", ".pth")
_STORED = "output_"


class FileCases:
    """``{files: "tests/data/*.npz"}``: one case a file, or a folder ``test_data_set_*``."""

    def cases(self, suite: FilesSuite, context: SuiteContext) -> Iterator[Draft]:
        """Yield one case a file, in the order of their paths."""
        where = f"suites.{context.name}"
        for path in find_files(suite.files, context.workspace, where):
            shown = f"{where}: {path.relative_to(context.workspace)}"
            try:
                values = _read(path, context.inputs, shown)
            except GateError:
                raise
            except Exception as error:
                raise codes.OG108.error(f"{shown} cannot be read: {first_line(error)}") from error
            arrays = {k: v for k, v in values.items() if k in context.inputs}
            expected = {
                k.removeprefix(_STORED): v
                for k, v in values.items()
                if k.startswith(_STORED) and k not in context.inputs
            }
            unknown = {
                k: v for k, v in values.items() if k not in arrays and not k.startswith(_STORED)
            }
            sizes = check_arrays({**arrays, **unknown}, context.inputs, shown)
            yield Draft((case_name(path, context.workspace),), arrays, sizes, expected)


def case_name(path: Path, workspace: Path) -> str:
    """Return what the case of a file is called: ``tests.data.first``."""
    return path.relative_to(workspace).with_suffix("").as_posix().replace("/", ".")


def find_files(patterns: tuple[str, ...], workspace: Path, where: str) -> list[Path]:
    """Return the files and folders that the globs match; raises ``GateError`` where one has none."""
    root = workspace.resolve()
    chosen: list[Path] = []
    for pattern in patterns:
        paths = sorted(path for path in root.glob(pattern))
        usable = [
            path
            for path in paths
            if path.resolve().is_relative_to(root)
            and (
                (path.is_file() and path.suffix in _SUFFIXES)
                or (path.is_dir() and path.name.startswith("test_data_set_"))
            )
        ]
        if not usable:
            kinds = ", ".join(_SUFFIXES)
            raise codes.OG108.error(
                f"{where}: no file matches {pattern!r} below the manifest's folder "
                f"(readable are {kinds} and folders called test_data_set_*)"
            )
        chosen += [Path(workspace / path.relative_to(root)) for path in usable]
    return list(dict.fromkeys(chosen))


def _read(path: Path, inputs: Mapping[str, InputSpec], shown: str) -> dict[str, Array]:
    if path.is_dir():
        return _read_test_data(path, inputs)
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    if path.suffix == ".npy":
        if len(inputs) != 1:
            raise codes.OG108.error(
                f"{shown}: a .npy file holds one array and the model has {len(inputs)} inputs; "
                "store them by name in a .npz"
            )
        return {next(iter(inputs)): np.load(path, allow_pickle=False)}
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return {name: as_array(value, shown) for name, value in load_file(str(path)).items()}
    import torch

    loaded: Any = torch.load(str(path), map_location="cpu", weights_only=True)
    if isinstance(loaded, torch.Tensor) and len(inputs) == 1:
        loaded = {next(iter(inputs)): loaded}
    if not isinstance(loaded, Mapping):
        raise codes.OG108.error(f"{shown}: not a dictionary from input names to tensors")
    return {str(name): as_array(value, f"{shown}: {name}") for name, value in loaded.items()}


def _read_test_data(folder: Path, inputs: Mapping[str, InputSpec]) -> dict[str, Array]:
    """Read ONNX's test-case layout: tensors by their own names, else by number."""
    import onnx
    from onnx import numpy_helper

    names = list(inputs)
    values: dict[str, Array] = {}
    for kind in ("input", "output"):
        files = sorted(folder.glob(f"{kind}_*.pb"), key=lambda p: int(p.stem.split("_")[-1]))
        for number, file in enumerate(files):
            tensor = onnx.TensorProto.FromString(file.read_bytes())
            array = numpy_helper.to_array(tensor)
            if kind == "output":
                values[f"{_STORED}{number}"] = array
            elif tensor.name in inputs:
                values[tensor.name] = array
            elif number < len(names):
                values[names[number]] = array
            else:
                values[tensor.name or file.stem] = array
    return values
