"""Whether there is a browser to test with, and why not."""

from __future__ import annotations

import os

import pytest

from onnx_gate_engines.web import package
from onnx_gate_engines.web.chromium import BrowserError, find_chromium
from tools.browser import WEB

_INSTALLED = WEB / "onnxruntime-web"


def _missing() -> str:
    # What ``make test`` installs, unless the variable names another.
    os.environ.setdefault(package.VARIABLE, str(_INSTALLED))
    try:
        find_chromium()
        package.find_package()
    except BrowserError as error:
        return str(error)
    except package.PackageMissing as error:
        return f"{error}: npm ci --prefix tools/web"
    return ""


MISSING = _missing()
needs_browser = pytest.mark.skipif(bool(MISSING), reason=MISSING or "there is one")
