"""Models larger than the machine: memory and time by size, the verdict beside a whole run's, and faults.

    python benchmarks/scale/blocks.py --sizes 0.3 1 3 --save       # decoders with random weights
    python benchmarks/scale/blocks.py --agreement --save           # the same verdict, blocks and whole
    python benchmarks/scale/blocks.py --faults --save              # found, and in the right block?
    python benchmarks/scale/blocks.py --again --save               # what was verified before
    python benchmarks/scale/blocks.py --shared --save              # by several machines, one after another
    python benchmarks/scale/blocks.py --committed --save           # a file with 4 GB of weights beside it

Weights are drawn in bfloat16, shard by shard, into ``--folder``, and deleted afterwards: 2 bytes for each
parameter. Memory is what ``report.json`` has, the worker's resident memory at its peak.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import yaml
from onnx.external_data_helper import ExternalDataInfo
from safetensors.torch import load_file, save_file

from benchmarks.support import results
from benchmarks.support.gate import run_gate
from onnx_gate.gate.journal import BLOCKS
from onnx_gate.report.layout import INTERRUPTED

MODELS = Path(__file__).parent / "blocks_models"
# Width, layers, heads, hidden width and words, by parameters in thousand millions.
SIZES: Mapping[str, tuple[int, int, int, int, int]] = {
    "0.1": (768, 12, 12, 2048, 32000),
    "0.3": (1024, 22, 16, 2816, 32000),
    "1": (2048, 16, 16, 5632, 32000),
    "3": (2560, 32, 20, 8192, 32000),
    "7": (4096, 32, 32, 11008, 32000),
}
FAULTS = ("weight", "eps", "rotary", "mask", "last eps", "head")
TIED = {"head.weight": "embed.weight"}
IDS = {"ids": {"dtype": "int64", "shape": ["batch", "seq"]}}


def draw(folder: Path, width: int, layers: int, hidden: int, words: int) -> int:
    """Write a sharded checkpoint of the decoder, a layer at a time; return its parameters."""
    shapes = {"embed.weight": (words, width), "norm.weight": (width,)}
    shards = {"rest": shapes}
    for n in range(layers):
        matrices = {
            "qkv": (3 * width, width),
            "out": (width, width),
            "gate": (hidden, width),
            "up": (hidden, width),
            "down": (width, hidden),
        }
        shards[f"layer-{n:03}"] = {
            **{f"layers.{n}.{name}.weight": shape for name, shape in matrices.items()},
            **{f"layers.{n}.{name}.weight": (width,) for name in ("before", "between")},
        }
    generator = torch.Generator().manual_seed(0)
    where, count = {}, 0
    for shard, tensors in shards.items():
        values = {}
        for name, shape in tensors.items():
            drawn = torch.randn(shape, generator=generator)
            drawn = 1 + 0.1 * drawn if len(shape) == 1 else drawn * shape[-1] ** -0.5
            values[name] = drawn.to(torch.bfloat16)
            where[name], count = f"{shard}.safetensors", count + drawn.numel()
        save_file(values, folder / f"{shard}.safetensors")
    index = {"metadata": {}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return count


def manifest(folder: Path, models: Mapping[str, Mapping[str, Any]]) -> Path:
    """Write a manifest into a folder that has the models."""
    for file in MODELS.glob("*.py"):
        shutil.copy(file, folder)
    path = folder / "onnx-gate.yml"
    path.write_text(yaml.safe_dump({"version": 1, "models": dict(models)}))
    return path


def words(count: int) -> dict[str, Any]:
    return {"ids": {**IDS["ids"], "range": [0, count - 1]}}


def decoder(place: Path, size: str, memory: str | None) -> tuple[dict[str, Any], int]:
    """Write a decoder's weights; return its entry in a manifest, and its parameters."""
    width, layers, heads, hidden, vocabulary = SIZES[size]
    count = draw(place, width, layers, hidden, vocabulary)
    kwargs = {"width": width, "layers": layers, "heads": heads, "hidden": hidden}
    entry: dict[str, Any] = {
        "model": "decoder.py:Decoder",
        "kwargs": {**kwargs, "vocabulary": vocabulary},
        "weights": "model.safetensors.index.json",
        "verify": "blocks",
        "inputs": words(vocabulary),
        "dims": {"batch": [1, 2], "seq": [2, 16]},
        "timeout": "2h",
        **({"memory": memory} if memory else {}),
    }
    return entry, count


