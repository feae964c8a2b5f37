"""GitHub's REST API as plain data: what may be repeated is, inside one budget of time."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from onnx_gate.github.api_errors import GitHubError, Kind, refusal
from onnx_gate.github.run_context import graphql_of
from onnx_gate.github.transport import Budget, Response, Transport, Unacceptable, Unanswered

__all__ = ["ACTIONS_LOGIN", "Budget", "Client", "GitHubError"]

ACTIONS_LOGIN = "github-actions[bot]"

_ATTEMPTS = 4
_FIRST_PAUSE = 0.5
_NEXT = re.compile(r'<([^<>]+)>\s*;[^,<]*\brel="?next\b')


class Client:
    """Calls to one API with one token; all of them share ``budget`` (default 90 s).

    Every call raises ``GitHubError``. A request that failed on the way or with 5xx is repeated
    unless it is a POST, which may have been carried out. A rate limit is waited for where it ends
    within the budget and never otherwise. No single answer is waited for longer than ``timeout``
    seconds. ``needs`` names the permission that a call takes, for the message that it is lacking.
    """

    def __init__(
        self,
        token: str,
        api_url: str,
        *,
        budget: Budget | None = None,
        timeout: float = 10.0,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.budget = budget or Budget(90.0)
        self._token = token
        self._api_url = api_url.rstrip("/")
        self._transport = Transport(token, self._api_url, self.budget, timeout)
        self._sleep = sleep
        self._now = now
        self._user: str | None = None
        self._viewer: str | None = None

    def get(
        self, path: str, params: Mapping[str, Any] | None = None, needs: str | None = None
    ) -> Any:
        """Return the JSON at a path of the API."""
        return self._json("GET", path, self._send("GET", path, params, needs=needs))

    def pages(
        self, path: str, params: Mapping[str, Any] | None = None, needs: str | None = None
    ) -> Iterator[Any]:
        """Yield the JSON of every page of a list, 100 entries each."""
        answer = self._send("GET", path, {"per_page": 100, **(params or {})}, needs=needs)
        while True:
            yield self._json("GET", path, answer)
            following = _NEXT.search(answer.headers.get("link", ""))
            if following is None:
                return
            if not self._transport.owns(following[1]):
                raise GitHubError("invalid", f"GET {path}: the next page is on another host")
            answer = self._send("GET", following[1], needs=needs)

    def write(
        self,
        verb: str,
        path: str,
        body: object = None,
        needs: str | None = None,
        *,
        once: bool = False,
    ) -> Any:
        """Send a POST, PATCH or DELETE and return its answer's JSON (``None`` for no content).

        With ``once`` it is not repeated for any reason, a rate limit included: the caller looks
        at what has changed meanwhile, and calls ``recover`` before the next attempt.
        """
        answer = self._send(verb, path, body=body, needs=needs, once=once)
        return self._json(verb, path, answer) if answer.body else None

    def download(self, path: str, max_bytes: int, needs: str | None = None) -> bytes:
        """Return a file that a path of the API redirects to, fetched without the token."""
        attempt = 0
        while True:
            # The address is good for a minute only, so that a repetition starts with a new one.
            answer = self._send("GET", path, needs=needs, expect=302)
            attempt += 1
            try:
                return self._fetch(path, answer.headers.get("location", ""), max_bytes)
            except GitHubError as error:
                self.recover(error, attempt)

    def login(self) -> str | None:
        """Return the user behind the token; ``None`` where the token is not a user's."""
        if self._user is None:
            try:
                self._user = _text(self.get("/user"), "login")
            except GitHubError as error:
                if error.kind not in ("permission", "credentials", "missing"):
                    raise
                self._user = ""
        return self._user or None

    def viewer(self) -> str | None:
        """Return the login behind any token, an app's too; ``None`` where GitHub does not say."""
        if self._viewer is None:
            try:
                url, body = graphql_of(self._api_url), {"query": "{viewer{login}}"}
                answer = self._send("POST", url, body=body, read=True)
                data = self._json("POST", "/graphql", answer)
            except GitHubError as error:
                if error.kind == "rate":
                    raise
                data = None
            part = data.get("data") if isinstance(data, dict) else None
            self._viewer = _text(part.get("viewer") if isinstance(part, dict) else None, "login")
        return self._viewer or None

    def recover(self, error: GitHubError, attempt: int) -> None:
        """Wait before attempt number ``attempt`` + 1, or raise ``error`` where that is no use."""
        if error.kind == "rate":
            seconds = error.wait or 0.0
        elif error.kind in ("server", "unreachable") and attempt < _ATTEMPTS:
            seconds = _FIRST_PAUSE * 2 ** (attempt - 1)
        else:
            raise error
        if seconds >= self.budget.left:
            raise error
        self._sleep(seconds)

    def pause(self, seconds: float) -> None:
        """Let time pass, at most what is left of the budget."""
        self._sleep(min(seconds, self.budget.left))

    def _send(
        self,
        verb: str,
        path: str,
        params: Mapping[str, Any] | None = None,
        *,
        body: object = None,
        needs: str | None = None,
        expect: int | None = None,
        once: bool = False,
        read: bool = False,
    ) -> Response:
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._try(verb, path, params, body, needs, expect)
            except GitHubError as error:
                if once or (verb == "POST" and not read and error.kind != "rate"):
                    raise
                self.recover(error, attempt)

    def _try(
        self,
        verb: str,
        path: str,
        params: Mapping[str, Any] | None,
        body: object,
        needs: str | None,
        expect: int | None,
    ) -> Response:
        url = f"{self._api_url}{path}" if path.startswith("/") else path
        request = f"{verb} {urlsplit(url).path}"
        try:
            answer = self._transport.send(verb, url, params, body)
        except Unanswered as error:
            raise GitHubError("unreachable", f"{request}: {error}") from None
        except Unacceptable as error:
            raise GitHubError("invalid", f"{request}: {error}") from None
        if answer.status == expect or (expect is None and 200 <= answer.status < 300):
            return answer
        text = answer.body.replace(self._token, "***")
        raise refusal(request, answer.status, answer.headers, text, needs, self._now())

    def _fetch(self, path: str, url: str, max_bytes: int) -> bytes:
        try:
            status, data = self._transport.fetch(url, max_bytes)
        except Unanswered as error:
            raise GitHubError("unreachable", f"the file of GET {path}: {error}") from None
        except Unacceptable as error:
            raise GitHubError("invalid", f"the file of GET {path}: {error}") from None
        if status == 200:
            return data
        kind: Kind = "missing" if status in (404, 410) else "server"
        raise GitHubError(kind, f"the file of GET {path}: the store answered {status}", status)

    def _json(self, verb: str, path: str, answer: Response) -> Any:
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError):
            pass
        message = f"{verb} {path}: the answer is not JSON; is GITHUB_API_URL right?"
        raise GitHubError("server", message, answer.status)


def _text(data: object, key: str) -> str:
    value = data.get(key) if isinstance(data, dict) else None
    return value if isinstance(value, str) else ""
