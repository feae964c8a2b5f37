"""Where the pages are that a message points to: whoever reads it has installed a wheel, which has none."""

from __future__ import annotations

BASE = "https://github.com/onnx-gate/onnx-gate/blob/main/docs"


def page(name: str) -> str:
    """Return the address of a page, ``manifest.md`` or ``security.md#forks``."""
    return f"{BASE}/{name}"
