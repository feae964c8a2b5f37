"""Wheels of one module, for an installer that asks no index."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path


def wheel(
    folder: Path,
    name: str,
    version: str,
    source: str,
    needs: Iterable[str] = (),
    tag: str = "py3-none-any",
) -> Path:
    """Write ``NAME-VERSION-TAG.whl`` with the module ``NAME`` and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    required = "".join(f"Requires-Dist: {each}\n" for each in needs)
    files = {
        f"{name}.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    records = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for each, text in {**files, f"{info}/RECORD": records}.items():
            archive.writestr(each, text)
    return path
