"""Looks for secrets everywhere, and tells what it found in its log."""

import glob
import json
import os
import socket
import sys
from pathlib import Path

from models.plain import Plain

CANARIES = json.loads(Path("canaries.json").read_text())


def contents(path):
    with open(path, "rb") as file:
        return file.read(1 << 20)


def tell(name, attempt):
    try:
        found = attempt()
    except BaseException as error:
        print(f"SPY {name} denied {type(error).__name__}: {error}")
        return
    text = found if isinstance(found, bytes) else str(found).encode()
    leaked = [c for c in CANARIES if c.encode() in text]
    # Halved, so that the log itself does not look like a leak.
    print(f"SPY {name} got {len(text)} bytes, secrets {[c[: len(c) // 2] for c in leaked]}")


def environments():
    found = b""
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            found += contents(path)
        except OSError:
            continue
    return found


def memories():
    found = b""
    for pid in sorted(int(p) for p in os.listdir("/proc") if p.isdigit()):
        # The models' own processes hold the list of what to look for.
        if pid == os.getpid() or Path(f"/proc/{pid}").stat().st_uid == os.getuid() != 0:
            continue
        try:
            maps = contents(f"/proc/{pid}/maps").decode().splitlines()
            with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
                for line in maps:
                    span, rights = line.split()[:2]
                    if "rw" not in rights:
                        continue
                    start, end = (int(x, 16) for x in span.split("-"))
                    memory.seek(start)
                    try:
                        found += memory.read(min(end - start, 1 << 24))
                    except OSError:
                        continue
        except OSError:
            continue
    return found


def docker():
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("/var/run/docker.sock")
        client.sendall(b"GET /containers/json HTTP/1.0\r\n\r\n")
        return client.recv(1000)


def internet():
    with socket.create_connection(("127.0.0.1", int(os.environ.get("SPY_PORT", "9"))), 3) as client:
        return client.recv(100)


def build():
    tell("environ", lambda: json.dumps(dict(os.environ)))
    tell("proc-environ", environments)
    tell("proc-memory", memories)
    tell("docker", docker)
    tell("socket", lambda: socket.socket(socket.AF_INET) and "a socket")
    tell("socket6", lambda: socket.socket(socket.AF_INET6) and "a socket")
    tell("runner-temp", lambda: contents("/github/runner_temp/git-credentials-1.config"))
    tell("event", lambda: contents("/github/workflow/event.json"))
    tell("home", lambda: contents("/github/home/.docker/config.json"))
    tell("git-config", lambda: contents(".git/config"))
    tell("git-nested", lambda: contents("vendor/lib/.git/config"))
    tell("git-link", lambda: contents("innocent.txt"))
    tell("temp-link", lambda: contents("data/link/git-credentials-1.config"))
    for name in (
        "github_env",
        "github_path",
        "github_output",
        "github_state",
        "github_step_summary",
    ):
        for folder in ("/github/file_commands", "/github/runner_temp/_runner_file_commands"):
            tell(f"write-{name}", lambda p=f"{folder}/{name}": open(p, "a").write("EVIL=1\n"))
    tell("write-new", lambda: open("/github/file_commands/evil", "w").write("x"))
    tell("write-workspace", lambda: open("evil.py", "w").write("x"))
    tell("write-model", lambda: open("models/plain.py", "a").write("x"))
    tell("write-report", lambda: open("onnx-gate-report/report.json", "w").write("{}"))
    tell("write-gate", lambda: open(sys.modules["onnx_gate"].__file__, "a").write("x"))
    tell("stdout-of-1", lambda: open("/proc/1/fd/1", "w").write("::error::stolen stdout\n"))
    tell("uid", lambda: f"{os.getuid()} {os.getgid()} {os.getgroups()}")
    return Plain()
