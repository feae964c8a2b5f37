"""Files opened in versions of packages that are not installed: each in a process of that version alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx

_PYTHON = r"""
import json, os, sys
{setup}
for path in sys.stdin.read().split("\n"):
    try:
        {load}
        said = ""
    except Exception as error:
        said = str(error)[-600:] or type(error).__name__
    os.write(3, (json.dumps([path, said]) + "\n").encode())
"""
_NODE = r"""
const { writeSync, readFileSync } = require("node:fs");
const { pathToFileURL } = require("node:url");
(async () => {
  const dist = process.argv[1] + "/node_modules/onnxruntime-web/dist/ort.node.min.";
  let ort;
  try { ort = await import(pathToFileURL(dist + "mjs").href); } catch { ort = require(dist + "js"); }
  const { env, InferenceSession } = ort.default?.InferenceSession ? ort.default : ort;
  env.wasm.numThreads = 1;
  env.logLevel = "fatal";
  const options = { executionProviders: ["wasm"], logSeverityLevel: 4 };
  for (const path of readFileSync(0, "utf8").split("\n")) {
    let said = "";
    try {
      await (await InferenceSession.create(new Uint8Array(readFileSync(path)), options)).release();
    } catch (error) { said = String(error).slice(-300) || "?"; }
    writeSync(3, JSON.stringify([path, said]) + "\n");
  }
})();
"""
_LOADS = {
    "onnxruntime": (
        "import onnxruntime as ort",
        "ort.InferenceSession(path, providers=['CPUExecutionProvider'])",
    ),
    "openvino": ("import openvino; core = openvino.Core()", "core.read_model(path)"),
    # One that lacks an operator is empty, and the reason is in no exception.
    "opencv": (
        "import cv2",
        "assert not cv2.dnn.readNetFromONNX(path).empty(), 'an empty network'",
    ),
}
# The first version of each that is made for NumPy 2.
_NUMPY2 = {"onnxruntime": (1, 19), "openvino": (2024, 4), "opencv": (4, 10)}


def number(version: str) -> tuple[int, ...]:
    """Return a version as numbers."""
    return tuple(map(int, version.split(".")))


def versions(folder: Path) -> list[str]:
    """Return the versions of a package that are in ``folder``, the oldest first."""
    return sorted((e.name for e in folder.iterdir() if e.name[0].isdigit()), key=number)


def opened(package: str, folder: Path, version: str, files: list[Path]) -> dict[str, str]:
    """Return for each file why a version refuses it, empty where it loads.

    ``folder`` has ``VERSION`` and, beside Python packages, ``numpy1`` and ``numpy2``.
    """
    path, environment = folder / version, {**os.environ, "ORT_LOG_SEVERITY_LEVEL": "4"}
    if package == "onnxruntime-web":
        command = ["node", "-e", _NODE, str(path.absolute())]
    else:
        setup, load = _LOADS[package]
        numpy = "numpy2" if number(version)[:2] >= _NUMPY2[package] else "numpy1"
        environment["PYTHONPATH"] = os.pathsep.join(map(str, (path, folder / numpy)))
        command = [sys.executable, "-S", "-c", _PYTHON.format(setup=setup, load=load)]
    said: dict[str, str] = {}
    left = [str(file) for file in files]
    while left:
        reading, writing = os.pipe()
        process = subprocess.Popen(
            ["sh", "-c", f'exec "$@" 3>&{writing} >/dev/null 2>&1', "sh", *command],
            stdin=subprocess.PIPE,
            env=environment,
            pass_fds=(writing,),
            text=True,
        )
        os.close(writing)
        assert process.stdin is not None
        process.stdin.write("\n".join(left))
        process.stdin.close()
        with os.fdopen(reading) as lines:
            said |= dict(map(json.loads, lines))
        status = process.wait()
        rest = [path for path in left if path not in said]
        if rest:  # it has taken the process down
            said[rest.pop(0)] = f"ended with status {status}"
        left = rest
    return said


def node_files(folder: Path) -> list[Path]:
    """Write the tests of single operators that the onnx package has."""
    from onnx.backend.test.loader import load_model_tests

    files = []
    for case in load_model_tests(kind="node"):
        source = Path(case.model_dir) / "model.onnx" if case.model_dir else None
        model = onnx.load(str(source)) if source and source.exists() else case.model
        # That operator asks the machine for a locale when it is loaded.
        if model is not None and not case.name.startswith("test_strnorm"):
            path = folder / f"{case.name}.onnx"
            onnx.save(model, str(path))
            files.append(path)
    return files
