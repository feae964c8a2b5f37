"""What ``warm`` has imported before it forks: what a run imports, in the order of its fork server."""

import importlib
import os

# Read by the threads' library as it is loaded; the fork server sets it for its workers.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from onnx_gate.gate.tasks import PRELOAD

for name in ("onnx_gate.cli.app", *PRELOAD):
    importlib.import_module(name)
