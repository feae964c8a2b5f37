"""What is to be said of known faults: each in one line, with the thread that it is discussed in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onnx_gate.known import Known, faults
from onnx_gate.report.model import ModelResult
from onnx_gate.text import plain

_TEXT = 200


@dataclass(frozen=True)
class KnownFault:
    """One line in three parts: what it is, the thread's address, and since when and what instead.

    ``trusted``: the address is in this program's own book, and not in the report alone.
    """

    what: str
    address: str
    rest: str
    trusted: bool

    def __str__(self) -> str:
        return f"{self.what}, {self.address}{self.rest}"


def known_faults(model: ModelResult) -> Iterator[KnownFault]:
    """Yield the known faults of a model: of its error, without one of its runtimes', and its diagnoses."""
    errors = (model.error,) if model.error is not None else [e.error for e in model.runtimes]
    found = [each.known for each in (*errors, *model.diagnoses) if each is not None]
    own = {fault.link for fault in faults()} if any(found) else set()
    for known in filter(None, found):
        yield KnownFault(
            f"known: {plain(known.title, _TEXT)}",
            plain(known.link, _TEXT),
            _rest(known),
            known.link in own,
        )


def _rest(known: Known) -> str:
    fixed = f", right in {plain(known.package, 40)} {plain(known.fixed, 40)}" if known.fixed else ""
    return f"{fixed}; instead: {plain(known.workaround, _TEXT)}" if known.workaround else fixed
