"""Landlock: the kernel lets this process, and all that come from it, open only what is listed.

System calls and structures are those of the kernel's userspace API (linux/landlock.h); their
numbers are the same on every architecture.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable
from contextlib import suppress

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_NET = 0b11  # bind and connect over TCP
_SCOPES = 0b11  # abstract unix sockets, signals


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def abi() -> int:
    """Return the version that the kernel offers, 0 where it offers none."""
    return max(0, _call(_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION))


def restrict(
    listable: Iterable[str], readable: Iterable[str], writable: Iterable[str], *, network: bool
) -> None:
    """Restrict this thread and its children for good; needs ``no_new_privs``.

    A folder stands for all beneath it. Paths that do not exist and symbolic links are left out: a
    link may lead to what must not be listed. Raises ``OSError``.
    """
    version = abi()
    handled = (1 << 13) - 1
    handled |= (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    rules = _Ruleset(
        handled, _NET if version >= 4 and not network else 0, _SCOPES if version >= 6 else 0
    )
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = _check(_call(_CREATE_RULESET, ctypes.byref(rules), size, 0))
    try:
        for path in listable:
            _allow(ruleset, path, _READ_DIR)
        for path in readable:
            _allow(ruleset, path, _READ)
        for path in writable:
            _allow(ruleset, path, handled)
        _check(_call(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    with suppress(FileNotFoundError, PermissionError):
        handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            mode = os.fstat(handle).st_mode
            if stat.S_ISLNK(mode):
                return
            if not stat.S_ISDIR(mode):
                rights &= _OF_FILES
            rule = _PathBeneath(rights, handle)
            _check(_call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0))
        finally:
            os.close(handle)


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result: int = libc.syscall(
        ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)
    )
    return result


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"landlock: {os.strerror(number)}")
    return result
