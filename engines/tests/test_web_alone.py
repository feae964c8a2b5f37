"""A page reaches no other machine: 127.0.0.2 stands for one, by names, TCP and WebRTC's UDP."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from onnx_gate_engines.web.chromium import ALONE, find_chromium
from tests.support.browser import needs_browser

pytestmark = [needs_browser, pytest.mark.slow, pytest.mark.timeout(300)]

ELSEWHERE = "127.0.0.2"
PAGE = """<body><script>
fetch("http://{there}:{tcp}/", {{mode: "no-cors"}}).catch(() => 0);
const peer = new RTCPeerConnection({{iceServers: [
  {{urls: "stun:{there}:{udp}"}},
  {{urls: "turn:{there}:{tcp}?transport=tcp", username: "a", credential: "b"}}]}});
peer.createDataChannel("x");
peer.createOffer().then(offer => peer.setLocalDescription(offer));
</script><img src="/until-one-came">"""


@contextmanager
def another_machine() -> Iterator[tuple[int, int, dict[str, int], threading.Event]]:
    """Yield a UDP and a TCP port of another address, what has come to each, and when UDP has."""
    came = {"udp": 0, "tcp": 0}
    arrived = threading.Event()
    udp, tcp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket()
    for each in (udp, tcp):
        each.bind((ELSEWHERE, 0))
        each.settimeout(0.2)
    tcp.listen()
    ended = threading.Event()

    def count() -> None:
        while not ended.is_set():
            with suppress(OSError):
                udp.recv(4096)
                came["udp"] += 1
                arrived.set()
            with suppress(OSError):
                tcp.accept()[0].close()
                came["tcp"] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield udp.getsockname()[1], tcp.getsockname()[1], came, arrived
    finally:
        ended.set()
        thread.join()
        udp.close()
        tcp.close()


def came_from(profile: Path, patience: float, *flags: str) -> dict[str, int]:
    """Return what came from a page that stays, by the clock, until UDP has or patience ends."""
    with another_machine() as (udp, tcp, came, arrived):
        body = PAGE.format(there=ELSEWHERE, udp=udp, tcp=tcp).encode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/until-one-came":
                    arrived.wait(patience)
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        plain = ("--headless=new", "--no-sandbox", "--no-first-run", "--disable-gpu")
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        subprocess.run(
            [find_chromium(), *plain, f"--user-data-dir={profile}", *flags, "--dump-dom", address],
            check=True,
            capture_output=True,
            timeout=140,
        )
        server.shutdown()
        server.server_close()
    return came


def test_no_packet_of_a_page_reaches_another_machine(tmp_path: Path) -> None:
    assert came_from(tmp_path / "alone", 8, *ALONE) == {"udp": 0, "tcp": 0}
    # Without the flags it does: the test can fail.
    assert came_from(tmp_path / "open", 100)["udp"] > 0
