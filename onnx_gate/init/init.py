"""``onnx-gate init``: from a target to a manifest that was verified once."""

from __future__ import annotations

import ast
import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from onnx_gate.errors import UserError
from onnx_gate.findings import codes
from onnx_gate.gate.deliver import deliver, verify_and_deliver
from onnx_gate.gate.options import Options
from onnx_gate.init import describe, manifest_text
from onnx_gate.init.facts import Guess, Learned
from onnx_gate.init.learn import RecordedCall, learn, of_one_kind, stored
from onnx_gate.init.planned import OUTPUT, Files
from onnx_gate.init.request import Identity, Request
from onnx_gate.manifest import yaml_source
from onnx_gate.manifest.dimensions import is_computed
from onnx_gate.manifest.find import NAMES, find_manifest
from onnx_gate.manifest.load import load
from onnx_gate.manifest.paths import is_program
from onnx_gate.manifest.values import shapes
from onnx_gate.manifest.values.names import read_name
from onnx_gate.report.model import Report
from onnx_gate.text import plain
from onnx_gate.workers.pool import run_tasks
from onnx_gate.workers.task import Task

_WORKER = "onnx_gate.init.probe:work"
_PRELOAD = ("torch", "onnx_gate.init.probe")
_SECONDS = 600.0
_HOOK = Path(__file__).parent / "hook"
_CALL = TypeAdapter(RecordedCall)


@dataclass(frozen=True)
class InitOptions:
    """What ``onnx-gate init`` was called with.

    ``arguments`` are keywords for the target, ``command`` is what to record calls of, ``inputs`` what
    the user says of them.
    """

    reference: str
    manifest: Path
    name: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    command: str | None = None
    inputs: Mapping[str, Guess] = field(default_factory=dict)


def init(options: InitOptions, say: Callable[[str], None]) -> bool:
    """Write a manifest, or an entry of one, and verify the model; return whether it passed.

    Raises ``UserError`` where nothing could be learned or written; then nothing was written.
    """
    manifest = options.manifest.resolve()
    reference = _relative(options.reference, manifest.parent)
    name = options.name or manifest_text.model_name(reference)
    _check_free(manifest, name)
    request = Request(
        reference, manifest.parent, kwargs=dict(options.arguments), given=dict(options.inputs)
    )
    with tempfile.TemporaryDirectory(prefix="onnx-gate-init-") as folder:
        calls: tuple[RecordedCall, ...] = ()
        if options.command is not None:
            identity = _ask(replace(request, identify=True), Identity)
            say(f"recording the calls of {identity.qualname} in: {options.command}")
            calls = record(options.command, identity, Path(folder))
            request = learn(request, calls)
        say(f"trying what forward of {reference} takes ...")
        learned = _ask(request, Learned)
        files = Files(manifest, name, reference, learned, stored(of_one_kind(calls)))
        for line in describe.lines(learned, len(calls)):
            say(line)
        files.write()
    for line in files.lines():
        say(line)
    output = Path(os.path.relpath(manifest.parent / OUTPUT))
    run = Options(output=output, models=(name,))
    report = verify_and_deliver(load(options.manifest), run)
    sizes = _baked(report)
    if sizes:
        fixed = ", ".join(f"{dim} at {size}" for dim, size in sizes.items())
        say(f"\nthe export fixes {fixed}: once more with that in the manifest ...")
        files.write_entry(learned.fixed(sizes))
        other = verify_and_deliver(load(options.manifest), run)
        if other.verdict == "pass":
            say(f"kept {fixed}: where callers send other sizes, fix what is red above first")
            report = other
        else:
            files.write_entry(learned)
            deliver(report, output)
    for line in describe.after(report, name, manifest.name):
        say(line)
    return report.verdict == "pass"


def _baked(report: Report) -> dict[str, int]:
    """Return the dynamic dimensions that the export made one size of, in what did not pass."""
    sizes: dict[str, int] = {}
    for model in report.models:
        for finding in codes.OG102.among(model.findings) if model.verdict != "pass" else ():
            sizes |= finding.data.get("dims", {})
    return {dim: size for dim, size in sizes.items() if not is_computed(dim)}


def manifest_for(folder: Path) -> Path:
    """Return the manifest that a model is added to: the one that a run finds, or a new one here."""
    try:
        return find_manifest(folder)
    except UserError:
        return folder / NAMES[0]


def parse_arguments(texts: Iterable[str]) -> dict[str, Any]:
    """Return ``KEY=VALUE`` as keywords, the values as in a manifest; raises ``UserError``."""
    arguments: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise UserError(f"--arg {text!r}: write KEY=VALUE, as in --arg num_classes=10")
        try:
            arguments[key] = yaml_source.read(f"value: {value}\n").data["value"]
        except yaml_source.Unreadable as error:
            raise UserError(f"--arg {text!r}: {error.message}") from error
    return arguments