def of_size(name: str, folder: Path, memory: str | None) -> dict[str, object]:
    """Verify a decoder of one size."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        place = Path(temporary)
        entry, count = decoder(place, name, memory)
        report = run_gate(manifest(place, {"decoder": entry}), place / "report", "--jobs", "1")
        on_disk = sum(file.stat().st_size for file in place.glob("*.safetensors"))
    model = report["models"][0]
    said = next((f["data"] for f in model["findings"] if f["code"] == "OG433"), {})
    return {
        "name": name,
        "parameters": count,
        "bytes": on_disk,
        "memory": memory,
        "verdict": model["verdict"],
        "error": (model["error"] or {}).get("message"),
        "blocks": said.get("blocks"),
        "expected": said.get("peak"),
        "peak": model["peak_memory"],
        "seconds": model["seconds"],
        "checks": len(model["checks"]),
        "stages": {stage["name"]: stage["seconds"] for stage in model["stages"]},
    }


def of_blocks(model: Mapping[str, Any]) -> int | None:
    """Return how many blocks a model was verified in, ``None`` where it was not."""
    return next((f["data"]["blocks"] for f in model["findings"] if f["code"] == "OG433"), None)


def again(folder: Path, size: str) -> Iterator[dict[str, object]]:
    """Verify a decoder anew, killed in the middle and called again, and with another layer."""
    layers = SIZES[size][1]
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        place = Path(temporary)
        entry, _ = decoder(place, size, None)
        path = manifest(place, {"decoder": entry})
        words = [sys.executable, "-m", "onnx_gate", "run", "--manifest", str(path), "--jobs", "1"]
        words += ["--output", str(place / "report")]
        journal = place / "report" / INTERRUPTED / BLOCKS / "decoder.jsonl"
        killed = subprocess.Popen(words, start_new_session=True)
        while not journal.exists() or journal.read_bytes().count(b"\n") <= layers // 2:
            time.sleep(0.01)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()

        def row(name: str, *arguments: str) -> dict[str, object]:
            report = run_gate(path, place / "report", "--jobs", "1", *arguments)
            (model,) = report["models"]
            said = next(f["data"] for f in model["findings"] if f["code"] == "OG433")
            checks[name] = model["checks"]
            return {
                "name": name,
                "blocks": said["blocks"],
                "known": said["known"],
                "verdict": model["verdict"],
                "seconds": model["seconds"],
                "stages": {stage["name"]: stage["seconds"] for stage in model["stages"]},
            }

        checks: dict[str, Any] = {}
        cache = "--cache", str(place / "cache")
        yield row("killed in the middle, and called again")
        same = checks.copy()
        yield {**row("from nothing", *cache), "same": same.popitem()[1] == checks["from nothing"]}
        for at in (layers - 1, layers // 2):
            shard = place / f"layer-{at:03}.safetensors"
            weights = load_file(shard)
            save_file({n: w * 1.25 if "down" in n else w for n, w in weights.items()}, shard)
            name = f"layer {at} of {layers} is another"
            after = row(name, *cache)
            anew = row(f"{name}, from nothing", "--no-cache")
            yield {**after, "same": checks[name] == checks[f"{name}, from nothing"]}
            yield anew


def shared(folder: Path, size: str, machines: int) -> Iterator[dict[str, object]]:
    """Verify a decoder as a whole, then as machines that share its blocks do, one after another."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        place = Path(temporary)
        entry, _ = decoder(place, size, None)
        path = manifest(place, {"decoder": entry})
        alone: list[Any] = []
        checks: list[Any] = []
        for index in range(machines + 1):
            shard = ("--shard", f"{index}/{machines}") if index else ()
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            report = run_gate(path, place / f"report-{index}", "--jobs", "1", "--no-cache", *shard)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            (model,) = report["models"]
            (checks if index else alone).extend(model["checks"])
            yield {
                "name": f"part {index} of {machines}" if index else "the whole",
                "blocks": len(
                    {check["block"].partition(":")[0] for check in model["checks"]} - {""}
                ),
                "checks": len(model["checks"]),
                "verdict": model["verdict"],
                "seconds": model["seconds"],
                "processor": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
                "peak": model["peak_memory"],
                "stages": {stage["name"]: stage["seconds"] for stage in model["stages"]},
                **({"same": checks == alone} if index == machines else {}),
            }


