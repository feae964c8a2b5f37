"""What a deployment asks: is this the file that was verified, and was that enough?

The statement's signature is another's to check (``gh attestation verify``): nothing in here knows
who wrote it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timezone
from pathlib import Path

from onnx_gate.attest.statement import Parity, Statement
from onnx_gate.errors import UserError
from onnx_gate.files import sha256_of
from onnx_gate.text import counted, did_you_mean, listed, quote

_Judge = Callable[[Parity, str], str | None]


def refusals(file: Path, statement: Statement, required: Iterable[str]) -> list[str]:
    """Return why a file may not go where the statement should let it, nothing where it may.

    ``required`` are texts such as ``resolution=1e-4``. Raises ``UserError`` for one that means
    nothing, and for a file that cannot be read.
    """
    judges = [_judge(text) for text in required]
    if all(key != "waivers" for key, _, _ in judges):
        judges.append(("waivers", "0", _REQUIREMENTS["waivers"]))
    predicate = statement.predicate
    found = list(_files(file, statement))
    if predicate.verdict != "pass":
        found.append(f"its verdict is {predicate.verdict}")
    if not predicate.compared.checks:
        found.append("nothing was compared")
    for key, value, judge in judges:
        try:
            reason = judge(predicate, value)
        except (ValueError, OSError) as error:
            raise UserError(f"--require {key}={value}: {error}") from None
        found += [reason] if reason else []
    return found


def _files(file: Path, statement: Statement) -> Iterator[str]:
    """Hold the file, and what it reads, against the subjects: all of these and no others."""
    known = {each.name: each.digest.sha256 for each in statement.subject}
    if len(known) != len(statement.subject):
        yield "a subject stands twice"
    own = known.pop(statement.predicate.file, None)
    try:
        if own is None or sha256_of(file) != own:
            yield f"{file} is not the file that was verified"
            return
        for location in _external(file):
            beside = file.parent / location
            if location not in known:
                yield f"{file} reads {location}, which was not verified"
            elif not beside.is_file():
                yield f"{beside}, which {file.name} reads, is not there"
            elif sha256_of(beside) != known[location]:
                yield f"{beside} is not the file that was verified"
            known.pop(location, None)
    except OSError as error:
        raise UserError(f"{file}: {error.strerror or error}") from error
    if known:
        yield f"it is about files that {file.name} does not read: {listed(sorted(known), 3)}"


def _external(file: Path) -> list[str]:
    import onnx
    from google.protobuf.message import DecodeError

    from onnx_gate.graph.constants import external_files

    try:
        model = onnx.load(str(file), load_external_data=False)
    except DecodeError as error:
        raise UserError(f"{file} is no ONNX file, whatever its statement says") from error
    return sorted(path.as_posix() for path in external_files(model, Path()))


def _judge(text: str) -> tuple[str, str, _Judge]:
    key, equals, value = text.partition("=")
    if not equals or key not in _REQUIREMENTS:
        raise UserError(
            f"--require {text}: KEY=VALUE is asked for{did_you_mean(key, _REQUIREMENTS)}"
        )
    return key, value, _REQUIREMENTS[key]


def _model(said: Parity, name: str) -> str | None:
    return None if said.model == name else f"it is about the model {quote(said.model)}"


def _manifest(said: Parity, value: str) -> str | None:
    wanted = sha256_of(Path(value)) if Path(value).is_file() else value.removeprefix("sha256:")
    own = [each.digest.sha256 for each in said.configuration if each.name == said.manifest]
    return None if own == [wanted] else "another manifest said how it was verified"


def _commit(said: Parity, sha: str) -> str | None:
    commits = [each.digest.gitCommit for each in said.configuration if each.digest.gitCommit]
    if len(sha) < 7:
        raise ValueError("at least seven digits tell a commit from others")
    return None if any(c.startswith(sha) for c in commits) else f"it is not of the commit {sha}"


def _since(said: Parity, day: str) -> str | None:
    start = datetime.combine(date.fromisoformat(day), time(), timezone.utc)
    return None if said.created >= start else f"it is of {said.created.date()}, before {day}"


def _resolution(said: Parity, value: str) -> str | None:
    most, known = float(value), said.compared.resolution
    if not math.isfinite(most):
        raise ValueError("a relative error such as 1e-4 is asked for")
    if said.compared.unseen:
        return f"{listed(said.compared.unseen, 3)} would not have been seen, whatever its size"
    if known is not None and known <= most:
        return None
    shown = f"{known:.2g}" if known is not None else "an unknown one"
    return f"an error below {shown} would not have been seen, and {value} is asked for"


def _runtime(said: Parity, name: str) -> str | None:
    return None if name in said.runtimes else f"it was not compared on {name}"


def _cpu(said: Parity, name: str) -> str | None:
    own = said.environment.get("cpu_capability", "an unknown CPU")
    return None if own == name else f"it was compared on {own}, and {name} is asked for"


def _decisions(said: Parity, value: str) -> str | None:
    least, seen = float(value), said.compared.decisions
    share = None if seen is None else seen[0] / seen[1] if seen[1] else 1.0
    if share is not None and share >= least:
        return None
    shown = f"{seen[0]} of {seen[1]}" if seen is not None else "nobody knows how many"
    return f"{shown} decisions were seen both ways, and {value} is asked for"


def _waivers(said: Parity, most: str) -> str | None:
    count = max(len(said.waivers), said.waived)
    if count <= int(most):
        return None
    return (
        f"{counted(count, 'waiver')} let divergences pass (allow them: --require waivers={count})"
    )


def _sandbox(said: Parity, level: str) -> str | None:
    return None if said.sandbox == level else f"the sandbox was {said.sandbox or 'off'}"


_REQUIREMENTS: dict[str, _Judge] = {
    "model": _model,
    "manifest": _manifest,
    "commit": _commit,
    "since": _since,
    "resolution": _resolution,
    "runtime": _runtime,
    "cpu": _cpu,
    "decisions": _decisions,
    "waivers": _waivers,
    "sandbox": _sandbox,
}
