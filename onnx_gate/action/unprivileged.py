"""The process that verifies in the container: it has no token, and its workers have no rights.

Run as ``python -I -m onnx_gate.action.unprivileged FILE``, with a ``Job`` in the file. Exit status as of
``onnx-gate run``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from onnx_gate.action.failed import failed_report, of_manifest
from onnx_gate.action.job import AskedSince, Job
from onnx_gate.action.log import say
from onnx_gate.errors import UserError
from onnx_gate.gate.deliver import deliver, try_remedies, verify_manifest
from onnx_gate.gate.options import Options
from onnx_gate.gate.shards import parse_shard
from onnx_gate.manifest import Manifest, ManifestError
from onnx_gate.manifest.find import path_in_repository
from onnx_gate.manifest.load import load
from onnx_gate.pages import page
from onnx_gate.report.io import UNTRUSTED_BYTES, read_report, to_json, write_text
from onnx_gate.report.layout import OF_EACH, REPORT
from onnx_gate.report.model import Problem, Report
from onnx_gate.report.story.remedied import tried
from onnx_gate.report.story.since import lines
from onnx_gate.since.locks import changed_pins
from onnx_gate.since.since import since
from onnx_gate.verify.context import AuditRequest

_DENIED = re.compile(
    r"PermissionError|Errno 13|Permission denied|NameResolution|name resolution|Max retries|"
    r"ConnectionError|URLError|Read-only file system"
)
_CONFINED = (
    "the models run in a sandbox: without network, and able to write only below $HOME and $TMPDIR. "
    f"Download weights in a step before this one: {page('security.md')}"
)


def main(arguments: Sequence[str]) -> int:
    """Verify, and leave a report whatever happens."""
    job = Job.model_validate_json(Path(arguments[0]).read_bytes())
    output = job.output
    try:
        manifest = load(job.manifest)
        options = Options(
            output=output,
            models=job.models,
            shard=parse_shard(job.shard) if job.shard else None,
            launch=job.launch,
            sandbox=job.sandbox,
            cache=job.cache,
            changed=job.cache is not None,
            keep_models=job.keep_models,
            audit=AuditRequest(min_score=job.min_score) if job.audit else None,
            # Without a cache's guard the models may be able to write where the report is.
            journal=job.cache or (output if job.audit else None),
            report_bytes=UNTRUSTED_BYTES,
            remedies=1.0 if job.remedies else 0.0,
        )
        if job.since is not None:
            report = _asked_since(job.since, manifest, options, read_report(output / REPORT))
            write_text(output / REPORT, to_json(report))
        elif job.remedies:
            report = try_remedies(manifest, options, read_report(output / REPORT))
            write_text(output / REPORT, to_json(report))
            say(f"{m.name}: {told.sentence}" for m in report.models for told in tried(m))
        else:
            report = _completed(verify_manifest(manifest, options), job)
            deliver(report, output)
    except ManifestError as error:
        return _refuse(job, of_manifest(error))
    except UserError as error:
        return _refuse(job, [Problem(message=str(error))])
    except KeyboardInterrupt:
        return 130  # the process that sent it has the word
    return 0 if report.verdict == "pass" else 1


def _asked_since(asked: AskedSince, manifest: Manifest, options: Options, report: Report) -> Report:
    """Return the report with what other packages made of the answers, of the first file that has some."""
    packages = asked.packages
    folder = packages.cache
    plain = Options(
        output=folder / OF_EACH,
        models=options.models,
        launch=options.launch,
        sandbox=options.sandbox,
        report_bytes=options.report_bytes,
    )
    notes: list[str] = []
    for base, head in asked.files:
        name = path_in_repository(head, manifest.workspace)
        try:
            files = changed_pins(base, head, packages)
            if not files.packages:
                continue
            found = since(
                files, manifest, plain, packages, folder, lambda line: say([line]), asked.seconds
            ).since
        except UserError as error:
            notes.append(f"which packages changed an answer is not known: {error}")
            continue
        if found is not None:
            found = found.model_copy(update={"base_file": name, "head_file": name})
            say(lines(found))
            return report.model_copy(update={"since": found})
    return report.model_copy(update={"notes": (*report.notes, *notes)})


def _refuse(job: Job, problems: Sequence[Problem]) -> int:
    name = job.manifest.name
    say(
        f"{name}:{p.line}:{p.column}: {p.path}: {p.message}" if p.line else p.message
        for p in problems
    )
    shard = None
    with suppress(UserError):
        shard = parse_shard(job.shard)
    report = failed_report(problems, name, job.sandbox, run=job.run, shard=shard)
    write_text(job.output / REPORT, to_json(report))
    return 2


def _completed(report: Report, job: Job) -> Report:
    """Return the report with what only this process knows: versions, and why a model may fail."""
    used = report.environment
    replaced = {
        name: [version, str(used[name])]
        for name, version in job.image.items()
        if name in used and used[name] != version
    }
    notes = report.notes
    errors = [model.error for model in report.models if model.error is not None]
    if job.sandbox.level in ("full", "partial") and any(
        _DENIED.search("\n".join((error.message, *error.tail))) for error in errors
    ):
        notes = (*notes, _CONFINED)
    environment = {**used, **({"replaced": replaced} if replaced else {})}
    known = {"environment": environment, "notes": notes, "run": job.run}
    return report.model_copy(update=known)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
