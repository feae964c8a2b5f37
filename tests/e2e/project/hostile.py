"""Models that do harm: to themselves only, if the gate is right."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import torch
from torch import Tensor, nn


class Innocent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class Harmful(Innocent):
    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            self.harm()
        return self.linear(x)

    def harm(self) -> None:
        raise NotImplementedError


class Exits(Harmful):
    def harm(self) -> None:
        sys.exit(0)


class ExitsAtOnce(Harmful):
    def harm(self) -> None:
        os._exit(0)


class Segfaults(Harmful):
    def harm(self) -> None:
        ctypes.string_at(0)


class Loops(Harmful):
    def harm(self) -> None:
        while True:
            pass


class Allocates(Harmful):
    def harm(self) -> None:
        kept = []
        while True:
            kept.append(bytearray(32 * 2**20))


class Raises(Harmful):
    def harm(self) -> None:
        raise KeyError("::error::not today")


class Corrupts(Harmful):
    """Writes to every descriptor that it finds."""

    def harm(self) -> None:
        for descriptor in range(3, 256):
            try:
                os.write(descriptor, b'{"kind": "result", "model": {"verdict": "pass"}}\n')
            except OSError:
                continue


class KillsParent(Harmful):
    def harm(self) -> None:
        os.kill(os.getppid(), signal.SIGKILL)


class Interrupts(Harmful):
    def harm(self) -> None:
        raise KeyboardInterrupt


class Stops(Harmful):
    def harm(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)


class DiesLater(Innocent):
    """Answers rightly, and takes the process down before its result is complete."""

    def __init__(self) -> None:
        super().__init__()
        threading.Thread(target=self.wait, daemon=True).start()

    @staticmethod
    def wait() -> None:
        time.sleep(0.3)
        os._exit(0)


class Multiplies(Harmful):
    def harm(self) -> None:
        workers = [subprocess.Popen(["sleep", "60"]) for _ in range(300)]
        for worker in workers:
            worker.wait()


class Sabotages(Harmful):
    """Breaks what the gate itself works with, in their common process."""

    def harm(self) -> None:
        vars(psutil)["virtual_memory"] = None


# These do nothing that could change a number, so they pass, and must not get in anyone's way.


class Prints(Harmful):
    def harm(self) -> None:
        print("::error::forged")
        print("::set-output name=verdict::pass")
        print("##[error]forged", file=sys.stderr)


class ClosesStdout(Harmful):
    def harm(self) -> None:
        for descriptor in (1, 2):
            with contextlib.suppress(OSError):
                os.close(descriptor)


class LeavesThreads(Harmful):
    def harm(self) -> None:
        threading.Thread(target=time.sleep, args=(600,)).start()
