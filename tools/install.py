"""Install onnx-gate and its tools into the running virtual environment.

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


def cpu_index() -> list[str]:
    """Return pip's arguments for PyTorch's CPU index, none where it cannot be reached."""
    try:
        with urllib.request.urlopen(f"{CPU_INDEX}/torch/", timeout=5):
            return ["--extra-index-url", CPU_INDEX]
    except OSError:
        return []


def main() -> None:
    """Run pip."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, *constraints, *cpu_index(), "--editable", f"{ROOT}[dev]"], check=True)


if __name__ == "__main__":
    main()
