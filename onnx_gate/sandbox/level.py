"""How far this machine's sandbox goes: what the kernel offers, tried once in a process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from onnx_gate.report.model import Sandbox
from onnx_gate.sandbox import landlock, seccomp
from onnx_gate.sandbox.policy import DEVICES, Policy, runtime_paths

_TRY_SECONDS = 60.0
_CONNECTED = 3
_OPEN_ENGINE = "a closed door to the container engine (its socket is open to everyone)"
# Landlock has no say over connecting to a socket: only its owner and mode have.
_TRIAL = f"""
import socket, sys
for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"):
    try:
        socket.socket(socket.AF_UNIX).connect(path)
    except OSError:
        continue
    sys.exit({_CONNECTED})
"""


def reachable(policy: Policy, folder: Path) -> tuple[Policy, Sandbox]:
    """Return ``policy`` with all that this machine can hold it to, and the level that this is.

    ``folder`` takes the file of the trial.
    """
    missing = []
    if os.getuid() != 0:
        policy = replace(policy, uid=None)
        missing.append("a uid of its own (the gate does not run as root)")
    if landlock.abi() == 0:
        policy = replace(policy, landlock=False)
        missing.append("Landlock (the kernel has none)")
    if not seccomp.available():
        policy = replace(policy, seccomp=False)
        missing.append("seccomp (the kernel has none, or the architecture is not known)")
    for name, weaker in (
        ("seccomp", replace(policy, seccomp=False)),
        ("Landlock", replace(policy, seccomp=False, landlock=False)),
        ("a uid of its own", replace(policy, seccomp=False, landlock=False, uid=None)),
    ):
        refusal = _trial(policy, folder)
        if refusal is None or refusal == _OPEN_ENGINE:
            break
        policy = weaker
        missing.append(f"{name} ({refusal})")
    if refusal == _OPEN_ENGINE:
        missing.append(_OPEN_ENGINE)
    return policy, _level(policy, missing)


def _level(policy: Policy, missing: list[str]) -> Sandbox:
    parts = (policy.uid is not None, policy.landlock, policy.seccomp, not missing)
    return Sandbox(
        level="full" if all(parts) else "partial" if any(parts) else "none",
        uid=policy.uid,
        landlock=landlock.abi() if policy.landlock else 0,
        seccomp=policy.seccomp,
        missing=tuple(missing),
    )


def _trial(policy: Policy, folder: Path) -> str | None:
    """Enter with ``policy`` and end; return why that was refused."""
    # Enough for an interpreter to start: what the policy itself lists is not the question.
    policy = replace(policy, readable=runtime_paths(), writable=DEVICES, environment={})
    command = [*policy.command(folder / "trial.json"), sys.executable, "-I", "-c", _TRIAL]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TRY_SECONDS, env={}, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    if done.returncode == _CONNECTED:
        return _OPEN_ENGINE
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit status {done.returncode}"
