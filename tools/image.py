"""Install a part of what the image holds, in a layer of its own; used by the Dockerfile only.

    python -I tools/image.py torch|verify|publish|gate

The parts in order of how often they change: torch, the other packages (all, or those that publishing
needs) as tools/locks has them, the gate itself. Each layer removes in itself what nobody reads.
"""

from __future__ import annotations

import compileall
import shutil
import site
import subprocess
import sys
import urllib.request
from pathlib import Path

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
HERE = Path(__file__).resolve().parent.parent
# Headers and static libraries are for compiling extensions, for which the image has no compiler.
UNREAD = ("torch/include", "torch/share", "torch/test", "torch/bin/test_*", "torch/**/*.a")


def main(part: str) -> None:
    """Install ``part``."""
    if part == "gate":
        engines = HERE / "engines"  # which publishing has no use for
        own = [str(folder) for folder in (HERE, engines) if folder.is_dir()]
        pip("--no-deps", "--no-build-isolation", *own)
        for package in packages().glob("onnx_gate*"):
            compileall.compile_dir(package, quiet=1)
        return
    if part == "torch":
        # What it needs comes with the locked packages.
        pip("--no-deps", *cpu_index(), "--constraint", str(HERE / "constraints.txt"), "torch")
        for pattern in UNREAD:
            for path in packages().glob(pattern):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return
    pip("--no-deps", "--require-hashes", "--requirement", str(HERE / "tools/locks" / f"{part}.txt"))


def cpu_index() -> list[str]:
    """Return pip's arguments for PyTorch's index of CPU builds, none where it does not answer."""
    try:
        with urllib.request.urlopen(f"{CPU_INDEX}/torch/", timeout=10):
            return ["--extra-index-url", CPU_INDEX]
    except OSError:
        return []


def packages() -> Path:
    """Return the folder that pip installs into."""
    found = [Path(path) / "onnx_gate" for path in site.getsitepackages()]
    found += [Path(path) / "torch" for path in site.getsitepackages()]
    present = [path.parent for path in found if path.is_dir()]
    return present[0] if present else Path(site.getsitepackages()[0])


def pip(*arguments: str) -> None:
    """Install, leaving no cache behind."""
    options = ["--no-cache-dir", "--disable-pip-version-check", "--root-user-action=ignore"]
    command = [sys.executable, "-m", "pip", "install", *options, *arguments]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main(sys.argv[1])
