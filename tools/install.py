"""Install onnx-gate into the running virtual environment: ``run``, or ``dev`` with its tools.

PyTorch's own index has CPU builds that are a tenth of the size of the default ones. It is asked
for them where it answers; where it does not, the default index serves alone.

``npm`` installs what tests take from npm, or says why it cannot: nothing fails, those tests are skipped.
"""

from __future__ import annotations

import shutil
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

# A registry that does not answer is not worth waiting for: what needs it is skipped.
NPM = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1")
NPM_SECONDS = 180


def cpu_index() -> list[str]:
    """Return pip's arguments for PyTorch's CPU index, none where it cannot be reached."""
    try:
        with urllib.request.urlopen(f"{CPU_INDEX}/torch/", timeout=5):
            return ["--extra-index-url", CPU_INDEX]
    except OSError:
        return []


def why_not_npm() -> str:
    """Install the packages of ``tools/web``; return why they are not there, nothing where they are."""
    npm = shutil.which(NPM[0])
    if npm is None:
        return "npm is not on PATH"
    command = [npm, *NPM[1:], "--prefix", str(ROOT / "tools" / "web")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=NPM_SECONDS)
    except subprocess.TimeoutExpired:
        return f"'npm ci' took more than {NPM_SECONDS} s"
    return "" if done.returncode == 0 else done.stderr.strip() or f"status {done.returncode}"


def main() -> None:
    """Run npm, or pip."""
    if sys.argv[1] == "npm":
        print("installing into tools/web: ONNX Runtime Web and axe-core, for tests", flush=True)
        if reason := why_not_npm():
            print(f"not installed, so tests that need them are skipped: {reason}", flush=True)
        return
    extra, words = WHAT[sys.argv[1]]
    print(f"installing into {sys.prefix}: {words}", flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    own = ["--editable", f"{ROOT}{extra}", "--editable", str(ROOT / "engines")]
    subprocess.run([*pip, *constraints, *cpu_index(), *own], check=True)


if __name__ == "__main__":
    main()
