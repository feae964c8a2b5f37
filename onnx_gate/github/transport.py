"""One HTTP request at a time, bounded in time and in size, with the token for one host only.

urllib3's own repetitions and redirects are off: it would repeat a POST, and sleep past the budget.
"""

from __future__ import annotations

import json
import os
import re
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, unquote, urlencode, urljoin, urlsplit

from onnx_gate import __version__
from onnx_gate.errors import UserError

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, PoolManager

MAX_JSON_BYTES = 32 * 2**20
_T = TypeVar("_T")
_CHUNK = 2**16
_MAX_HOPS = 3
_AGENT = f"onnx-gate/{__version__}"
_MOVED = (301, 307, 308)
_REDIRECTS = (301, 302, 303, 307, 308)
_PORTS = {"http": 80, "https": 443}


class Budget:
    """Seconds that all calls of a client share, from the first one on, or the first after ``renew``."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._end: float | None = None

    @property
    def left(self) -> float:
        """Seconds that are left, never negative."""
        if self._end is None:
            self._end = self._clock() + self.seconds
        return max(0.0, self._end - self._clock())

    def renew(self) -> None:
        """Begin anew: something else than talking has taken its time since."""
        self._end = None


class Unanswered(Exception):
    """No answer came, or not all of it: the request may have been carried out or not."""


class Unacceptable(Exception):
    """An answer that is not read any further: too large, or a redirect to elsewhere."""


@dataclass(frozen=True)
class Response:
    """An HTTP answer; the names of ``headers`` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: str


class Transport:
    """Requests to one API with one token, none of which outlasts ``timeout`` or the budget."""

    def __init__(self, token: str, api_url: str, budget: Budget, timeout: float) -> None:
        if not re.fullmatch(r"[\x21-\x7e]+", token):
            # Checked here, because a header that is not valid is quoted in the library's error.
            raise UserError("the GitHub token is empty or has a space or line break in it")
        self._api = urlsplit(api_url)
        self._budget = budget
        self._timeout = timeout
        self._headers = {
            "Accept": "application/vnd.github+json",
            "Accept-Encoding": "gzip",
            "Authorization": f"Bearer {token}",
            "User-Agent": _AGENT,
            "X-GitHub-Api-Version": "2022-11-28",
        }

    def send(
        self, verb: str, url: str, params: Mapping[str, Any] | None = None, body: object = None
    ) -> Response:
        """Send a request to the API; raises ``Unanswered`` and ``Unacceptable``."""
        if params:
            url = f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(params)}"
        return _guarded(lambda: self._send(verb, url, body))

    def fetch(self, url: str, max_bytes: int) -> tuple[int, bytes]:
        """Return status and body of a file on another host, asked for without the token.

        Raises ``Unanswered`` and ``Unacceptable``.
        """
        return _guarded(lambda: self._fetch(url, max_bytes))

    def owns(self, url: str) -> bool:
        """Return whether an address belongs to the API that the token is for."""
        try:
            parts = urlsplit(url)
            return _origin(parts) == _origin(self._api) and parts.path.startswith(
                f"{self._api.path.rstrip('/')}/"
            )
        except ValueError:
            return False

    def _send(self, verb: str, url: str, body: object) -> Response:
        headers, content = dict(self._headers), None
        if body is not None:
            headers["Content-Type"] = "application/json"
            content = json.dumps(body).encode()
        for _ in range(_MAX_HOPS):
            response = self._request(verb, url, headers, content)
            try:
                if response.status == 202 and verb == "GET":
                    raise Unanswered("GitHub is still working on the answer")
                if response.status not in _MOVED:
                    text = self._read(response, MAX_JSON_BYTES).decode("utf-8", "replace")
                    names = {name.lower(): value for name, value in response.headers.items()}
                    return Response(response.status, names, text)
                # A renamed repository.
                url = urljoin(url, response.headers.get("location", ""))
            finally:
                response.close()
            if not self.owns(url):
                raise Unacceptable("redirected to another host")
        raise Unacceptable("redirected too often")

    def _fetch(self, url: str, max_bytes: int) -> tuple[int, bytes]:
        for _ in range(_MAX_HOPS):
            target = urlsplit(url)
            if target.scheme != "https" and target.scheme != self._api.scheme:
                raise Unacceptable(f"redirected to {target.scheme or 'no address'}")
            response = self._request("GET", url, {"User-Agent": _AGENT}, None)
            try:
                if response.status not in _REDIRECTS:
                    return response.status, self._read(response, max_bytes)
                url = urljoin(url, response.headers.get("location", ""))
            finally:
                response.close()
        raise Unacceptable("redirected too often")

    def _request(
        self, verb: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> BaseHTTPResponse:
        return _pool(urlsplit(url)).request(
            verb,
            url,
            headers=headers,
            body=body,
            timeout=self._seconds(),
            retries=False,
            redirect=False,
            preload_content=False,
        )

    def _seconds(self) -> float:
        left = min(self._timeout, self._budget.left)
        if left <= 0:
            raise Unanswered(f"the {self._budget.seconds:g} s for talking to GitHub are used up")
        return left

    def _read(self, response: BaseHTTPResponse, max_bytes: int) -> bytes:
        body = bytearray()
        for chunk in response.stream(_CHUNK, decode_content=True):
            body += chunk
            if len(body) > max_bytes:
                raise Unacceptable(f"the answer is larger than {max_bytes / 2**20:g} MiB")
            if self._budget.left <= 0:
                raise Unanswered("the answer came too slowly")
        return bytes(body)


def _pool(target: SplitResult) -> PoolManager:
    """Return connections to a host, by way of the proxy that the environment names for it."""
    import urllib3

    authorities = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    host = target.hostname or ""
    proxies = urllib.request.getproxies()
    proxy = proxies.get(target.scheme) or proxies.get("all")
    if not proxy or urllib.request.proxy_bypass(host):
        return urllib3.PoolManager(ca_certs=authorities)
    address = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    user = f"{unquote(address.username or '')}:{unquote(address.password or '')}"
    headers = urllib3.make_headers(proxy_basic_auth=user) if address.username else None
    return urllib3.ProxyManager(address.geturl(), proxy_headers=headers, ca_certs=authorities)


def _guarded(call: Callable[[], _T]) -> _T:
    """Return what ``call`` returns; the library's exceptions become ours.

    Theirs hold the request, token included, so ours is raised after theirs is gone.
    """
    import urllib3

    try:
        return call()
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        reason = _reason(error)
    raise Unanswered(reason)


def _reason(error: Exception) -> str:
    from urllib3 import exceptions

    # Never the exception's own text, which holds addresses with signatures in them.
    if isinstance(error, exceptions.SSLError):
        return "the server's certificate was not accepted"
    if isinstance(error, exceptions.ProxyError):
        return "the proxy refused the connection"
    if isinstance(error, exceptions.TimeoutError) or "timed out" in str(error):
        return "no answer in time"
    return "the connection broke"


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
