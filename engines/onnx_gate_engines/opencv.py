"""OpenCV's DNN module (``pip install 'onnx-gate[opencv]'``), as C++ that ships OpenCV has it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnx_gate.findings import codes
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.base import Array, Refusal, contiguous, installed_version, package
from onnx_gate.runtimes.declared import (
    check_feeds,
    declared,
    handed_over_otherwise,
    lacking,
    read_graph,
    refuse_empty,
)
from onnx_gate_engines.converted import option
from onnx_gate_engines.native import stderr_and_stdout

# OpenCV 5 has several engines, and takes the older one by itself where the new one gives up.
_ENGINES = {"new": "ENGINE_NEW", "classic": "ENGINE_CLASSIC"}

# It gives float32 for these.
_SHORT = ("float16", "bfloat16")

_UNSUPPORTED = re.compile(r"Unsupported operations:\s*\n((?:\t\S+\n)+)")
_HEAD = re.compile(r"^OpenCV\(\S+\) \S+ error: \(-?\d+:[^)]*\) ?")


class OpenCv:
    """``name: opencv`` of a manifest."""

    isolated = True

    def open(self, model: Path, spec: RuntimeSpec, threads: int) -> OpenCvSession:
        """Load ``model``; ``options`` may have the ``engine``, ``new`` or ``classic``."""
        cv2 = package(spec, "cv2")
        engine = option(spec, "OpenCV", "engine", "engine: new or classic", "new", [*_ENGINES])
        cv2.setNumThreads(threads)
        chosen = getattr(cv2.dnn, _ENGINES[engine], None)
        with stderr_and_stdout() as written:
            try:
                network = cv2.dnn.readNetFromONNX(str(model), *([] if chosen is None else [chosen]))
            except cv2.error as error:
                raise codes.OG303.error(
                    f"{spec.label}: the model does not load: {_sentence(error)}"
                ) from error
        if network.empty():
            # Which operators it lacks is in no exception and in no return value.
            names = {name for names in _UNSUPPORTED.findall(written()) for name in names.split()}
            raise lacking(spec, model, names) or codes.OG303.error(
                f"{spec.label}: OpenCV makes an empty network of it and does not say why"
            )
        return OpenCvSession(model, cv2, network)

    def environment(self) -> dict[str, Any]:
        """Return the version of whichever distribution has it."""
        return installed_version("opencv-python-headless") or installed_version("opencv-python")


class OpenCvSession:
    """One loaded network."""

    def __init__(self, model: Path, cv2: Any, network: Any) -> None:
        self._cv2, self._network = cv2, network
        self.inputs, self.outputs = declared(read_graph(model))
        self._names = [value.name for value in self.outputs]
        short = [value for value in self.outputs if value.dtype in _SHORT]
        self.findings = tuple(
            handed_over_otherwise("opencv", short, dict.fromkeys(_SHORT, np.float32))
        )

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Run once; raises ``Refusal`` with OpenCV's own sentence, and where an array is empty."""
        check_feeds(self.inputs, feeds)
        refuse_empty(feeds, "OpenCV")
        try:
            for name, array in feeds.items():
                self._network.setInput(contiguous(array), name)
            results = self._network.forward(self._names)
        except self._cv2.error as error:
            raise Refusal(_sentence(error)) from error
        for name, result in zip(self._names, results, strict=True):
            if result is None:
                raise Refusal(f"the output {name} is empty, which OpenCV has no array for")
        return [
            np.array(result).astype(value.dtype if value.dtype in _SHORT else result.dtype)
            for value, result in zip(self.outputs, results, strict=True)
        ]

    def close(self) -> None:
        """Drop the network."""
        self._network = None


def _sentence(error: BaseException) -> str:
    text = " ".join(line.lstrip("> ").strip() for line in str(error).splitlines())
    return _HEAD.sub("", text)[:400].strip() or type(error).__name__
