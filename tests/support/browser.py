"""Whether there is a browser to test with, and why not."""

from __future__ import annotations

import pytest

from onnx_gate.runtimes.web.chromium import BrowserError, find_chromium
from onnx_gate.runtimes.web.package import PackageMissing, find_package


def _missing() -> str:
    try:
        find_chromium()
        find_package()
    except (BrowserError, PackageMissing) as error:
        return str(error)
    return ""


MISSING = _missing()
needs_browser = pytest.mark.skipif(bool(MISSING), reason=MISSING or "there is one")
