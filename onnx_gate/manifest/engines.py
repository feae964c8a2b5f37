"""What is known of an engine without loading it: what an entry may say of it, and how near it comes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from onnx_gate.manifest.spec import DEFAULT_AUTO, RuntimeSpec, Tolerance

_USUAL = Tolerance(auto=DEFAULT_AUTO)


@dataclass(frozen=True)
class Engine:
    """One engine: the keys of its entries beside ``name`` and ``tolerance``.

    ``auto`` is the factor that stands for the usual one, where correct models on this engine are
    further from PyTorch than on ONNX Runtime; the page on runtimes has the measurement.
    """

    keys: tuple[str, ...] = ()
    auto: float = DEFAULT_AUTO


ENGINES: Mapping[str, Engine] = {
    "onnxruntime": Engine(
        ("provider", "optimization", "provider_options", "session_options", "strict")
    ),
    "reference": Engine(),
    "openvino": Engine(("device", "options")),
    "opencv": Engine(("options",)),
    "litert": Engine(("options",)),
    "mnn": Engine(("options",)),
    "web": Engine(
        ("provider", "optimization", "provider_options", "session_options", "options", "strict")
    ),
}


def default_entry(name: str, tolerance: Tolerance) -> RuntimeSpec:
    """Return what the name alone means for a model of this tolerance."""
    return RuntimeSpec(name, tolerance=default_tolerance(name, tolerance))


def default_tolerance(name: str, tolerance: Tolerance) -> Tolerance | None:
    """Return what holds on an engine whose entry has no tolerance; ``None`` is the model's.

    An engine's own factor stands for the usual one, and for nothing that a manifest asks for.
    """
    engine = ENGINES.get(name)
    if engine is None or engine.auto == DEFAULT_AUTO or tolerance != _USUAL:
        return None
    return Tolerance(auto=engine.auto)


def unheeded(name: str, given: Iterable[str]) -> tuple[str, ...]:
    """Return the keys of an entry that its engine does not read; a plug-in may read any."""
    engine = ENGINES.get(name)
    if engine is None:
        return ()
    return tuple(key for key in given if key not in ("name", "tolerance", *engine.keys))
