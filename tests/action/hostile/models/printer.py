"""Prints whatever a runner might obey, in every way that a process can print."""

import ctypes
import os
import sys

from models.plain import Plain

LINES = (
    "::error::printed",
    "  ::set-output name=verdict::pass",
    "::add-path::/evil",
    "##[add-path]/evil",
    "text ##[error]in the middle",
    "\r::error::after a carriage return",
    "::endgroup::",
    "::stop-commands::guess",
    "\x1b[31m::error::coloured",
    "\u2028::error::after a separator",
)


def build():
    for line in LINES:
        print(line)
        print(line, file=sys.stderr)
        os.write(1, line.encode() + b"\n")
        os.write(2, b"\r\n" + line.encode() + b"\n")
        ctypes.CDLL(None).puts(line.encode())
    raise RuntimeError("\n".join(LINES))


_ = Plain