def parse_inputs(texts: Iterable[str]) -> dict[str, Guess]:
    """Return ``NAME=DTYPE[SHAPE]``, with or without ``in LOW..HIGH``; raises ``UserError``."""
    inputs: dict[str, Guess] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        shape, within, ends = value.partition(" in ")
        low, dots, high = ends.partition("..")
        if not equals or not name.strip() or (within and not dots):
            raise UserError(
                f"--input {text!r}: write NAME=DTYPE[SHAPE], as in --input 'ids=int64[batch, seq]', or "
                "with a range: --input 'ids=int64[batch, seq] in 0..30521'"
            )
        try:
            dtype, dims = shapes.parse(shape)
            kind = int if "int" in dtype else float
            limits = (kind(low), kind(high)) if within else None
        except ValueError as error:
            raise UserError(f"--input {text!r}: {error}") from None
        inputs[name.strip()] = Guess(dtype, dims, limits, "you said so")
    return inputs


def _relative(reference: str, folder: Path) -> str:
    """Return a target as the manifest names it: a file from the manifest's folder."""
    file, colon, attribute = reference.partition(":")
    if not is_program(reference) and not (colon and attribute):
        known = [f"{file}:{name}" for name in _builders(Path(file))[:6]]
        raise UserError(
            f"{reference}: name what builds the model, "
            + (" or ".join(known) or "file.py:attribute or package.module:attribute")
            + ", or a file of TorchScript"
        )
    if not file.endswith(".py") and not is_program(reference):
        return reference
    path = Path(file).resolve()
    if not path.is_file():
        raise UserError(f"{file}: no such file")
    if not path.is_relative_to(folder):
        common = os.path.commonpath((path.parent, folder))
        raise UserError(
            f"{file} is outside of {folder}, where the manifest is to be, and a manifest names what is "
            f"beside or below it: --manifest {os.path.relpath(Path(common) / NAMES[0])}"
        )
    return f"{path.relative_to(folder).as_posix()}{colon}{attribute}"


def _builders(file: Path) -> list[str]:
    """Return what in a file looks like a model, or like a function that builds one."""
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return []
    models = [
        each.name
        for each in body
        if isinstance(each, ast.ClassDef)
        and any(isinstance(part, ast.FunctionDef) and part.name == "forward" for part in each.body)
    ]
    functions = [each.name for each in body if isinstance(each, ast.FunctionDef)]
    return [*models, *(name for name in functions if not name.startswith("_"))]


def _check_free(manifest: Path, name: str) -> None:
    """Refuse before anything is tried what could not be written in the end."""
    try:
        read_name(name)
    except PydanticCustomError as error:
        raise UserError(f"--name {name!r}: {error.message()}") from error
    if manifest.exists():
        load(manifest)
        manifest_text.added(manifest.read_text("utf-8-sig"), name, f"  {name}: {{}}\n")


def _ask(request: Request, kind: type[Any]) -> Any:
    """Return what a worker answers, as ``kind``; raises ``UserError`` with why it does not."""
    with tempfile.TemporaryDirectory(prefix="onnx-gate-init-") as folder:
        task = Task("init", request, _SECONDS, None, Path(folder) / "log")
        outcome = run_tasks([task], _WORKER, jobs=1, on_event=lambda *_: None, preload=_PRELOAD)[
            "init"
        ]
    if not outcome.messages:
        tail = "".join(f"\n  {line}" for line in outcome.tail[-5:])
        raise UserError(f"{request.reference}: {outcome.detail or outcome.end}{tail}")
    message = outcome.messages[-1]
    if "error" in message:
        raise UserError(plain(message["error"]))
    try:
        return TypeAdapter(kind).validate_python(message["answer"])
    except ValidationError as error:
        raise UserError(
            f"{request.reference}: the worker's answer is no answer: {error}"
        ) from error


def record(command: str, identity: Identity, folder: Path) -> tuple[RecordedCall, ...]:
    """Run ``command`` in a process of its own and return the calls of the class that it makes.

    What it stores lies in ``folder``, which the caller removes. Raises ``UserError`` where the
    command fails or calls nothing of the class.
    """
    try:
        words = shlex.split(command)
        if not words:
            raise ValueError("it is empty")
    except ValueError as error:
        raise UserError(f"--record {command!r}: {error}") from error
    wanted = {"folder": str(folder), "qualname": identity.qualname, "file": identity.file}
    path = os.pathsep.join([str(_HOOK), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "ONNX_GATE_RECORD": json.dumps(wanted)}
    try:
        status = subprocess.run(words, env=environment, check=False).returncode
    except OSError as error:
        raise UserError(f"--record: {words[0]}: {error.strerror or error}") from error
    if status != 0:
        raise UserError(f"--record: the command ended with status {status}, so nothing was written")
    rows = [row for file in sorted(folder.glob("calls-*.jsonl")) for row in _rows(file)]
    calls = tuple(_call(row) for row in rows if "tensors" in row)
    if not calls:
        trouble = next((f": {row['trouble']}" for row in rows if "trouble" in row), "")
        raise UserError(
            f"--record: the command called no {identity.qualname}{trouble}; it has to be called as "
            "model(...), by Python, and not started with -I, -E or -S"
        )
    return calls


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def _call(row: dict[str, Any]) -> RecordedCall:
    try:
        return _CALL.validate_python(row)
    except ValidationError as error:
        raise UserError(f"--record: a call was noted that cannot be read: {error}") from error
