"""What a statement says of one model, as it is written and as it is read: plain data.

The envelope is in-toto's Statement v1. Reading is strict: a key that is not known, one that stands
twice or a value of another type is no statement.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from onnx_gate.errors import UserError
from onnx_gate.report.model.number import Number
from onnx_gate.report.model.result import Verdict
from onnx_gate.text import listed

STATEMENT: Final = "https://in-toto.io/Statement/v1"
PARITY: Final = "https://github.com/onnx-gate/onnx-gate/attestation/parity/v0.1"
TEST_RESULT: Final = "https://in-toto.io/attestation/test-result/v0.1"

_MOST_BYTES = 16 << 20  # as GitHub has it for a predicate


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Digest(_Strict):
    """A digest of a file, or of a commit."""

    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    gitCommit: str | None = Field(default=None, pattern=r"^[0-9a-f]{7,64}$")


class Resource(_Strict):
    """A file under its name, as in-toto has them."""

    name: str
    digest: Digest


class Waived(_Strict):
    """A waiver of the manifest's."""

    check: str
    until: str
    reason: str


class Compared(_Strict):
    """What was compared, and by how much it could be wrong unseen.

    ``unseen`` are faults that would have passed whatever their size. ``decisions`` are those seen
    both ways of all, ``weights`` those of the file that are known to be the model's of all; both
    null where nobody looked.
    """

    checks: int
    advice: int
    refused: int
    sizes: dict[str, tuple[int, ...]] = {}
    resolution: Number | None = None
    unseen: tuple[str, ...] = ()
    decisions: tuple[int, int] | None = None
    weights: tuple[int, int] | None = None


class Parity(_Strict):
    """The predicate of the gate's own: how near ``file`` was found to be to its model.

    ``tolerances`` are those that outputs were judged by, ``waived`` the number of checks that only
    ``waivers`` let pass. ``manifest`` is the name of that part of the ``configuration``, whose others
    are the report, the commit and the model's own files.
    """

    model: str
    verdict: Verdict
    file: str
    created: AwareDatetime
    tolerances: dict[str, dict[str, Any]]
    compared: Compared
    runtimes: tuple[str, ...]
    environment: dict[str, str]
    waivers: tuple[Waived, ...] = ()
    waived: int = 0
    sandbox: str | None = None
    manifest: str
    configuration: tuple[Resource, ...]


class Statement(_Strict):
    """An in-toto Statement v1 with the gate's predicate."""

    type_: Literal["https://in-toto.io/Statement/v1"] = Field(default=STATEMENT, alias="_type")
    subject: tuple[Resource, ...] = Field(min_length=1)
    predicateType: Literal["https://github.com/onnx-gate/onnx-gate/attestation/parity/v0.1"] = (
        PARITY
    )
    predicate: Parity


def read(path: Path) -> Statement:
    """Return the statement that a file holds; raises ``UserError``."""
    try:
        return parse(path.read_bytes(), str(path))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from error


def parse(content: bytes, shown: str) -> Statement:
    """Return what a statement says; raises ``UserError`` for anything else."""
    if len(content) > _MOST_BYTES:
        raise UserError(f"{shown}: larger than {_MOST_BYTES >> 20} MiB, and so no statement")
    try:
        return Statement.model_validate(json.loads(content, object_pairs_hook=_once))
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise UserError(
            f"{shown}: no statement of onnx-gate run --attest: {listed(wrong, 3)}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{shown}: no JSON that can be read: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found
