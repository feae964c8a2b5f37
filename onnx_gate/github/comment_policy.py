"""When a pull request gets a comment: the one list of the choices, which the command line reads."""

from __future__ import annotations

from typing import Literal

CommentPolicy = Literal["changes", "always", "on-failure", "never"]
"""``changes``: where something is wrong, packages are others, or a comment stands already."""
