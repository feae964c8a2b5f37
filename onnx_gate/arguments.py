"""What the commands of the command line take, and what becomes of it before a command begins."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, Optional

import typer

from onnx_gate.errors import UserError
from onnx_gate.text import counted, did_you_mean, printed, quote

if TYPE_CHECKING:
    from onnx_gate.manifest import Manifest, ManifestError, Optimization

PASSED, FAILED, INVALID = 0, 1, 2
DEFAULT_OUTPUT = Path("onnx-gate-report")


class SchemaKind(str, Enum):
    """What ``onnx-gate schema`` prints."""

    manifest = "manifest"
    report = "report"


def _model_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a model; where the manifest has mistakes, nothing."""
    from onnx_gate.manifest import ManifestError
    from onnx_gate.manifest.find import find_manifest
    from onnx_gate.manifest.load import load

    try:
        given = context.params.get("manifest")
        manifest = load(Path(given) if given else find_manifest(Path.cwd()))
    except (ManifestError, UserError, OSError):
        return []
    return [spec.name for spec in manifest.models if spec.name.startswith(incomplete)]


def _codes(incomplete: str) -> list[tuple[str, str]]:
    from onnx_gate.findings import CATALOGUE

    entries = CATALOGUE.values()
    return [(e.code, e.title) for e in entries if e.code.startswith(incomplete.upper())]


# Typer reads these on Python 3.10, which has no "|" for it.
OptionalPath = Optional[Path]  # noqa: UP045
OptionalText = Optional[str]  # noqa: UP045
OptionalNumber = Optional[float]  # noqa: UP045
Texts = Optional[list[str]]  # noqa: UP045
Paths = Optional[list[Path]]  # noqa: UP045

ManifestOption = Annotated[
    OptionalPath,
    typer.Option(
        "--manifest",
        "-m",
        metavar="FILE",
        help="The manifest; without it, onnx-gate.yml here or in the nearest folder above.",
    ),
]
ModelOption = Annotated[
    Texts,
    typer.Option(
        "--model",
        metavar="GLOB",
        help="Only the models that match (repeatable).",
        autocompletion=_model_names,
    ),
]
CaseOption = Annotated[
    Texts, typer.Option("--case", metavar="GLOB", help="Only the cases that match (repeatable).")
]
RuntimeOption = Annotated[
    Texts,
    typer.Option(
        "--runtime",
        metavar="NAME",
        help="Only in this runtime, as the model lists it or else with its defaults (repeatable).",
    ),
]
OutputOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="Where report and logs are written.")
]
JobsOption = Annotated[
    int, typer.Option("--jobs", "-j", min=0, help="Models side by side (0: one per core).")
]
ShardOption = Annotated[
    OptionalText,
    typer.Option(
        "--shard", metavar="I/N", help="Only one of N parts of the models, or of their blocks."
    ),
]
BaselineOption = Annotated[
    OptionalPath,
    typer.Option("--baseline", metavar="REPORT", help="A report.json to compare with."),
]
FormatsOption = Annotated[
    Texts,
    typer.Option(
        "--format",
        "-f",
        metavar="NAME",
        help="Print this and no table, and write it beside report.json: github, gitlab, html, json, "
        "junit, markdown or sarif (repeatable; the first is printed, html not on a terminal; "
        "terminal is the table).",
    ),
]
CacheOption = Annotated[
    OptionalPath,
    typer.Option(
        "--cache",
        metavar="DIR",
        envvar="ONNX_GATE_CACHE",
        help="Take verdicts from here that still hold, and keep new ones.",
    ),
]
ShardsOption = Annotated[
    str,
    typer.Option(
        "--shards",
        metavar="N|auto",
        help="How many (auto: one for 4 models, or for 5 minutes of work).",
    ),
]
DurationsOption = Annotated[
    Paths,
    typer.Option(
        "--durations",
        metavar="REPORT",
        help="A report of an earlier run, or a folder of them, to balance by (repeatable).",
    ),
]
OptimizationOption = Annotated[
    OptionalText,
    typer.Option(
        metavar="LEVEL",
        help="ONNX Runtime's level: off, basic, extended or all (none: its own default).",
    ),
]
SessionOption = Annotated[
    Texts,
    typer.Option(
        metavar="KEY=VALUE",
        help="A session option of ONNX Runtime, or an option of another engine (repeatable).",
    ),
]
AtolOption = Annotated[
    OptionalNumber,
    typer.Option(min=0, help="Absolute tolerance; without any, a few units of rounding."),
]
TargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="What builds the model: file.py:attribute or package.module:attribute.",
    ),
]
RecordOption = Annotated[
    OptionalText,
    typer.Option(
        "--record",
        metavar="COMMAND",
        help='Learn from the calls that a script of yours makes: "python infer.py".',
    ),
]
GivenOption = Annotated[
    Texts,
    typer.Option(
        "--arg", metavar="KEY=VALUE", help="An argument that TARGET is called with (repeatable)."
    ),
]
SaidOption = Annotated[
    Texts,
    typer.Option(
        "--input",
        metavar="NAME=INPUT",
        help="What an input of forward is, where the guess is wrong: 'mask=bool[batch, seq]', or "
        "'ids=int64[batch, seq] in 0..30521' (repeatable).",
    ),
]
SampleOption = Annotated[
    int, typer.Option("--sample", min=0, metavar="N", help="Faults to try for each model (0: all).")
]
ScoreOption = Annotated[
    OptionalNumber,
    typer.Option(
        "--min-score",
        min=0,
        max=1,
        metavar="SHARE",
        help="Fail where less than this share of the faults is caught, such as 0.9.",
    ),
]
RangeArgument = Annotated[
    str, typer.Argument(metavar="FIRST..LAST", help="The releases to look among: 1.20..1.32.")
]
PackageOption = Annotated[
    str, typer.Option("--package", metavar="NAME", help="The package, as the index has it.")
]
FindLinksOption = Annotated[
    Paths,
    typer.Option(
        "--find-links", metavar="DIR", help="A folder of wheels to look in, too (repeatable)."
    ),
]
NoIndexOption = Annotated[
    bool, typer.Option("--no-index", help="Look for packages in no index, in such folders only.")
]
ReportArgument = Annotated[Path, typer.Argument(metavar="REPORT", help="A report.json.")]
ReportsArgument = Annotated[
    list[Path],
    typer.Argument(metavar="REPORT...", help="Files, or folders with report.json below them."),
]
CodeArgument = Annotated[
    OptionalText,
    typer.Argument(
        help="A finding's code, such as OG102; none lists them all.", autocompletion=_codes
    ),
]


