"""Write tools/locks: every package of an image but torch, by version and by hash.

    python -m tools.lock

uv resolves what pyproject.toml asks for at the versions of constraints.txt. torch is not among them:
its index of CPU builds, which names the hash of each file, has other files of a version than PyPI.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tomllib
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "tools" / "locks"
PYTHON = "3.11"
BUILDS = "hatchling"
ONLY_VERIFYING = frozenset(
    (
        "torch",
        "onnx",
        "onnx-ir",
        "onnxscript",
        "onnxruntime",
        "numpy",
        "ml_dtypes",
        "safetensors",
        "libcst",
    )
)
# torch, what its builds for CUDA bring along, and the compiler of those.
NOT_LOCKED = ("torch", "triton", "cuda-", "nvidia-")


def needs(image: str) -> list[str]:
    """Return what the image ``verify`` or ``publish`` asks for, from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = map(Requirement, project["dependencies"])
    unwanted = ONLY_VERIFYING if image == "publish" else frozenset[str]()
    kept = (need for need in asked if need.name not in unwanted and _is_for_the_image(need))
    return [*map(str, kept), BUILDS]


def _is_for_the_image(need: Requirement) -> bool:
    return need.marker is None or need.marker.evaluate({"python_version": PYTHON})


def lock(image: str) -> str:
    """Return the packages that the image has, one a paragraph, with the hashes of their files."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header"]
    command += ["--python-version", PYTHON, "--generate-hashes", "--no-annotate"]
    command += ["--constraint", str(ROOT / "constraints.txt"), "-"]
    done = subprocess.run(
        command, input="\n".join(needs(image)), capture_output=True, text=True, check=True
    )
    packages = done.stdout.replace("\\\n", "\\\0").splitlines(keepends=True)
    kept = (each.replace("\0", "\n") for each in packages if not each.startswith(NOT_LOCKED))
    return f"# Written by: python -m tools.lock\n{''.join(kept)}"


if __name__ == "__main__":
    for each in ("verify", "publish"):
        (LOCKS / f"{each}.txt").write_text(lock(each), encoding="utf-8")
