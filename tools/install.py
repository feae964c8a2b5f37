"""Install onnx-gate into the running virtual environment: ``run``, or ``dev`` with its tools.

PyTorch's own index has CPU builds that are a tenth of the size of the default ones. It is asked
for them where it answers; where it does not, the default index serves alone.
"""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from pathlib import Path

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
ROOT = Path(__file__).resolve().parent.parent
WHAT = {
    "run": ("", "onnx-gate, with PyTorch and ONNX Runtime"),
    "dev": ("[dev]", "onnx-gate, with PyTorch and ONNX Runtime, its linters and its tests' tools"),
}


def cpu_index() -> list[str]:
    """Return pip's arguments for PyTorch's CPU index, none where it cannot be reached."""
    try:
        with urllib.request.urlopen(f"{CPU_INDEX}/torch/", timeout=5):
            return ["--extra-index-url", CPU_INDEX]
    except OSError:
        return []


def main() -> None:
    """Run pip."""
    extra, words = WHAT[sys.argv[1]]
    print(f"installing into {sys.prefix}: {words}", flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, *constraints, *cpu_index(), "--editable", f"{ROOT}{extra}"], check=True)


if __name__ == "__main__":
    main()
