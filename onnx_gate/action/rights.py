"""What the models, pip and services may do in the container: their folders, and a policy each."""

from __future__ import annotations

import glob
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from onnx_gate.action import allowed_environment
from onnx_gate.action.action_inputs import Inputs
from onnx_gate.files import remove_tree
from onnx_gate.report.layout import MODELS, OF_EACH, REMEDIES, Layout
from onnx_gate.report.model import Sandbox
from onnx_gate.sandbox.git_folders import Survey
from onnx_gate.sandbox.level import reachable
from onnx_gate.sandbox.policy import DEVICES, INSTALLER, SERVICES, Policy, runtime_paths
from onnx_gate.workers.launch import ServiceLaunch


@dataclass(frozen=True)
class RunFolders:
    """Folders of this run: ``root`` is the gate's, the others the models' or pip's to write to."""

    root: Path
    home: Path
    temporary: Path
    site: Path
    private: Path
    services: Path
    pip_home: Path
    pip_temporary: Path
    since: Path


def policy_for(
    inputs: Inputs,
    environ: Mapping[str, str],
    workspace: Path,
    surveyed: Survey,
    output: Path,
    folders: RunFolders,
) -> tuple[Policy, Sandbox]:
    """Return what the models may do, and how much of it this machine keeps."""
    written = [output / MODELS, Layout(folders.since / OF_EACH).models]
    written += [output / REMEDIES] if inputs.remedies else []
    for folder in written:
        folder.mkdir(exist_ok=True, parents=True)
    devices = (*DEVICES, *sorted(glob.glob("/dev/nvidia*")))
    policy = Policy(
        environment=allowed_environment.for_models(environ, folders.home, folders.temporary),
        listable=(str(workspace),),
        readable=(*runtime_paths(), *surveyed.rest, str(folders.site), str(folders.since)),
        writable=tuple(map(str, (folders.home, folders.temporary, folders.private, *written))),
        devices=devices,
    )
    if inputs.sandbox == "off":
        return replace(policy, uid=None, landlock=False, seccomp=False), Sandbox(level="off")
    policy, level = reachable(policy, folders.root)
    if policy.uid is not None:
        for folder in (folders.home, folders.temporary):
            os.chown(folder, policy.uid, policy.uid)
        os.chown(folders.services, SERVICES, SERVICES)
        for folder in (folders.pip_home, folders.pip_temporary, folders.site):
            os.chown(folder, INSTALLER, policy.uid)
    return policy, level


def with_network(
    environ: Mapping[str, str], policy: Policy, folders: RunFolders, site: Path, *readable: Path
) -> Policy:
    """Return what an installer may do, which writes into ``site``."""
    home, temporary = folders.pip_home, folders.pip_temporary
    return replace(
        policy,
        uid=INSTALLER if policy.uid is not None else None,
        gid=policy.uid,
        network=True,
        environment=allowed_environment.for_models(environ, home, temporary, network=True),
        readable=(*policy.readable, *map(str, readable)),
        writable=(str(home), str(temporary), str(site)),
    )


def services_of(policy: Policy, folders: RunFolders) -> ServiceLaunch:
    """Return how the services of runtimes are started: they may use the network, and write nothing
    of the models'."""
    confined = replace(
        policy,
        uid=SERVICES if policy.uid is not None else None,
        gid=None,
        network=True,
        environment={**policy.environment, "HOME": str(folders.services)},
        writable=(str(folders.services),),
    )
    prefix = confined.command(folders.root / "services.json")
    return ServiceLaunch(prefix, folders.services, confined.uid)


@contextmanager
def run_folders() -> Iterator[RunFolders]:
    """Make the folders of a run, and remove them with whatever is in them."""
    # Not in RUNNER_TEMP or HOME, which are closed; and not guessable.
    root = Path(tempfile.gettempdir(), f"onnx-gate-{secrets.token_hex(8)}")
    root.mkdir(mode=0o711)
    names = ("home", "tmp", "site", "models", "services", "pip-home", "pip-tmp", "since")
    folders = RunFolders(root, *(root / name for name in names))
    try:
        for name in names:
            (root / name).mkdir(mode=0o755)
        yield folders
    finally:
        remove_tree(root)
