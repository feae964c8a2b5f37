"""One HTTP request at a time, bounded in time and in size, with the token for one host only.

PyGithub's requester speaks for us to the API (authentication, Enterprise Server, encoding). Its
own retries and pauses are off: it would repeat a POST, and sleep for an hour.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, urljoin, urlsplit

from onnx_gate import __version__
from onnx_gate.errors import UserError

if TYPE_CHECKING:
    import requests
    from github.Requester import Requester, RequestsResponse

MAX_JSON_BYTES = 32 * 2**20
_T = TypeVar("_T")
_CHUNK = 2**16
_MAX_HOPS = 3
_MOVED = (301, 307, 308)
_REDIRECTS = (301, 302, 303, 307, 308)
_PORTS = {"http": 80, "https": 443}


class Budget:
    """Seconds that all calls of a client share, from the first one on."""

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


class Unanswered(Exception):
    """No answer came, or not all of it: the request may have been carried out or not."""


class Unacceptable(Exception):
    """An answer that is not read any further: too large, or a redirect to elsewhere."""


@dataclass(frozen=True)
class Answer:
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
        self._requester = self._open(token, api_url)

    def send(
        self,
        verb: str,
        url: str,
        params: Mapping[str, Any] | None = None,
        body: object = None,
    ) -> Answer:
        """Send a request to the API; raises ``Unanswered`` and ``Unacceptable``."""
        headers = {
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        status, answered, text = _guarded(
            lambda: self._requester.requestJson(verb, url, dict(params or {}), headers, body)
        )
        return Answer(status, answered, text)

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

    def _fetch(self, url: str, max_bytes: int) -> tuple[int, bytes]:
        import requests

        with requests.Session() as session:
            # Without this, a .netrc file would add credentials.
            session.auth = lambda request: request
            session.headers["User-Agent"] = _agent()
            for _ in range(_MAX_HOPS):
                target = urlsplit(url)
                if target.scheme != "https" and target.scheme != self._api.scheme:
                    raise Unacceptable(f"redirected to {target.scheme or 'no address'}")
                with session.get(
                    url, stream=True, allow_redirects=False, timeout=self._seconds()
                ) as response:
                    if response.status_code not in _REDIRECTS:
                        return response.status_code, self._read(response, max_bytes)
                    url = urljoin(url, response.headers.get("location", ""))
        raise Unacceptable("redirected too often")

    def _open(self, token: str, api_url: str) -> Requester:
        from github import Auth
        from github.Requester import (
            HTTPRequestsConnectionClass,
            HTTPSRequestsConnectionClass,
            Requester,
        )

        transport = self

        class Plain(HTTPRequestsConnectionClass):
            def getresponse(self) -> RequestsResponse:
                return transport._respond(self)

        class Secure(HTTPSRequestsConnectionClass):
            def getresponse(self) -> RequestsResponse:
                return transport._respond(self)

        class Bounded(Requester):
            pass

        Bounded.injectConnectionClasses(Plain, Secure)
        return Bounded(
            auth=Auth.Token(token),
            base_url=api_url,
            timeout=int(self._timeout) or 1,
            user_agent=_agent(),
            per_page=100,
            verify=True,
            retry=0,
            pool_size=None,
            seconds_between_requests=0,
            seconds_between_writes=0,
            lazy=True,
        )

    def _respond(self, connection: Any) -> RequestsResponse:
        origin = f"{connection.protocol}://{connection.host}:{connection.port}"
        url = f"{origin}{connection.url}"
        for _ in range(_MAX_HOPS):
            with connection.session.request(
                connection.verb,
                url,
                headers=connection.headers,
                data=connection.input,
                timeout=self._seconds(),
                verify=connection.verify,
                allow_redirects=False,
                stream=True,
            ) as response:
                if response.status_code == 202 and connection.verb == "GET":
                    raise Unanswered("GitHub is still working on the answer")
                if response.status_code not in _MOVED:
                    return _with_body(response, self._read(response, MAX_JSON_BYTES))
                # A renamed repository; PyGithub itself would drop the query.
                url = urljoin(url, response.headers.get("location", ""))
                if not self.owns(url):
                    raise Unacceptable("redirected to another host")
        raise Unacceptable("redirected too often")

    def _seconds(self) -> float:
        left = min(self._timeout, self._budget.left)
        if left <= 0:
            raise Unanswered(f"the {self._budget.seconds:g} s for talking to GitHub are used up")
        return left

    def _read(self, response: requests.Response, max_bytes: int) -> bytes:
        body = bytearray()
        for chunk in response.iter_content(_CHUNK):
            body += chunk
            if len(body) > max_bytes:
                raise Unacceptable(f"the answer is larger than {max_bytes / 2**20:g} MiB")
            if self._budget.left <= 0:
                raise Unanswered("the answer came too slowly")
        return bytes(body)


def _guarded(call: Callable[[], _T]) -> _T:
    """Return what ``call`` returns; the libraries' exceptions become ours.

    Theirs hold the request, token included, so ours is raised after theirs is gone.
    """
    import requests
    import urllib3

    try:
        return call()
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        reason = _reason(error)
    raise Unanswered(reason)


def _with_body(response: requests.Response, body: bytes) -> RequestsResponse:
    from github.Requester import RequestsResponse

    text = body.decode("utf-8", "replace")
    answer = RequestsResponse(response)
    answer.read = lambda: text  # type: ignore[method-assign]
    return answer


def _reason(error: Exception) -> str:
    import requests

    # Never the exception's own text, which holds addresses with signatures in them.
    if isinstance(error, requests.exceptions.SSLError):
        return "the server's certificate was not accepted"
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy refused the connection"
    if isinstance(error, requests.exceptions.Timeout) or "timed out" in str(error):
        return "no answer in time"
    return "the connection broke"


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _agent() -> str:
    return f"onnx-gate/{__version__}"
