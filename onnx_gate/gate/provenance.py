"""What a report says of where it comes from: the manifest in its repository, and the commit."""

from __future__ import annotations

import os
import subprocess
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from onnx_gate.manifest import Manifest
from onnx_gate.manifest.find import path_in_repository
from onnx_gate.report.model import Commit, ManifestInfo

_SECONDS = 10.0


def manifest_info(manifest: Manifest) -> ManifestInfo:
    """Return which manifest it is, by its path from the repository's root."""
    workspace = os.environ.get("GITHUB_WORKSPACE")
    path = path_in_repository(
        manifest.path.resolve(), Path(workspace).resolve() if workspace else None
    )
    return ManifestInfo(path=path, sha256=manifest.sha256)


def commit_of(folder: Path) -> Commit | None:
    """Return the commit that is checked out around a folder; none without git or a repository."""
    try:
        ended = subprocess.run(
            ["git", "log", "-1", "--no-show-signature", "--format=%H %cI"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
        sha, time = ended.stdout.split()
        return Commit(sha=sha, time=datetime.fromisoformat(time.replace("Z", "+00:00")))
    except (OSError, subprocess.SubprocessError, ValueError, ValidationError):
        return None
