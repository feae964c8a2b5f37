"""The container's face: the runner's environment in, an exit status out; no logic.

Started as ``python -I``: neither the job's ``PYTHONPATH`` nor the workspace can add a module to
the process that holds the token.
"""

import sys

if __name__ == "__main__":
    if len(sys.argv) > 1:
        from onnx_gate.cli import main

        main()
    else:
        from onnx_gate.action.main import main as act

        sys.exit(act())
