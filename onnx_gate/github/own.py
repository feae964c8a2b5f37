"""The comments of one gate among everybody's: below a pull request, and at the lines of its diff."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onnx_gate.github.api_errors import GitHubError
from onnx_gate.github.client import ACTIONS_LOGIN, Client
from onnx_gate.github.header import Header, parse

NEEDS = "pull_requests=write"


@dataclass(frozen=True)
class OwnComment:
    """A comment with a header. ``path`` and ``line`` are of one in a diff, where it still fits one."""

    id: int
    login: str
    bot: bool
    body: str
    url: str | None
    header: Header
    path: str | None = None
    line: int | None = None

    @property
    def content(self) -> str:
        """The body without the header's line."""
        return normal(self.body.partition("\n")[2])


def own_comments(
    client: Client, path: str, header: Header, author: str | None = None
) -> list[OwnComment]:
    """Return the comments of the header's gate by the token's user, the lowest id first.

    ``path`` is that of their list, ``author`` the user's login where that is known already. Raises
    ``GitHubError``.
    """
    candidates = []
    for page in client.pages(path, needs=NEEDS):
        for item in page if isinstance(page, list) else ():
            comment = _read(item)
            if comment is not None and comment.header.is_of(header):
                candidates.append(comment)
    if not candidates:
        return []
    author = author or client.login()
    if author is None and any(c.bot and c.login != ACTIONS_LOGIN for c in candidates):
        author = client.viewer()
    author = (author or ACTIONS_LOGIN).lower()
    return sorted((c for c in candidates if c.login == author), key=lambda c: c.id)


def delete_comment(client: Client, path: str) -> None:
    """Delete a comment; that somebody else was faster is as good. Raises ``GitHubError``."""
    try:
        client.write("DELETE", path, needs=NEEDS)
    except GitHubError as error:
        if error.kind != "missing":
            raise


def author_of(item: Any) -> tuple[str, bool]:
    """Return who has written a comment, in lower case, and whether it is a bot."""
    user = item.get("user") if isinstance(item, dict) else None
    login = user.get("login") if isinstance(user, dict) else None
    if not isinstance(user, dict) or not isinstance(login, str):
        return "", False
    return login.lower(), user.get("type") == "Bot"


def normal(body: str) -> str:
    """Return a body as it is compared: GitHub may change how lines end."""
    return body.replace("\r\n", "\n").strip()


def _read(item: Any) -> OwnComment | None:
    body = item.get("body") if isinstance(item, dict) else None
    header = parse(body)
    if header is None or type(item.get("id")) is not int:
        return None
    url, path, line = item.get("html_url"), item.get("path"), item.get("line")
    return OwnComment(
        item["id"],
        *author_of(item),
        str(body),
        url if isinstance(url, str) else None,
        header,
        path if isinstance(path, str) else None,
        line if isinstance(line, int) else None,
    )