def with_faults(folder: Path) -> Iterator[dict[str, object]]:
    """Verify a small decoder with each fault, in the first, a middle and the last layer; and others."""
    from benchmarks.scale.blocks_models.small import FAULTS as SMALL_FAULTS
    from benchmarks.scale.blocks_models.small import built, with_fault

    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        place = Path(temporary)
        draw(place, 64, 4, 128, 199)
        entries, expected = {}, {}
        for fault in FAULTS:
            for at in (0, 2, 3) if fault in FAULTS[:4] else (0,):
                name = f"{fault} {at}".replace(" ", "-")
                wrong = {"last eps": "norm", "head": "head"}.get(fault, f"layers.{at}")
                expected[name] = fault, (wrong,)
                entries[name] = {
                    "model": "decoder.py:Decoder",
                    "kwargs": {"fault": fault, "at": at},
                    "weights": "model.safetensors.index.json",
                    "verify": "blocks",
                    "inputs": words(199),
                    "dims": {"batch": [1, 2], "seq": [2, 16]},
                }
        for name, (model, _, blocks) in SMALL_FAULTS.items():
            called = name.replace(" ", "-")
            torch.manual_seed(0)
            save_file(built(model), place / f"{called}.safetensors")
            expected[called] = name, blocks
            entries[called] = {
                **with_fault(name),
                "weights": f"{called}.safetensors",
                "verify": "blocks",
            }
        report = run_gate(manifest(place, entries), place / "report", "--jobs", "1")
    for model in report["models"]:
        fault, wrong = expected[model["name"]]
        blocks = [c["block"] for c in model["checks"] if c["verdict"] == "diverged" and c["block"]]
        found = sorted(set(blocks))
        diagnosis = model["diagnosis"] or {}
        yield {
            "name": model["name"],
            "fault": fault,
            "in": list(wrong),
            "verdict": model["verdict"],
            "found": found,
            "right": found == sorted(wrong),
            "node": (diagnosis.get("node") or {}).get("op_type"),
            "line": (diagnosis.get("source") or {}).get("line"),
        }


def agreement(folder: Path, only: Collection[str]) -> Iterator[dict[str, object]]:
    """Verify small models of several architectures, or some of them, block by block and whole."""
    from benchmarks.scale.blocks_models.small import ENTRIES, built

    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        place, entries = Path(temporary), {}
        for name, entry in ENTRIES.items():
            if only and name not in only:
                continue
            torch.manual_seed(0)
            save_file(built(name), place / f"{name}.safetensors")
            for way in ("blocks", "whole"):
                entries[f"{name}-{way}"] = {
                    "weights": f"{name}.safetensors",
                    "verify": way,
                    **entry,
                }
        report = run_gate(manifest(place, entries), place / "report", "--jobs", "1")
    models = {model["name"]: model for model in report["models"]}
    for name in dict.fromkeys(name.rpartition("-")[0] for name in entries):
        blocks, whole = models[f"{name}-blocks"], models[f"{name}-whole"]
        yield {
            "name": name,
            "blocks": blocks["verdict"],
            "whole": whole["verdict"],
            "of blocks": of_blocks(blocks),
            "seconds": [blocks["seconds"], whole["seconds"]],
            "error": (blocks["error"] or {}).get("message"),
        }


