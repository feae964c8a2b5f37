"""The program that gives up every right, then becomes another: ``enter FILE COMMAND...``.

It runs alone, single-threaded, with the standard library only. What it cannot do it must not
pretend to have done: any refusal ends it with status 125 before the command starts.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from pathlib import Path
from typing import NoReturn

from onnx_gate.sandbox import landlock, seccomp
from onnx_gate.sandbox.policy import PROCESSES, Policy

REFUSED = 125
_PR_SET_NO_NEW_PRIVS = 38


def enter(policy: Policy) -> None:
    """Give up what ``policy`` does not allow; raises ``OSError`` where the kernel refuses."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if policy.uid is not None:
        most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        most = PROCESSES if most == resource.RLIM_INFINITY else min(PROCESSES, most)
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    if policy.uid is not None:
        gid = policy.gid if policy.gid is not None else policy.uid
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(policy.uid, policy.uid, policy.uid)
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs was refused")
    if policy.landlock:
        landlock.restrict(
            policy.listable,
            policy.readable,
            (*policy.writable, *policy.devices),
            network=policy.network,
        )
    if policy.seccomp:
        seccomp.restrict(network=policy.network)


def main() -> NoReturn:
    """Enter the sandbox and become the command."""
    command = sys.argv[2:]
    try:
        policy = Policy.from_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
        os.umask(0o022)
        enter(policy)
        os.execve(command[0], command, dict(policy.environment))
    except OSError as error:
        print(f"the sandbox could not be entered: {error}", file=sys.stderr, flush=True)
        os._exit(REFUSED)


if __name__ == "__main__":
    main()
