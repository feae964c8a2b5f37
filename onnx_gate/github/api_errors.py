"""What GitHub's refusals mean: which of them pass, and what the others ask for."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Literal

from onnx_gate.text import plain

Kind = Literal["permission", "credentials", "missing", "rate", "invalid", "server", "unreachable"]

_SECONDARY_SECONDS = 60
_MAX_MESSAGE = 200


class GitHubError(Exception):
    """GitHub did not do what it was asked; the message is one sentence without the token.

    ``status`` is that of HTTP, ``None`` where no answer came. ``permission`` names what the token
    lacks (``pull_requests=write``) where that may be the reason. ``wait`` is the number of
    seconds after which a rate limit ends.
    """

    def __init__(
        self,
        kind: Kind,
        message: str,
        status: int | None = None,
        permission: str | None = None,
        wait: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.status = status
        self.permission = permission
        self.wait = wait


def refusal(
    request: str, status: int, headers: Mapping[str, str], body: str, needs: str | None, now: float
) -> GitHubError:
    """Return the error that an answer other than 2xx stands for.

    ``request`` is what to call the request, ``headers`` have lower-case names, ``needs`` is the
    permission that the request takes where GitHub does not say, ``now`` is in seconds since 1970.
    """
    message = _message(body)
    detail = f": {message}" if message else ""
    wait = _rate_wait(status, headers, message, now)
    if wait is not None:
        ends = time.strftime("%H:%M:%S", time.gmtime(now + wait))
        return GitHubError(
            "rate",
            f"{request}: GitHub's rate limit is reached and ends in {wait:.0f} s, at {ends} UTC"
            f"{detail}",
            status,
            wait=wait,
        )
    kind = _kind(status)
    permission = None
    if kind in ("permission", "missing") and "locked" not in message.lower():
        permission = plain(headers.get("x-accepted-github-permissions", ""))[:_MAX_MESSAGE] or needs
    hint = f"; the token needs {permission}" if permission and kind == "permission" else ""
    return GitHubError(
        kind, f"{request}: GitHub answered {status}{detail}{hint}", status, permission
    )


def _kind(status: int) -> Kind:
    if status == 401:
        return "credentials"
    if status == 403:
        return "permission"
    if status in (404, 410, 451):
        return "missing"
    return "server" if status >= 500 or status == 408 else "invalid"


def _rate_wait(status: int, headers: Mapping[str, str], message: str, now: float) -> float | None:
    if status not in (403, 429):
        return None
    after = _integer(headers.get("retry-after"))
    if after is not None:
        return max(1, after)
    if "not accessible by" in message and status == 403:
        # A lack of permission, even if it was the last request of the hour.
        return None
    reset = _integer(headers.get("x-ratelimit-reset"))
    if headers.get("x-ratelimit-remaining", "").strip() == "0" and reset is not None:
        return max(1, reset - _server_time(headers, now))
    limited = "secondary rate" in message.lower() or "abuse" in message.lower()
    return _SECONDARY_SECONDS if limited or status == 429 else None


def _server_time(headers: Mapping[str, str], now: float) -> float:
    # The reset is a time on GitHub's clock, and a runner's own may be minutes away from it.
    try:
        return parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, ValueError, TypeError, OverflowError):
        return now


def _integer(value: str | None) -> int | None:
    text = (value or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


def _message(body: str) -> str:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    message = data.get("message") if isinstance(data, dict) else None
    return plain(message).rstrip(".")[:_MAX_MESSAGE] if isinstance(message, str) else ""
