"""The first line of a comment: who wrote it, for which run, in a form that can be read back."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field, fields

from onnx_gate.errors import UserError
from onnx_gate.report.join.verdict import VERDICTS

VERSION = 1
MAX_ID = 64
MAX_PATH = 200

_LINE = re.compile(r"<!-- onnx-gate (\{[^\r\n<>]{0,4000}\}) -->(?=[\r\n]|\Z)")
_SHA = re.compile(r"[0-9A-Za-z]{0,64}")
_MAX_NUMBER = 2**63


def path_named(path: str) -> str:
    """Return what a header calls a file: its path, or a digest of one that a header cannot hold."""
    if len(path) <= MAX_PATH and path.isprintable():
        return path
    return hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Header:
    """What identifies a comment and orders it among others with the same ``id``.

    ``run`` and ``attempt`` are of the run that verified, ``sha`` is its commit or the beginning
    of it, ``verdict`` is ``pass``, ``diverged`` or ``error``. ``workflow`` is the file of the workflow
    that verified and ``manifest`` the manifest's path: two gates of one repository whose users gave
    neither an id of its own differ in one of them. Raises ``UserError`` where the user's ``id``
    cannot be used, and ``ValueError`` for any other wrong field.
    """

    id: str
    run: int
    attempt: int
    sha: str
    verdict: str
    workflow: str = ""
    manifest: str = ""
    v: int = field(default=VERSION, kw_only=True)

    def __post_init__(self) -> None:
        if not (isinstance(self.id, str) and 0 < len(self.id) <= MAX_ID and self.id.isprintable()):
            raise UserError(f"comment-id must be 1 to {MAX_ID} printable characters")
        numbers = (self.v, self.run, self.attempt)
        if not all(type(n) is int and 0 <= n < _MAX_NUMBER for n in numbers) or self.v != VERSION:
            raise ValueError("a header's version, run and attempt are whole numbers")
        if not (isinstance(self.sha, str) and _SHA.fullmatch(self.sha)):
            raise ValueError("a header's commit is letters and digits")
        if self.verdict not in VERDICTS:
            raise ValueError("a header's verdict is one of the report's")
        for text in (self.workflow, self.manifest):
            if not (isinstance(text, str) and len(text) <= MAX_PATH and text.isprintable()):
                raise ValueError(f"a header's paths have at most {MAX_PATH} printable characters")

    @property
    def order(self) -> tuple[int, int]:
        """Greater for what is newer."""
        return self.run, self.attempt

    def is_of(self, other: Header) -> bool:
        """Return whether both are of one gate: the same id, workflow and manifest."""
        mine = self.id, self.workflow, self.manifest
        return mine == (other.id, other.workflow, other.manifest)

    def line(self) -> str:
        """Return the HTML comment that a body starts with, without a line break."""
        text = json.dumps({"v": self.v, **asdict(self)}, separators=(",", ":"))
        # Nothing may end the HTML comment, or begin another.
        for character in "<>&":
            text = text.replace(character, f"\\u{ord(character):04x}")
        return f"<!-- onnx-gate {text} -->"


def parse(body: object) -> Header | None:
    """Return the header that ``body`` starts with, ``None`` where there is none or it is wrong."""
    match = _LINE.match(body) if isinstance(body, str) else None
    if match is None:
        return None
    try:
        data = json.loads(match[1])
        return Header(**{part.name: data[part.name] for part in fields(Header)})
    except (UserError, ValueError, TypeError, KeyError, RecursionError):
        return None