def committed(folder: Path, size: str, memory: str) -> Iterator[dict[str, object]]:
    """Verify a file whose weights are beside it, as it is and with the last row of one wrong.

    And the same in four bits, as it is and with the scales of one matrix eight times as large.
    """
    width, layers, heads, hidden, vocabulary = SIZES[size]
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        place = Path(temporary)
        count = draw(place, width, layers, hidden, vocabulary)
        kwargs = {"width": width, "layers": layers, "heads": heads, "hidden": hidden}
        kwargs |= {"vocabulary": vocabulary}
        row, right = exported(place, kwargs), b""
        entry = {
            "model": "decoder.py:Decoder",
            "kwargs": kwargs,
            "weights": "model.safetensors.index.json",
            "onnx": "model.onnx",
            "verify": "blocks",
            "inputs": words(vocabulary),
            "dims": {"batch": [1], "seq": [2, 16]},
            "suites": ["few"],
            "timeout": "2h",
            "memory": memory,
        }
        for name in ("as it is", "last row wrong", "int4", "int4, a scale wrong"):
            if name == "int4":
                in_four_bits(place)
                entry |= {"onnx": "short.onnx", "tolerance": {"snr_db": 5}}
            path = manifest(place, {"decoder": entry})
            path.write_text(path.read_text() + "suites: {few: {random: normal, count: 1}}\n")
            report = run_gate(path, place / "report", "--jobs", "1", "--no-cache")
            model = report["models"][0]
            said = [f["message"] for f in model["findings"] if f["code"] == "OG417"]
            yield {
                "name": name,
                "parameters": count,
                "bytes": (place / str(entry["onnx"])).with_suffix(".data").stat().st_size,
                "verdict": model["verdict"],
                "error": (model["error"] or {}).get("message"),
                "blocks": of_blocks(model),
                "said": said,
                "wrong": sorted(
                    {c["block"] for c in model["checks"] if c["verdict"] == "diverged"}
                ),
                "peak": model["peak_memory"],
                "seconds": model["seconds"],
                "stages": {stage["name"]: stage["seconds"] for stage in model["stages"]},
            }
            if name in ("as it is", "last row wrong"):
                with (place / "model.data").open("r+b") as file:
                    file.seek(row)
                    right = file.read(4 * width) if name == "as it is" else right
                    file.seek(row)
                    wrong = torch.ones(width).numpy().tobytes()
                    file.write(wrong if name == "as it is" else right)
            elif name == "int4":
                in_four_bits(place, wrong=layers // 2)


def exported(place: Path, kwargs: Mapping[str, Any]) -> int:
    """Export the decoder in float32, a weight at a time; return where the last row in the file begins."""
    import onnx_ir
    from safetensors import safe_open

    from benchmarks.scale.blocks_models.decoder import Decoder

    with torch.device("meta"):
        model = Decoder(**kwargs).eval()
    for module in model.modules():  # computed as modules are made
        if "frequencies" in module._buffers:
            size = module._buffers["frequencies"].numel()  # type: ignore[union-attr]
            module._buffers["frequencies"] = 1e4 ** (-torch.arange(size) / size)
    ids = torch.zeros(2, 3, dtype=torch.int64)
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        for module in model.modules():
            for key, parameter in module._parameters.items():
                if parameter is not None:
                    fake = torch.empty(parameter.shape, dtype=torch.float32)
                    module._parameters[key] = torch.nn.Parameter(fake, requires_grad=False)
        model.head.weight = model.embed.weight
        given = mode.from_tensor(ids)
    shapes = {"ids": {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}}
    with torch.no_grad(), mode:
        program = torch.onnx.export(
            model, (given,), dynamo=True, dynamic_shapes=shapes, optimize=False, verbose=False
        )
    assert program is not None
    where = json.loads((place / "model.safetensors.index.json").read_text())["weight_map"]

    def read(name: str) -> onnx_ir.TensorProtocol:
        own = TIED.get(name, name)
        with safe_open(place / where[own], "pt") as file:
            return onnx_ir.tensor(file.get_tensor(own).float(), name=name)

    for name, value in program.model.graph.initializers.items():
        if TIED.get(name, name) in where:
            assert value.const_value is not None
            value.const_value = onnx_ir.LazyTensor(
                lambda name=name: read(name),
                dtype=onnx_ir.DataType.FLOAT,
                shape=value.const_value.shape,  # type: ignore[arg-type]
                name=name,
            )
    onnx_ir.save(program.model, place / "model.onnx", external_data="model.data")
    proto = onnx.load(place / "model.onnx", load_external_data=False)
    names = {"embed.weight", *TIED}
    (table,) = (t for t in proto.graph.initializer if t.name in names)
    info = ExternalDataInfo(table)
    return int(info.offset + info.length - 4 * table.dims[1])


def in_four_bits(place: Path, wrong: int | None = None) -> None:
    """Write the file again with its products in four bits, in blocks of 32, a weight at a time.

    ``wrong`` is a layer of whose last matrix all scales are eight times what they should be.
    """
    proto = onnx.load(place / "model.onnx", load_external_data=False)
    stored = {tensor.name: tensor for tensor in proto.graph.initializer}
    turned = {n.output[0]: n.input[0] for n in proto.graph.node if n.op_type == "Transpose"}
    with (place / "short.data").open("wb") as file:

        def keep(name: str, array: np.ndarray[Any, Any]) -> str:
            tensor = onnx.TensorProto(name=name, dims=array.shape)
            tensor.data_type = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            tensor.data_location = onnx.TensorProto.EXTERNAL
            entries = {"location": "short.data", "offset": file.tell(), "length": array.nbytes}
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=str(value))
            file.write(array.tobytes())
            proto.graph.initializer.append(tensor)
            return name

        for node in proto.graph.node:
            name = turned.get(node.input[1]) if node.op_type == "MatMul" else None
            if name not in stored:
                continue
            info = ExternalDataInfo(stored[name])
            rows, columns = stored[name].dims
            wide = np.memmap(
                place / "model.data", np.float32, "r", info.offset or 0, (rows, columns)
            )
            wide = wide.reshape(rows, -1, 32)
            scales = np.abs(wide).max(axis=2) / 7
            short = np.rint(wide / scales[:, :, None]).astype(np.int8) + 8
            packed = (short[:, :, ::2] | short[:, :, 1::2] << 4).astype(np.uint8)
            if name == f"layers.{wrong}.down.weight":
                scales = 8 * scales
            given = [node.input[0], keep(f"{name}_Q4", packed), keep(f"{name}_scales", scales)]
            sizes = {"K": columns, "N": rows, "bits": 4, "block_size": 32}
            product = onnx.helper.make_node("MatMulNBits", given, node.output, **sizes)
            product.domain = "com.microsoft"
            node.CopyFrom(product)
    proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    left = {name for node in proto.graph.node for name in node.input}
    kept = [
        n for n in proto.graph.node if n.op_type != "Transpose" or not left.isdisjoint(n.output)
    ]
    del proto.graph.node[:]
    proto.graph.node.extend(kept)
    read = {name for node in kept for name in node.input}
    weights = [tensor for tensor in proto.graph.initializer if tensor.name in read]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(weights)
    onnx.save_model(proto, str(place / "short.onnx"))


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", nargs="*", default=(), choices=tuple(SIZES))
    parser.add_argument("--memory", help="what each of them may take: 1.6GiB")
    parser.add_argument("--agreement", action="store_true")
    parser.add_argument("--only", nargs="*", default=(), help="these of the small models")
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--again", nargs="?", const="0.1", choices=tuple(SIZES))
    parser.add_argument("--shared", nargs="?", const="0.1", choices=tuple(SIZES))
    parser.add_argument("--machines", type=int, default=2)
    parser.add_argument("--committed", nargs="?", const="1", choices=tuple(SIZES))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    results.add_option(parser)
    asked = parser.parse_args()
    tables: dict[str, list[dict[str, object]]] = {}
    if asked.sizes:
        tables["sizes"] = [of_size(name, asked.folder, asked.memory) for name in asked.sizes]
    if asked.agreement:
        tables["agreement"] = list(agreement(asked.folder, asked.only))
    if asked.faults:
        tables["faults"] = list(with_faults(asked.folder))
    if asked.again:
        tables["again"] = list(again(asked.folder, asked.again))
    if asked.shared:
        tables["shared"] = list(shared(asked.folder, asked.shared, asked.machines))
    if asked.committed:
        tables["committed"] = list(committed(asked.folder, asked.committed, asked.memory or "3GiB"))
    for name, rows in tables.items():
        for row in rows:
            print(json.dumps(row))
        if asked.save:
            results.save(__file__, name, results.merged(__file__, name, rows))


if __name__ == "__main__":
    main()
