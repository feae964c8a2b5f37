"""What is known of an engine without loading it: which keys its entries may have, what it can do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Engine:
    """``keys`` are those of an entry beside ``name`` and ``tolerance``, ``None`` where any is read.

    ``provider`` is the one that runs where none is named. ``plain``: it runs a file node by node as
    it is written where its optimizations are off. ``open_shapes``: it takes inputs whose shapes the
    file leaves open, and weights that are inputs. ``packages`` are what it is installed as, by their
    canonical names.
    """

    keys: tuple[str, ...] | None = None
    provider: str = ""
    plain: bool = False
    open_shapes: bool = False
    packages: tuple[str, ...] = ()

    def takes(self, key: str) -> bool:
        """Return whether it reads a key of its entries."""
        return self.keys is None or key in self.keys


_OF_SESSIONS = ("provider", "optimization", "provider_options", "session_options")

ENGINES: Mapping[str, Engine] = {
    "onnxruntime": Engine(
        (*_OF_SESSIONS, "strict"),
        "cpu",
        plain=True,
        open_shapes=True,
        packages=("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino"),
    ),
    "half": Engine(("options",)),
    "reference": Engine(()),
    "openvino": Engine(("device", "options"), packages=("openvino",)),
    "opencv": Engine(("options",), packages=("opencv-python-headless", "opencv-python")),
    "litert": Engine(("options",), packages=("ai-edge-litert",)),
    "mnn": Engine(("options",), packages=("mnn",)),
    "ncnn": Engine(("options",), packages=("ncnn",)),
    "web": Engine((*_OF_SESSIONS, "options", "strict"), "webgpu"),
}
_PLUGIN = Engine()


def engine(name: str) -> Engine:
    """Return what is known of an engine, of another package's nothing."""
    return ENGINES.get(name, _PLUGIN)


def engine_of_package(package: str) -> str | None:
    """Return the engine that a package brings, ``None`` where it brings none."""
    return next((name for name, each in ENGINES.items() if package in each.packages), None)


def unheeded(name: str, given: Iterable[str]) -> tuple[str, ...]:
    """Return the keys of an entry that its engine does not read."""
    known = ("name", "tolerance")
    return tuple(key for key in given if key not in known and not engine(name).takes(key))
