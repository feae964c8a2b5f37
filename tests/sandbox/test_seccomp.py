"""What the filter refuses, asked of the kernel by a process that has it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from onnx_gate.sandbox import seccomp

SCRIPT = """
import ctypes, os, resource, socket
from onnx_gate.sandbox.seccomp import restrict
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # no_new_privs
restrict(network=False)
kind, parent = resource.RLIMIT_FSIZE, os.getppid()
soft, hard = resource.getrlimit(kind)
resource.setrlimit(kind, (4096, hard))
assert resource.getrlimit(kind) == (4096, hard)
assert resource.prlimit(parent, kind) == (soft, hard)
try:
    resource.prlimit(parent, kind, (soft, hard))
except PermissionError:
    print("refused")
socket.socket(socket.AF_UNIX).close()
os.close(os.open("/dev/null", os.O_RDONLY))
"""


@pytest.mark.process
@pytest.mark.skipif(not seccomp.available(), reason="no filters here")
def test_no_process_sets_the_limits_of_another() -> None:
    """The fork server is every model's parent, and of the same user."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr
