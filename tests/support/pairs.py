"""Pairs of files for one model, a faulty and a correct one, as a user's repository has them."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import torch
import yaml

if TYPE_CHECKING:
    from tests.pairs.project.pair import Pair

PROJECT = Path(__file__).resolve().parents[1] / "pairs" / "project"

Feed = dict[str, np.ndarray]


@cache
def every_pair() -> dict[str, tuple[str, Pair]]:
    """All pairs by their names, each with its class of mistakes, which is a file of the project."""
    _module("pair")  # The classes import it by this name, as files beside each other do.
    found: dict[str, tuple[str, Pair]] = {}
    for path in sorted(PROJECT.glob("*.py")):
        for pair in getattr(_module(path.stem), "PAIRS", ()):
            assert pair.name not in found, f"two pairs are called {pair.name}"
            found[pair.name] = (path.stem, pair)
    return found


def _module(name: str) -> ModuleType:
    if name in sys.modules and Path(sys.modules[name].__file__ or "").parent == PROJECT:
        return sys.modules[name]
    # Other names are those of packages elsewhere, such as ``examples``.
    full = name if name == "pair" else f"pairs_of_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, PROJECT / f"{name}.py")
        assert spec
        assert spec.loader
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


def write_manifest(folder: Path, chosen: Sequence[tuple[str, Pair]]) -> None:
    """A repository with the files of pairs, and a manifest that has each as ``-faulty`` and ``-twin``."""
    (folder / "files").mkdir()
    for source in PROJECT.glob("*.py"):
        shutil.copy(source, folder)
    manifest: dict[str, Any] = {"version": 1, "suites": {}, "models": {}}
    for category, pair in chosen:
        manifest["suites"].update(pair.suites)
        for side, more in (("faulty", pair.faulty_entry), ("twin", pair.twin_entry)):
            entry: dict[str, Any] = {
                "model": f"{category}.py:{pair.model.__name__}",
                "inputs": dict(pair.inputs),
                **pair.entry,
                **more,
            }
            module = exported_as(pair, side)
            if module is not None:
                path = folder / "files" / f"{pair.name}-{side}.onnx"
                export(module().eval(), pair, path)
                if pair.edit and side == "faulty":
                    edited = onnx.load(path)
                    pair.edit(edited)
                    onnx.save(edited, path)
                entry["onnx"] = f"files/{path.name}"
            if pair.reference:
                path = folder / "files" / f"{pair.name}-reference.onnx"
                export(pair.model().eval(), pair, path)
                entry["reference"] = f"files/{path.name}"
                del entry["model"]
            manifest["models"][f"{pair.name}-{side}"] = entry
    # Through JSON: a value that two pairs share is written out, not as an anchor.
    text = yaml.safe_dump(json.loads(json.dumps(manifest)), sort_keys=False)
    (folder / "onnx-gate.yml").write_text(text)


def exported_as(pair: Pair, side: str) -> Callable[[], torch.nn.Module] | None:
    """What is exported as a side's file; nothing where the gate exports the model itself."""
    if side == "twin":
        return pair.twin
    return None if pair.gate_exports_fault or pair.same_file else pair.faulty_module


def export(module: torch.nn.Module, pair: Pair, path: Path) -> None:
    """Write the file of a module, with the dynamic dimensions of the manifest's entry."""
    sizes = dict(zip(dimensions(pair), (3, 5, 11, 13, 17), strict=False)) | dict(pair.example)
    feed = draw(pair, np.random.default_rng(0), sizes)
    dynamic = {
        name: {
            axis: torch.export.Dim.AUTO
            for axis, size in enumerate(shape_of(spec)[1])
            if isinstance(size, str)
        }
        for name, spec in pair.inputs.items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (),
            str(path),
            kwargs={name: torch.from_numpy(value) for name, value in feed.items()},
            dynamic_shapes=dynamic,
            input_names=list(pair.inputs),
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def shape_of(spec: Any) -> tuple[str, list[int | str]]:
    """The dtype and the shape of an input, in either form of the manifest."""
    if isinstance(spec, dict):
        return spec["dtype"], list(spec["shape"])
    match = re.fullmatch(r"(\w+)\[(.*)\]", spec)
    assert match, spec
    sizes = [size.strip() for size in match[2].split(",") if size.strip()]
    return match[1], [int(size) if size.isdigit() else size for size in sizes]


def dimensions(pair: Pair) -> list[str]:
    """The dynamic dimensions of a pair's inputs."""
    named = (size for spec in pair.inputs.values() for size in shape_of(spec)[1])
    return list(dict.fromkeys(size for size in named if isinstance(size, str)))


def draw(pair: Pair, rng: np.random.Generator, sizes: dict[str, int]) -> Feed:
    """Arbitrary inputs of these sizes."""
    feed: Feed = {}
    for name, spec in pair.inputs.items():
        dtype, shape = shape_of(spec)
        size = [sizes[n] if isinstance(n, str) else n for n in shape]
        low, high = spec.get("range", (None, None)) if isinstance(spec, dict) else (None, None)
        if dtype == "bool":
            feed[name] = rng.random(size) < 0.6
        elif dtype.startswith(("int", "uint")):
            feed[name] = rng.integers(low, high + 1, size).astype(dtype)  # type: ignore[arg-type]
        elif low is not None:
            feed[name] = rng.uniform(low, high, size).astype(dtype)  # type: ignore[arg-type]
        else:
            feed[name] = rng.standard_normal(size).astype(dtype)
    return feed


def faulty_file_differs(pair: Pair, path: Path) -> bool:
    """Whether a file answers otherwise than the pair's module on one of four witnesses."""
    rng = np.random.default_rng(1)
    declared = pair.entry.get("dims", {})
    sizes = {
        name: (declared[name] if isinstance(declared.get(name), list) else [4])[-1]
        for name in dimensions(pair)
    }
    feeds = [pair.witness(rng) if pair.witness else draw(pair, rng, sizes) for _ in range(4)]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return any(_differs(pair.model().eval(), session, feed) for feed in feeds)


def _differs(module: torch.nn.Module, session: onnxruntime.InferenceSession, feed: Feed) -> bool:
    names = {value.name for value in session.get_inputs()}
    given = {name: torch.from_numpy(value.copy()) for name, value in feed.items()}
    try:
        with torch.no_grad():
            answer = module(**given)
    except ValueError:
        session.run(None, {k: v for k, v in feed.items() if k in names})  # which answers
        return True
    expected = [np.asarray(value) for value in torch.utils._pytree.tree_leaves(answer)]
    try:
        actual = session.run(None, {k: v for k, v in feed.items() if k in names})
    except Exception:  # ONNX Runtime's own exceptions share no base of their own.
        return True
    return len(actual) != len(expected) or any(
        a.dtype != e.dtype or not np.array_equal(a, e, equal_nan=a.dtype.kind in "fc")
        for a, e in zip(actual, expected, strict=True)
    )
