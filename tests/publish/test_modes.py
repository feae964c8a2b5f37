"""The modes of the action that verify nothing, as processes, against a GitHub that keeps state."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import pytest

from onnx_gate.github.header import parse
from onnx_gate.manifest.load import load
from onnx_gate.report.io import read_report, to_json, write_text
from onnx_gate.report.model import Counts, ManifestInfo, ModelResult, Report, Run, Shard
from onnx_gate.report.model.since import LinkAnswer, Package, Since
from tests.support.gate import ROOT
from tests.support.github.server import BASE, HEAD, REPOSITORY, TOKEN, GitHub
from tests.support.report.reports import report
from tests.support.runner import Command, obeyed, parse_outputs

pytestmark = pytest.mark.process

REPO = {"full_name": REPOSITORY, "default_branch": "main"}
PULL = {
    "number": 7,
    "head": {"sha": HEAD, "ref": "faster-attention", "repo": REPO},
    "base": {"sha": BASE, "ref": "main", "repo": REPO},
}
MANIFEST = """\
version: 1
tolerances: {{tight: {{atol: {atol}}}}}
models:
  resnet:
    model: m.py:build
    inputs: {{x: "float32[2]"}}
    tolerance: tight
"""


@dataclass(frozen=True)
class Step:
    status: int
    log: str
    outputs: Mapping[str, str]
    summary: str

    @property
    def commands(self) -> list[Command]:
        return obeyed(self.log)


@pytest.fixture
def github() -> Iterator[GitHub]:
    with GitHub() as server:
        yield server


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "onnx-gate.yml").write_text(MANIFEST.format(atol="1.0e-4"))
    return folder


def step(
    workspace: Path,
    github: GitHub,
    inputs: Mapping[str, str],
    event: str = "pull_request",
    payload: Mapping[str, object] | None = None,
    run: int = 17301,
    command: Sequence[str] = ("-I", str(ROOT / "entrypoint.py")),
) -> Step:
    files = {n: workspace.parent / n for n in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    for file in files.values():
        file.write_text("")
    event_file = workspace.parent / "event.json"
    told = {"pull_request": PULL} if payload is None else payload
    event_file.write_text(json.dumps({**told, "repository": REPO}))
    done = subprocess.run(
        [sys.executable, *command],
        cwd=workspace,
        env={
            **{name: str(file) for name, file in files.items()},
            **{f"INPUT_{name.upper()}": value for name, value in inputs.items()},
            "PATH": os.environ["PATH"],
            "INPUT_GITHUB-TOKEN": TOKEN,
            "GITHUB_TOKEN": TOKEN,
            "GITHUB_ACTIONS": "true",
            "GITHUB_API_URL": github.url,
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_EVENT_NAME": event,
            "GITHUB_EVENT_PATH": str(event_file),
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_RUN_ID": str(run),
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_SHA": "f" * 40,
            "GITHUB_WORKFLOW_REF": f"{REPOSITORY}/.github/workflows/parity.yml@refs/heads/x",
            "GITHUB_WORKSPACE": str(workspace),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    output, summary = (file.read_text() for file in files.values())
    return Step(done.returncode, done.stdout + done.stderr, parse_outputs(output), summary)


def part(index: int, count: int, *models: ModelResult) -> Report:
    whole = report()
    verdict = "pass" if all(m.verdict == "pass" for m in models) else "diverged"
    counts = Counts.model_validate(
        {v: sum(m.verdict == v for m in models) for v in ("pass", "diverged", "error")}
    )
    return whole.model_copy(
        update={
            "models": models,
            "verdict": verdict,
            "counts": counts,
            "shard": Shard(index=index, count=count),
            "run": Run(id=17301, attempt=1, sha=HEAD),
        }
    )


def put(workspace: Path, name: str, found: Report) -> None:
    write_text(workspace / "onnx-gate-report" / name / "report.json", to_json(found))


def passing(name: str, line: int) -> ModelResult:
    return report().models[2].model_copy(update={"name": name, "line": line})


def test_shards_are_joined_and_commented_on_once(workspace: Path, github: GitHub) -> None:
    (workspace / "onnx-gate.yml").unlink()
    put(workspace, "shard-1", part(1, 2, passing("a", 3)))
    put(workspace, "shard-2", part(2, 2, report().models[0]))
    done = step(workspace, github, {"mode": "report"})
    assert done.status == 1
    assert (done.outputs["verdict"], done.outputs["passed"]) == ("diverged", "1")
    assert len(github.comments) == 1
    joined = read_report(workspace / "onnx-gate-report" / "report.json")
    assert [m.name for m in joined.models] == ["tiny_bert", "a"] or len(joined.models) == 2
    # Again, with its own result in the folder: the same.
    assert step(workspace, github, {"mode": "report"}).outputs == done.outputs
    # What another run has made stands in for nothing.
    other = step(workspace, github, {"mode": "report"}, run=17302)
    assert (other.status, other.outputs["verdict"], other.outputs["passed"]) == (1, "error", "0")


def test_a_lost_model_is_a_row_and_an_annotation(workspace: Path, github: GitHub) -> None:
    (workspace / "m.py").write_text("")
    manifest = load(workspace / "onnx-gate.yml")
    info = ManifestInfo(path="onnx-gate.yml", sha256=manifest.sha256)
    other = part(1, 2, passing("other", 3)).model_copy(update={"manifest": info})
    put(workspace, "shard-1", other)
    done = step(workspace, github, {"mode": "report"})
    assert (done.status, done.outputs["verdict"], done.outputs["failing"]) == (
        1,
        "error",
        '["resnet"]',
    )
    assert any("resnet could not be verified" in c.properties for c in done.commands)
    [comment] = github.comments
    assert "could not be verified" in comment.body.splitlines()[1]


def test_other_packages_are_said_where_all_is_well(workspace: Path, github: GitHub) -> None:
    (workspace / "onnx-gate.yml").unlink()
    packages = (Package(name="onnxscript", old="0.7.1", new="0.7.2"),)
    for number, name in enumerate("ab", 1):
        answer = LinkAnswer(model=name, link="export", before="pass", verdict="pass", share=0.1)
        since = Since(base_file="x", head_file="y", packages=packages, answers=(answer,))
        well = part(number, 2, passing(name, 2 + number))
        put(workspace, f"shard-{number}", well.model_copy(update={"since": since}))
    assert step(workspace, github, {"mode": "report"}).status == 0
    [comment] = github.comments
    body = unescape(comment.body)
    assert "- onnxscript 0.7.1 to 0.7.2: the export answers as before" in body
    assert "- models: none of 2" in body


@pytest.mark.parametrize("lost", ["one", "all"])
def test_a_missing_shard_is_no_pass(lost: str, workspace: Path, github: GitHub) -> None:
    (workspace / "onnx-gate.yml").unlink()
    if lost == "one":
        put(workspace, "shard-1", part(1, 2, passing("a", 3)))
    done = step(workspace, github, {"mode": "report"})
    assert done.status == 1
    assert done.outputs["verdict"] == "error"
    [comment] = github.comments
    assert parse(comment.body).verdict == "error"  # type: ignore[union-attr]


def test_what_a_model_of_one_part_wrote_stands_for_no_other(
    workspace: Path, github: GitHub
) -> None:
    (workspace / "onnx-gate.yml").unlink()
    put(workspace, "shard-1", part(1, 2, passing("a", 3)))
    put(workspace, "shard-1/repro/a/case", part(2, 2, passing("b", 4)))
    done = step(workspace, github, {"mode": "report"})
    assert (done.status, done.outputs["verdict"]) == (1, "error")


@pytest.mark.parametrize(("choice", "status"), [("warn", 0), ("fail", 1), ("off", 0)])
def test_a_loosened_manifest(choice: str, status: int, workspace: Path, github: GitHub) -> None:
    base = MANIFEST.format(atol="1.0e-5").encode()
    github.add_file("onnx-gate.yml", BASE, base)
    put(workspace, ".", part(1, 1, passing("resnet", 4)).model_copy(update={"shard": None}))
    done = step(workspace, github, {"mode": "publish", "protect-manifest": choice})
    assert done.status == status
    assert done.outputs["verdict"] == ("error" if status else "pass")
    assert len(github.comments) == (0 if choice == "off" else 1)
    for comment in github.comments:
        assert "asks less of the gate" in comment.body
        assert "atol" in comment.body


@pytest.mark.parametrize("moved", ["onnx-gate.yaml", "ml/gate.yml", "nothing"])
def test_a_renamed_or_removed_manifest_is_held_against_the_bases(
    moved: str, workspace: Path, github: GitHub
) -> None:
    github.add_file("onnx-gate.yml", BASE, MANIFEST.format(atol="1.0e-5").encode())
    text = (workspace / "onnx-gate.yml").read_text()
    (workspace / "onnx-gate.yml").unlink()
    if moved != "nothing":
        (workspace / moved).parent.mkdir(exist_ok=True)
        (workspace / moved).write_text(text)
    put(workspace, ".", part(1, 1, passing("resnet", 4)).model_copy(update={"shard": None}))
    inputs = {"mode": "publish", "protect-manifest": "fail"}
    given = {"manifest": moved} if moved == "ml/gate.yml" else {}
    done = step(workspace, github, {**inputs, **given})
    assert (done.status, done.outputs["verdict"]) == (1, "error")
    [comment] = github.comments
    said = "removed" if moved == "nothing" else "renamed"
    assert said in comment.body
    assert ("atol" in comment.body) == (moved != "nothing")


def test_a_manifest_that_cannot_be_compared_changes_the_verdict_only_where_that_is_asked(
    workspace: Path, github: GitHub
) -> None:
    put(workspace, ".", part(1, 1, passing("resnet", 4)).model_copy(update={"shard": None}))
    github.fail("GET", "/contents/", 99, "read-only")
    assert step(workspace, github, {"mode": "publish"}).status == 0
    done = step(workspace, github, {"mode": "publish", "protect-manifest": "fail"})
    assert (done.status, done.outputs["verdict"]) == (1, "error")


def test_the_baseline_is_in_the_comment_and_in_the_report(workspace: Path, github: GitHub) -> None:
    run = github.add_run(BASE)
    github.add_artifact(run.id, {"report.json": to_json(report()).encode()})
    put(workspace, ".", report())
    done = step(workspace, github, {"mode": "publish"})
    assert done.status == 1
    [comment] = github.comments
    assert "vs base" in comment.body
    written = read_report(workspace / "onnx-gate-report" / "report.json")
    assert written.baseline is not None
    assert written.baseline.run == run.id
    assert written.models[0].checks[0].base is not None


def test_a_fork_cannot_claim_a_pass_that_its_run_did_not_have(
    workspace: Path, github: GitHub
) -> None:
    claimed = part(1, 1, passing("resnet", 4)).model_copy(update={"shard": None})
    payload = github.add_fork_run(to_json(claimed).encode())
    done = step(workspace, github, {"mode": "publish"}, "workflow_run", payload)
    assert (done.status, done.outputs["verdict"]) == (1, "error")
    [comment] = github.comments
    assert comment.number == 8


def test_an_event_with_nothing_but_a_number_is_enough(workspace: Path, github: GitHub) -> None:
    put(workspace, ".", report())
    step(workspace, github, {"mode": "publish"}, payload={"pull_request": {"number": 7}})
    [comment] = github.comments
    assert parse(comment.body).sha == HEAD  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"mode": "verfy"}, "did you mean 'verify'?"),
        ({"comment": "sometimes"}, "'comment'"),
        ({"comment-id": "a b"}, "'comment-id'"),
        ({"output": "../out"}, "leads out of the workspace"),
        ({"output": "."}, "folder of its own"),
        ({"cache": "/tmp/verdicts"}, "leads out of the workspace"),
        ({"cache": "."}, "such as .onnx-gate-cache"),
        ({"cache": "onnx-gate-report/cache"}, "such as .onnx-gate-cache"),
        ({"manifest": "link.yml"}, "leads out of the workspace"),
        ({"manifest": "/etc/passwd"}, "leads out of the workspace"),
        ({"mode": "plan", "shard": "many"}, "no number of shards"),
        ({"shard": "1/2"}, "no meaning"),
        ({"audit": "yes"}, "'audit': 'yes' is not known"),
        ({"audit": "true", "mode": "publish"}, "mode: all or mode: verify"),
        ({"audit-min-score": "0.9"}, "add 'audit: true'"),
        ({"audit": "true", "audit-min-score": "90"}, "'audit-min-score': '90' is no share"),
        ({"since-minutes": "soon"}, "'since-minutes': 'soon' is no number of minutes"),
        ({"since-minutes": "-1"}, "'since-minutes': '-1' is no number of minutes"),
        ({"audit": "true", "audit-min-score": "most"}, "from 0 to 1"),
    ],
)
def test_wrong_inputs_are_said_in_a_sentence(
    inputs: Mapping[str, str], said: str, workspace: Path, github: GitHub
) -> None:
    (workspace / ".git").mkdir()
    (workspace / ".git" / "config").write_text("secret: value\n")
    (workspace / "link.yml").symlink_to(".git/config")
    done = step(workspace, github, inputs)
    assert done.status == 2
    assert done.outputs["verdict"] == "error"
    errors = [command.data for command in done.commands if command.name == "error"]
    assert any(said in error for error in errors)
    assert "Traceback" not in done.log
    assert "secret" not in done.log + done.summary
    assert not github.requests


def test_the_plan_is_an_output(workspace: Path, github: GitHub) -> None:
    (workspace / "m.py").write_text("")
    done = step(workspace, github, {"mode": "plan", "shard": "300"})
    assert done.status == 0
    assert json.loads(done.outputs["matrix"]) == {"shard": ["1/1"]}


@pytest.mark.parametrize(
    ("baseline", "shards", "warned"),
    [
        ("last.json", ["1/2/a", "2/2/b/c"], False),
        ("lost.json", ["1/2", "2/2"], True),
        ("off", ["1/2", "2/2"], False),
    ],
)
def test_a_plan_is_balanced_by_the_baseline_where_it_is_a_file(
    baseline: str, shards: list[str], warned: bool, workspace: Path, github: GitHub
) -> None:
    head, _, entry = MANIFEST.format(atol=1).partition("  resnet:")
    text = head + "".join(f"  {name}:{entry}" for name in "abc")
    (workspace / "onnx-gate.yml").write_text(text)
    (workspace / "m.py").write_text("")
    took = {"a": 9.0, "b": 3.0, "c": 5.0}
    models = [passing(name, 3).model_copy(update={"seconds": took[name]}) for name in took]
    write_text(workspace / "last.json", to_json(part(1, 1, *models)))
    done = step(workspace, github, {"mode": "plan", "shard": "2", "baseline": baseline})
    assert done.status == 0, done.log
    assert json.loads(done.outputs["matrix"]) == {"shard": shards}
    warnings = [each.data for each in done.commands if each.name == "warning"]
    assert [text.partition(":")[0] for text in warnings] == ["planned without durations"] * warned
    assert not github.requests


def test_the_plan_of_an_invalid_manifest_is_published_as_an_error(
    workspace: Path, github: GitHub
) -> None:
    (workspace / "onnx-gate.yml").write_text("version: 1\nmodels: {a: {modle: x}}\n")
    done = step(workspace, github, {"mode": "plan"})
    assert done.status == 2
    assert done.outputs["verdict"] == "error"
    assert any("file=onnx-gate.yml,line=2" in c.properties for c in done.commands)


def test_the_command_line_publishes_what_its_options_say(workspace: Path, github: GitHub) -> None:
    put(workspace, ".", report())
    arguments = ("-m", "onnx_gate", "publish", "onnx-gate-report/report.json", "--comment-id")
    # What a workflow gives the action is none of the command's business.
    inputs = {"comment": "never", "comment-id": "the-actions"}
    done = step(workspace, github, inputs, command=(*arguments, "mine", "--comment=always"))
    assert (done.status, done.outputs["verdict"]) == (1, report().verdict)
    [comment] = github.comments
    assert parse(comment.body).id == "mine"  # type: ignore[union-attr]
    refused = step(workspace, github, {}, command=(*arguments, "a b"))
    assert refused.status == 2
    assert "'comment-id'" in refused.log
