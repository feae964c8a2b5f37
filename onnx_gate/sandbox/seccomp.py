"""A seccomp filter: system calls that no model needs, and sockets to the internet, are refused.

The filter is classic BPF over ``struct seccomp_data`` (linux/seccomp.h): the number of the call at
offset 0, the architecture at 4, the first argument at 16, each of eight bytes, the lower half first.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Mapping

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_PR_GET_SECCOMP = 21

_LOAD, _JUMP_EQ, _JUMP_GE, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCH, _ARGUMENT, _THIRD = 0, 4, 16, 32
_X32 = 0x40000000

_ARCHITECTURES: Mapping[str, tuple[int, int]] = {
    "x86_64": (0xC000003E, 0),
    "aarch64": (0xC00000B7, 1),
}

_SOCKET = (41, 198)
# All models are one user: what one of them may set for another, or for the fork server, ends that.
_PRLIMIT = (302, 261)
_REFUSED: Mapping[str, tuple[int, int]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "unshare": (272, 97),
    "setns": (308, 268),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "open_by_handle_at": (304, 265),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "kexec_load": (246, 104),
}
# io_uring makes sockets past any filter; programs take "not implemented" for an old kernel.
_UNKNOWN: Mapping[str, tuple[int, int]] = {
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def available() -> bool:
    """Return whether the kernel has filters and the architecture is one whose calls are known."""
    libc = ctypes.CDLL(None, use_errno=True)
    return platform.machine() in _ARCHITECTURES and libc.prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) >= 0


def restrict(*, network: bool) -> None:
    """Install the filter for this thread and its children, for good; needs ``no_new_privs``.

    Raises ``OSError`` where the kernel refuses, and ``KeyError`` where ``available`` is false.
    """
    code = _program(platform.machine(), network=network)
    program = _Program(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")


def _program(machine: str, *, network: bool) -> bytes:
    audit, column = _ARCHITECTURES[machine]
    families = (_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK) if network else (_AF_UNIX,)
    code = [
        _step(_LOAD, _ARCH),
        _step(_JUMP_EQ, audit, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        code += [_step(_JUMP_GE, _X32, 0, 1), _step(_RETURN, _ERRNO | errno.ENOSYS)]
    for numbers, answer in ((_REFUSED, errno.EPERM), (_UNKNOWN, errno.ENOSYS)):
        for number in numbers.values():
            code += [_step(_JUMP_EQ, number[column], 0, 1), _step(_RETURN, _ERRNO | answer)]
    code += [
        # Its own limits, by the number 0, and to ask for any; no other process's.
        _step(_JUMP_EQ, _PRLIMIT[column], 0, 8),
        _step(_LOAD, _ARGUMENT),
        _step(_JUMP_EQ, 0, 4, 0),
        _step(_LOAD, _THIRD),
        _step(_JUMP_EQ, 0, 0, 3),
        _step(_LOAD, _THIRD + 4),
        _step(_JUMP_EQ, 0, 0, 1),
        _step(_RETURN, _ALLOW),
        _step(_RETURN, _ERRNO | errno.EPERM),
    ]
    code += [
        _step(_JUMP_EQ, _SOCKET[column], 1, 0),
        _step(_RETURN, _ALLOW),
        _step(_LOAD, _ARGUMENT),
    ]
    for family in families:
        code += [_step(_JUMP_EQ, family, 0, 1), _step(_RETURN, _ALLOW)]
    code += [_step(_RETURN, _ERRNO | errno.EACCES)]
    return b"".join(code)


def _step(code: int, value: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, true, false, value)
