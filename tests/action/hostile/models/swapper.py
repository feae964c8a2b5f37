"""Writes wherever a neighbour, or what is started after this, might read."""

import glob
import os
import time
from pathlib import Path

from models.plain import Plain


def build():
    private = Path(os.environ["HOME"]).parents[2]
    end = time.monotonic() + 4
    while time.monotonic() < end:
        places = [
            *glob.glob("onnx-gate-report/models/honest*/*"),
            "onnx-gate-report/models/honest/model.onnx",
            "onnx-gate-report/models/new",
            str(private / "models/honest/home/evil"),
            str(private / "home/evil"),
            str(private / "tmp/evil"),
        ]
        for place in places:
            try:
                with open(place, "w") as file:
                    file.write("evil")
                print(f"SWAPPED {place}")
            except FileNotFoundError:
                continue
            except OSError as error:
                print(f"KEPT {place.rpartition('/')[2]} {type(error).__name__}")
        time.sleep(0.05)
    Path(os.environ["HOME"], "mine").write_text("allowed")
    Path(os.environ["TMPDIR"], "mine").write_text("allowed")
    print("ALLOWED")
    return Plain()
