"""Blocks that an earlier run has verified: what tells one from another, and what is kept of it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from onnx_gate.findings.finding import Finding
from onnx_gate.report.io import to_message
from onnx_gate.report.model import Check
from onnx_gate.verify.reach.sites import ComparedSide, DecisionSite

_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class KnownBlock:
    """What verifying a block has come to, where it passes: of any other all is said anew.

    ``compared`` are the sides of decisions that were compared at their operators.
    """

    checks: tuple[Check, ...]
    findings: tuple[Finding, ...]
    compared: frozenset[ComparedSide] = frozenset()

    @classmethod
    def of(
        cls, known: Mapping[str, Mapping[str, Any]] | None, key: str, names: Collection[str]
    ) -> KnownBlock | None:
        """Return what is known of the block called so, ``None`` where nothing is, or no sense.

        ``names`` are its own, and that of it and the one before.
        """
        value = (known or {}).get(key)
        if value is None:
            return None
        try:
            checks = tuple(map(Check.model_validate, value["checks"]))
            findings = tuple(map(Finding.model_validate, value["findings"]))
            compared = frozenset((DecisionSite(*site), side) for *site, side in value["compared"])
        except (ValidationError, KeyError, TypeError):
            return None
        sound = checks and all_pass(checks) and all(check.block in names for check in checks)
        return cls(checks, findings, compared) if sound else None

    @property
    def value(self) -> dict[str, Any]:
        """The block as JSON data."""
        return {
            "checks": [to_message(check) for check in self.checks],
            "findings": [to_message(finding) for finding in self.findings],
            "compared": [[*astuple(site), side] for site, side in self.compared],
        }


def all_pass(checks: Sequence[Check]) -> bool:
    """Return whether all of these pass."""
    return all(check.verdict == "pass" for check in checks)


class StoredBytes:
    """Digests of parts of files, each read once."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, int, int | None], str] = {}

    def digest(self, path: Path, offset: int, nbytes: int | None) -> str:
        """Return the SHA-256 of so many bytes (``None``: all) of a file from an offset on."""
        place = path, offset, nbytes
        if place not in self._known:
            hashed = hashlib.sha256()
            left = path.stat().st_size - offset if nbytes is None else nbytes
            with path.open("rb") as file:
                file.seek(offset)
                while data := file.read(min(_AT_ONCE, left)):
                    hashed.update(data)
                    left -= len(data)
            self._known[place] = hashed.hexdigest()
        return self._known[place]