def load_manifest(path: Path | None, *, files: bool = False) -> Manifest:
    """Return the manifest that is named, or else meant; one with mistakes ends the command.

    With ``files`` suites of files have to match some.
    """
    from onnx_gate.manifest import ManifestError
    from onnx_gate.manifest.find import find_manifest
    from onnx_gate.manifest.load import load

    try:
        path = path or find_manifest(Path.cwd())
        return load(path, files=files)
    except ManifestError as error:
        refuse_manifest(path, error)
    except UserError as error:
        refuse(str(error))


def refuse_manifest(path: Path | None, error: ManifestError) -> NoReturn:
    """End the command with every mistake of a manifest."""
    for problem in error.problems:
        complain(problem)
    complain(f"{path}: {counted(len(error.problems), 'mistake')}")
    raise typer.Exit(INVALID) from None


def level_of(text: str | None) -> Optimization | None:
    """Return a level of ONNX Runtime's optimiser; an unknown one ends the command."""
    from onnx_gate.manifest import OPTIMIZATIONS

    for level in OPTIMIZATIONS:
        if level == text:
            return level
    if text is not None:
        refuse(f"--optimization: unknown level {quote(text)}{did_you_mean(text, OPTIMIZATIONS)}")
    return None


def detail_of(verbose: bool, quiet: bool) -> int:
    """Return how much is shown: -1, 0 or 1; both at once ends the command."""
    if verbose and quiet:
        refuse("--verbose and --quiet contradict each other; leave one out")
    return int(verbose) - int(quiet)


def token() -> str:
    """Return GitHub's token, empty where the environment has none."""
    return os.environ.get("GITHUB_TOKEN") or os.environ.get("GH_TOKEN") or ""


def complain(sentence: object) -> None:
    """Print one line, in which names that others chose are obeyed by nobody."""
    typer.echo(printed(sentence), err=True)


def refuse(message: str) -> NoReturn:
    """End the command as an invalid call."""
    for line in f"onnx-gate: {message}".splitlines():
        complain(line)
    raise typer.Exit(INVALID)


@contextmanager
def refusing() -> Iterator[None]:
    """End the command as an invalid call where what happens in the context is the user's mistake."""
    try:
        yield
    except UserError as error:
        refuse(str(error))
