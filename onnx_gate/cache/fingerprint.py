"""What the numbers depend on beside the model: packages, interpreter, instruction set, variables.

Run as a program it prints this for the interpreter that runs it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import site
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import onnx_gate
from onnx_gate.cache.path_names import digest
from onnx_gate.errors import UserError
from onnx_gate.plugins import plugins

# Read by native code, which nobody sees do so, or before any model's code runs.
VARIABLES = (
    *("ATEN_", "BLIS_", "CUBLAS_", "CUDA_", "CUDNN_", "DNNL_", "GOMP_", "KMP_", "LD_", "MALLOC_"),
    *("MKL_", "NUMBA_", "NUMEXPR_", "NVIDIA_", "OMP_", "ONEDNN_", "OPENBLAS_", "ORT_", "PYTHON"),
    *("PYTORCH_", "TORCH", "TF32_", "TZ", "LANG", "LC_"),
)
_SECONDS = 60
_CPU_KEYS = ("flags", "Features", "CPU implementer", "CPU part")
_GPU = Path("/proc/driver/nvidia/version")


def fingerprint() -> dict[str, str]:
    """Return a digest, or a version, for each thing that the numbers depend on.

    The packages are ``package NAME`` each.
    """
    return {
        "onnx-gate": f"{onnx_gate.__version__} {_source_digest()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": " ".join((sys.platform, platform.machine(), *platform.libc_ver())),
        "the CPU's instruction set": _instruction_set(),
        **({"the GPU's driver": digest(_GPU.read_bytes())} if _GPU.exists() else {}),
        **{f"package {name}": version for name, version in sorted(_packages().items())},
    }


def fingerprint_of(python: str | None, prefix: Iterable[str] = ()) -> dict[str, str]:
    """Return the fingerprint of another interpreter, of this one where ``python`` is null.

    ``prefix`` is a command that enters a sandbox. Raises ``UserError`` where it does not answer.
    """
    if python is None:
        return fingerprint()
    command = [*prefix, python, "-I", "-m", "onnx_gate.cache.fingerprint"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=True, env={})
        answer = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise UserError(f"{python} does not say which packages it has: {error}") from error
    if not isinstance(answer, dict):
        raise UserError(f"{python} does not say which packages it has")
    return {str(key): str(value) for key, value in answer.items()}


def variables_that_matter(environment: Mapping[str, str]) -> dict[str, str]:
    """Return, as digests, the variables that native code reads."""
    return {
        f"${name}": digest(value.encode("utf-8", "surrogateescape"))
        for name, value in sorted(environment.items())
        if name.startswith(VARIABLES)
    }


def _packages() -> dict[str, str]:
    """Return versions of all distributions, with a digest of their lists of files.

    By the names of the folders: reading every package's metadata takes a second. Of two with one
    name it is the first on the path that is imported.
    """
    versions: dict[str, str] = {}
    for folder in dict.fromkeys(os.path.realpath(path) for path in (*sys.path, *_site()) if path):
        with suppress(OSError):
            for entry in sorted(os.listdir(folder)):
                if not entry.endswith((".dist-info", ".egg-info")):
                    continue
                name, _, version = entry.rpartition(".")[0].partition("-")
                record = b""
                for file in ("RECORD", "direct_url.json"):
                    with suppress(OSError):
                        record += Path(folder, entry, file).read_bytes()
                name = name.lower().replace("_", "-")
                versions.setdefault(name, f"{version} {_record_digest(record)}")
    return versions


def _record_digest(record: bytes) -> str:
    """Return a digest of a package's list of files.

    Without its programs, which say where the interpreter lies, and without bytecode.
    """
    kept = [
        line for line in record.splitlines() if not line.startswith(b"../") and b".pyc," not in line
    ]
    return digest(b"\n".join(kept))[:16]


def _site() -> Iterator[str]:
    with suppress(Exception):
        yield from site.getsitepackages()
        if site.ENABLE_USER_SITE:
            yield site.getusersitepackages()


def _instruction_set() -> str:
    """Return what decides about the kernels that are chosen: the processor's kind and features."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()
    features = set()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in _CPU_KEYS:
            features.add(" ".join(sorted(value.split())))
    return digest("\n".join(sorted(features)).encode())


def _source_digest() -> str:
    """Return a digest of the gate's code and of its engines', of which an editable package has none."""
    hashed = hashlib.sha256()
    engines = {entry.module.partition(".")[0] for entry in plugins("onnx_gate.runtimes")}
    for package in sorted(engines | {"onnx_gate"}):
        found = find_spec(package)
        for folder in map(Path, (found and found.submodule_search_locations) or ()):
            for path in sorted(folder.rglob("*")):
                if path.suffix in (".py", ".j2", ".js", ".md") and path.is_file():
                    name = path.relative_to(folder).as_posix()
                    hashed.update(f"{name}\0".encode() + path.read_bytes())
    return hashed.hexdigest()[:16]


if __name__ == "__main__":
    print(json.dumps(fingerprint()))
