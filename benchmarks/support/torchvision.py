"""Where ``sitecustomize.py`` is, which lets torchvision be imported beside a CPU build of torch."""

from __future__ import annotations

import os
from pathlib import Path

SITE = Path(__file__).resolve().parent / "site"


def on_path(environment: dict[str, str]) -> dict[str, str]:
    """Return an environment in which Python finds it."""
    paths = [str(SITE), environment.get("PYTHONPATH", "")]
    return {**environment, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
