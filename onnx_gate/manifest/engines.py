"""What is known of an engine without loading it: which keys its entries may have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

ENGINES: Mapping[str, tuple[str, ...]] = {
    "onnxruntime": ("provider", "optimization", "provider_options", "session_options", "strict"),
    "reference": (),
    "openvino": ("device", "options"),
    "opencv": ("options",),
    "litert": ("options",),
    "mnn": ("options",),
    "ncnn": ("options",),
    "web": ("provider", "optimization", "provider_options", "session_options", "options", "strict"),
}
"""The keys of an entry of each engine, beside ``name`` and ``tolerance``."""


def unheeded(name: str, given: Iterable[str]) -> tuple[str, ...]:
    """Return the keys of an entry that its engine does not read; a plug-in may read any."""
    if name not in ENGINES:
        return ()
    return tuple(key for key in given if key not in ("name", "tolerance", *ENGINES[name]))
