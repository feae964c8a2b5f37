"""A hook of MkDocs: a link that leaves ``docs/`` leads to the repository.

The pages are read on GitHub too, where such a link is a path.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"(\]\()((?:\.\./)+[^)\s#]+)((?:#[^)\s]*)?\))")
_REPOSITORY = "https://github.com/onnx-gate/onnx-gate"


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return the page with those links made whole."""
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def whole(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[2]))
        if path.startswith("docs/"):
            return match[0]
        kind = "tree" if match[2].endswith("/") else "blob"
        return f"{match[1]}{_REPOSITORY}/{kind}/main/{path}{match[3]}"

    return _LINK.sub(whole, markdown)
