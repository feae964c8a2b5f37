"""What models do to the process that runs them. Each is called as ``target(payload, emit)``."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from onnx_gate.workers import channel

MIB = 1 << 20


def dispatch(payload: dict[str, Any], emit: Any) -> None:
    """One target for all: a pool has a single one."""
    emit({"kind": "stage", "stage": "build"})
    globals()[payload["do"]](payload, emit)


def innocent(payload: dict[str, Any], emit: Any) -> None:
    """Runs until the test says that its neighbour has ended, then gives its result."""
    print("innocent output")
    marker = payload.get("until")
    while marker is not None and not Path(marker).exists():
        time.sleep(0.01)
    emit({"kind": "result", "value": payload.get("value", 1)})


def reports_and_returns(payload: dict[str, Any], emit: Any) -> None:
    emit({"kind": "result", "value": payload["value"]})


def says_its_parents(payload: dict[str, Any], emit: Any) -> None:
    emit({"kind": "result", "pid": os.getpid(), "ppid": os.getppid(), "sid": os.getsid(0)})


def lists_descriptors(payload: dict[str, Any], emit: Any) -> None:
    found = {}
    for fd in range(256):
        with contextlib.suppress(OSError):
            found[str(fd)] = os.readlink(f"/proc/self/fd/{fd}")
    emit({"kind": "result", "fds": found})


def sys_exit(payload: dict[str, Any], emit: Any) -> None:
    sys.exit(0)


def os_exit(payload: dict[str, Any], emit: Any) -> None:
    os._exit(0)


def os_exit_after_result(payload: dict[str, Any], emit: Any) -> None:
    emit({"kind": "result", "value": 7})
    os._exit(0)


def exits_with_words(payload: dict[str, Any], emit: Any) -> None:
    sys.exit("no such weights")


def segfault(payload: dict[str, Any], emit: Any) -> None:
    emit({"kind": "result", "value": 7})
    ctypes.string_at(0)


def abort(payload: dict[str, Any], emit: Any) -> None:
    os.abort()


def endless_loop(payload: dict[str, Any], emit: Any) -> None:
    while True:
        pass


def stops_itself(payload: dict[str, Any], emit: Any) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def ignores_signals(payload: dict[str, Any], emit: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(3600)


def eats_memory(payload: dict[str, Any], emit: Any) -> None:
    hoard = []
    while True:
        hoard.append(b"x" * (20 * MIB))
        time.sleep(0.01)


def child_eats_memory(payload: dict[str, Any], emit: Any) -> None:
    if os.fork() == 0:
        os.setsid()
        eats_memory(payload, emit)
    time.sleep(3600)


def raises(payload: dict[str, Any], emit: Any) -> None:
    raise RuntimeError("\x1b[31mwrong shape\x1b[0m\x07")


def prints_commands(payload: dict[str, Any], emit: Any) -> None:
    print("::error file=x::forged")
    os.system("echo ::set-output name=x::y")
    libc = ctypes.CDLL(None)
    libc.puts(b"from C")
    raise RuntimeError("##[error]old style")


def prints_progress(payload: dict[str, Any], emit: Any) -> None:
    for percent in range(100):
        sys.stdout.write(f"\r{percent} %")
    print("\n" + "y" * 5000)
    for number in range(40):
        print(f"line {number}")
    raise RuntimeError("end")


def closes_everything(payload: dict[str, Any], emit: Any) -> None:
    os.closerange(0, 256)
    emit({"kind": "result", "value": 7})


def closes_output(payload: dict[str, Any], emit: Any) -> None:
    os.close(1)
    os.close(2)
    emit({"kind": "result", "value": 7})


def leaves_threads(payload: dict[str, Any], emit: Any) -> None:
    threading.Thread(target=time.sleep, args=(3600,)).start()
    emit({"kind": "result", "value": 7})


def garbage_everywhere(payload: dict[str, Any], emit: Any) -> None:
    emit({"kind": "result", "value": 7})
    for fd in range(3, 256):
        with contextlib.suppress(OSError):
            os.write(fd, b"\x00garbage\n")
    time.sleep(3600)


def forged_frame(payload: dict[str, Any], emit: Any) -> None:
    forger = channel.Sender(emit.__self__._fd, b"t" * channel.TOKEN_BYTES)
    forger.send({"kind": "result", "value": "forged"})
    time.sleep(3600)


def data_after_the_end(payload: dict[str, Any], emit: Any) -> None:
    emit({"kind": "result", "value": 7})
    emit.__self__.end()
    emit.__self__._ended = False


def half_a_message(payload: dict[str, Any], emit: Any) -> None:
    emit({"kind": "result", "value": 7})
    sender = emit.__self__
    os.write(sender._fd, b"OGF1" + sender._token + b"M\x00\x00\x10\x00" + b'{"kind"')
    os._exit(0)


def ends_without_leaving(payload: dict[str, Any], emit: Any) -> None:
    emit({"kind": "result", "value": 7})
    emit.__self__.end()
    os.kill(os.getpid(), signal.SIGKILL)


def fails_after_the_end(payload: dict[str, Any], emit: Any) -> None:
    emit({"kind": "result", "value": 7})
    emit.__self__.end()
    os._exit(3)


def outlives_the_gate(payload: dict[str, Any], emit: Any) -> None:
    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
    _start_daemon(payload["pids"])
    with open(payload["pids"], "a") as file:
        file.write(f"{os.getpid()}\n{os.getppid()}\n")
    emit({"kind": "result"})
    time.sleep(3600)


def raw_body(payload: dict[str, Any], emit: Any) -> None:
    sender = emit.__self__
    sender._write(b"M", payload["body"])


def huge_message(payload: dict[str, Any], emit: Any) -> None:
    emit({"kind": "result", "value": "x" * (channel.MAX_MESSAGE + 1)})


def huge_header(payload: dict[str, Any], emit: Any) -> None:
    sender = emit.__self__
    os.write(sender._fd, b"OGF1" + sender._token + b"M\xff\xff\xff\xff")
    time.sleep(3600)


def large_message(payload: dict[str, Any], emit: Any) -> None:
    emit({"kind": "result", "value": "x" * (8 * MIB)})


def floods_with_results(payload: dict[str, Any], emit: Any) -> None:
    while True:
        emit({"kind": "result", "value": [{"a": 1}] * 100_000})


def slow_writer(payload: dict[str, Any], emit: Any) -> None:
    sender = emit.__self__
    body = b'{"kind":"result","value":7}'
    for byte in b"OGF1" + sender._token + b"M" + len(body).to_bytes(4, "big"):
        os.write(sender._fd, bytes([byte]))
    Path(payload["touch"]).touch()
    while not Path(payload["until"]).exists():
        time.sleep(0.01)
    os.write(sender._fd, body)


def kills_parent(payload: dict[str, Any], emit: Any) -> None:
    emit({"kind": "result", "value": 7})
    _wait_for(payload)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(3600)


def stops_parent(payload: dict[str, Any], emit: Any) -> None:
    _wait_for(payload)
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(3600)


def kills_parent_and_survives(payload: dict[str, Any], emit: Any) -> None:
    _wait_for(payload)
    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
    _start_daemon(payload["pids"])
    with open(payload["pids"], "a") as file:
        file.write(f"{os.getpid()}\n")
    kills_parent(payload, emit)


def stops_parent_and_says_so(payload: dict[str, Any], emit: Any) -> None:
    _start_daemon(payload["pids"])
    os.kill(os.getppid(), signal.SIGSTOP)
    emit({"kind": "stopped"})
    time.sleep(3600)


def kills_group(payload: dict[str, Any], emit: Any) -> None:
    os.killpg(0, signal.SIGKILL)


def daemon_holds_pipe(payload: dict[str, Any], emit: Any) -> None:
    emit({"kind": "result", "value": 7})
    _start_daemon(payload["pids"])


def leaves_background_job(payload: dict[str, Any], emit: Any) -> None:
    child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    emit({"kind": "result", "pid": child.pid})


def comes_back_twice(payload: dict[str, Any], emit: Any) -> None:
    emit({"kind": "result", "value": 7})
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)


def fills_log(payload: dict[str, Any], emit: Any) -> None:
    for number in range(payload["lines"]):
        print(f"line {number} {'z' * 50}")
    emit({"kind": "result", "value": 7})


def prints_for_ever(payload: dict[str, Any], emit: Any) -> None:
    block = b"z" * MIB
    while True:
        os.write(1, block)


def starts_many(payload: dict[str, Any], emit: Any) -> None:
    """Half of them in sessions of their own, all of them with a parent that lives."""
    with open(payload["note"], "a") as note:
        for number in range(payload["count"]):
            child = subprocess.Popen(["sleep", "3600"], start_new_session=number % 2 == 0)
            note.write(f"{child.pid}\n")
            note.flush()
    time.sleep(3600)


def late_at_first(payload: dict[str, Any], emit: Any) -> None:
    """Has no time but when it runs for the second time."""
    note = Path(payload["note"])
    if not note.exists():
        note.touch()
        time.sleep(3600)
    emit({"kind": "result", "value": 7})


def keeps_busy(payload: dict[str, Any], emit: Any) -> None:
    for _ in range(payload["processes"]):
        if os.fork() == 0:
            endless_loop(payload, emit)
    time.sleep(3600)


def _start_daemon(note: str) -> None:
    """A process with no parent of ours, in a session of its own; its pid goes to ``note``."""
    middle = os.fork()
    if middle == 0:
        os.setsid()
        daemon = os.fork()
        if daemon == 0:
            ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
            time.sleep(3600)
        with open(note, "a") as file:
            file.write(f"{daemon}\n")
        os._exit(0)
    os.waitpid(middle, 0)


def _wait_for(payload: dict[str, Any]) -> None:
    """Let the neighbour be in flight first."""
    while not Path(payload["ready"]).exists():
        time.sleep(0.01)


def holds_memory(payload: dict[str, Any], emit: Any) -> None:
    """Takes so many bytes in steps of 10 MiB, keeps them for a while, and gives its result.

    With a ``pid``, it says in that file who it is; with one of another's, it outlives that.
    """
    if "pid" in payload:
        Path(payload["pid"]).write_text(str(os.getpid()))
    hoard = []
    for _ in range(payload["bytes"] // (10 * MIB)):
        hoard.append(b"x" * (10 * MIB))
        time.sleep(0.01)
    time.sleep(payload["seconds"])
    while "outlives" in payload and _lives(Path(payload["outlives"])):
        time.sleep(0.01)
    emit({"kind": "result", "value": payload["name"]})


def _lives(file: Path) -> bool:
    try:
        os.kill(int(file.read_text()), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError):
        return True
    return True


def is_killed(payload: dict[str, Any], emit: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
