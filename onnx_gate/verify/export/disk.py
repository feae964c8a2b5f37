"""Is there room for the exported file, and was a failure to write it for want of room?"""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import torch

from onnx_gate.findings import codes
from onnx_gate.runtimes import state
from onnx_gate.text import binary_size

# The graph itself, names, alignment, and what others write meanwhile.
MARGIN_BYTES = 32 * 2**20
MARGIN_SHARE = 0.05

_FULL = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})
# numpy.ndarray.tofile raises without an errno.
_CUT_SHORT = re.compile(r"\d+ requested and \d+ written")
_REMEDY = (
    "Let --output be a folder on a larger disk (for the container a volume, docker run -v "
    "/large:/out), or free space: docker system prune, or fewer models side by side, --jobs 1"
)


def check_room(folder: Path, module: torch.nn.Module) -> None:
    """Raise ``GateError`` (OG210) where ``folder`` has no room for the weights of ``module``."""
    needed = needed_bytes([tensor for _, tensor in state.tensors(module)])
    message = shortage(needed, shutil.disk_usage(folder).free)
    if message:
        raise codes.OG210.error(message)


def needed_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes that a file with these tensors takes, each counted once."""
    different = {id(tensor): tensor for tensor in tensors}.values()
    weights = sum(tensor.numel() * tensor.element_size() for tensor in different)
    return weights + int(MARGIN_SHARE * weights) + MARGIN_BYTES if weights else 0


def shortage(needed: int, free: int) -> str:
    """Return what is wrong where ``needed`` bytes do not fit into ``free``, or ''."""
    if needed <= free:
        return ""
    return (
        f"the exported file needs about {binary_size(needed)}, and where it is written only "
        f"{binary_size(free)} are free. {_REMEDY}"
    )


def disk_full(error: BaseException) -> str:
    """Return the message where ``error`` says that a file could not be written in full, or ''."""
    if not isinstance(error, OSError):
        return ""
    if error.errno not in _FULL and not _CUT_SHORT.search(str(error)):
        return ""
    why = error.strerror or "the file was cut short"
    return f"the exported file could not be written in full ({why}). {_REMEDY}"
