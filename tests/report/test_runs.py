"""Several reports beside each other: since when, by how much, and what is odd about them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from onnx_gate.report.io import to_json, write_text
from onnx_gate.report.model import (
    Baseline,
    Check,
    CheckBase,
    Commit,
    ManifestInfo,
    ModelError,
    ModelResult,
    Report,
    Run,
    Shard,
)
from onnx_gate.report.render import html, markdown, terminal
from onnx_gate.report.render.runs_views import RENDERINGS
from onnx_gate.report.story.runs import headline, join_runs, sentences, sparkline
from onnx_gate.report.story.versus import output_changes
from tests.support.gate import gate
from tests.support.report.everything import all_replaced
from tests.support.report.hostile import HOSTILE
from tests.support.report.page import page
from tests.support.report.reports import check
from tests.support.report.scenes import far, model, whole

BEGIN = datetime(2026, 11, 1, tzinfo=timezone.utc)
BROKEN = ModelResult(
    name="bert",
    verdict="error",
    error=ModelError(kind="export", code="OG201", message="no translation"),
)


def bert(share: float) -> ModelResult:
    verdict = "diverged" if share > 1 else "pass"
    return model(
        "bert",
        check("typical/0", verdict, output="logits", **far(share * 1e-6, None, share)),
        check("typical/0", output="pooled"),
        check("edges/nan", "diverged", advice=True, **far(1.0, None, 1e6)),
        verdict=verdict,
    )


def made(number: int, *models: ModelResult, **changes: object) -> Report:
    time = BEGIN + timedelta(days=number)
    commit = Commit(sha=f"{number:07x}" + "c" * 33, time=time)
    return whole(*models, **{"commit": commit, "created": time, **changes})


def runs(*shares: float | None) -> list[tuple[str, Report]]:
    models = [[bert(share)] if share is not None else [] for share in shares]
    return [(f"{i}.json", made(i, *each)) for i, each in enumerate(models)]


@pytest.mark.parametrize(
    ("shares", "bars", "said"),
    [
        (
            (0.02, 0.4, 41.0, 41.0),
            "▃▄▆▆",
            "diverges since 0000002 (2026-11-03): was 0.4 of the limit in 0000001, is 41",
        ),
        ((2.0, 0.4, 41.0), "▅▄▆", "diverges since 0000002 (2026-11-03): was 0.4 of"),
        ((2.0, 2.0), "▅▅", "diverges in every run"),
        (
            (0.4, None, 41.0),
            "▄·▆",
            "diverges since 0000002 (2026-11-03): was 0.4 of the limit in 0000000",
        ),
        ((0.01, 0.5, 0.5), "▃▄▄", "passes, nearer to its limit since 0000001"),
        ((0.4, 41.0, 0.4), "▄▆▄", ""),
        ((0.001, 0.004), "▂▂", ""),
        ((0.4, float("inf")), "▄█", "is not finite"),
    ],
)
def test_it_says_since_when(shares: tuple[float | None, ...], bars: str, said: str) -> None:
    history = join_runs(runs(*shares))
    logits = history.series[0]
    assert (logits.model, logits.output, sparkline(logits)) == ("bert", "logits", bars)
    lines = [line for line in sentences(history) if line.startswith("bert, logits ")]
    assert bool(lines) == bool(said)
    assert not said or said in lines[0]
    assert headline(history).startswith(lines[0] if lines else "nothing got worse over")


def test_a_model_that_can_no_longer_be_verified() -> None:
    history = join_runs([*runs(0.4), ("1.json", made(1, BROKEN))])
    assert headline(history).startswith("bert, logits cannot be verified since 0000001")
    assert sparkline(history.series[0]) == "▄×"


def test_what_fails_since_it_is_there_comes_after_what_has_passed() -> None:
    new = model("new", check("x", "diverged", **far(1.0, None, 1e9)), verdict="diverged")
    history = join_runs([*runs(0.4), ("1.json", made(1, bert(41.0), new))])
    first, second = sentences(history)
    assert first.startswith("bert, logits diverges since 0000001 (2026-11-02): was 0.4")
    assert second == "new, logits diverges since it is there, 0000001 (2026-11-02)"


def test_they_are_in_the_order_of_their_commits_or_else_of_their_runs() -> None:
    """A run on GitHub is not about the commit that is checked out, which may be of a merge."""
    one, two, three = runs(0.1, 0.2, 0.3)
    assert [run.name for run in join_runs([three, one, two]).runs] == ["0.json", "1.json", "2.json"]
    later = one[1].model_copy(update={"created": BEGIN + timedelta(days=9)})
    assert [r.name for r in join_runs([("late", later), two]).runs] == ["late", "1.json"]
    there = later.model_copy(update={"run": Run(id=3, attempt=1, sha="abcdef0")})
    history = join_runs([("late", there), two])
    assert [(run.name, run.label) for run in history.runs] == [
        ("1.json", "0000001"),
        ("late", "abcdef0"),
    ]
    unknown = two[1].model_copy(update={"created": None, "commit": None})
    history = join_runs([three, ("when", unknown)])
    assert [run.label for run in history.runs] == ["0000002", "when"]
    assert "in the order that was given" in history.notes[0]


def test_what_is_odd_is_said() -> None:
    one, two = runs(0.1, 0.2)
    other = made(2, model("other"), manifest=ManifestInfo(path="b.yml", sha256="0" * 64))
    part = made(3, bert(0.1), shard=Shard(index=2, count=4))
    notes = join_runs([one, ("again.json", one[1]), two, ("b", other), ("p", part)]).notes
    for note in (
        "again.json is the same report as 0.json",
        "different manifests: 'onnx-gate.yml', 'b.yml'",
        "0000003 is shard 2 of 4 alone",
        "no model is in all of the reports",
    ):
        assert any(note in each for each in notes), notes


def test_what_changed_since_the_base_is_said_for_each_output() -> None:
    def since(output: str, case: str, now: float, before: float, **more: object) -> Check:
        verdict = "diverged" if now > 1 else "pass"
        base = CheckBase(verdict="pass", budget=before)
        return check(case, verdict, output=output, **far(now, None, now) | {"base": base} | more)

    shown = whole(
        model(
            "bert",
            since("logits", "typical/0", 0.2, 0.4),
            since("logits", "edges/large/batch=2", 41.0, 0.3),
            since("pooled", "typical/0", 0.4, 0.39),
            since("tiny", "typical/0", 0.02, 0.001),
            since("mended", "typical/0", 0.2, 7.0),
            since("advised", "typical/0", 7.0, 0.2, advice=True),
            verdict="diverged",
            base="pass",
        ),
        baseline=Baseline(sha="4f1c2e9" + "0" * 33),
    )
    said = [
        "logits: was 0.4 of the limit, is 41 (edges/large/batch=2)",
        "mended: was 7 of the limit, is 0.2 (typical/0)",
    ]
    assert [str(each) for each in output_changes(shown.models[0])] == said
    plain = "".join(page(markdown.render(shown)).text).replace("\u200b", "")
    for text in (terminal.render(shown), unescape(html.render(shown)), plain):
        for line in said:
            assert line in text


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)


def _tags(reports: Sequence[tuple[str, Report]]) -> list[str]:
    parser = _Page()
    parser.feed(RENDERINGS["html"](join_runs(reports)))
    return parser.seen


# What no file of JSON can hold is in no report that was read.
@pytest.mark.parametrize("text", [t for t in HOSTILE[::25] if "\udfff" not in t])
def test_hostile_reports_have_no_markup(text: str) -> None:
    wild = [
        (text, made(0, bert(0.4)).model_copy(update={"models": all_replaced(text).models})),
        *runs(0.4),
    ]
    tame = [("x", wild[0][1].model_copy(update={"models": all_replaced("x").models})), *runs(0.4)]
    assert _tags(wild) == _tags(tame)
    shown = page(RENDERINGS["markdown"](join_runs(wild)))
    assert shown.unbalanced == []
    assert not shown.links
    assert all(
        not line.lstrip().startswith("::")
        for line in RENDERINGS["terminal"](join_runs(wild)).splitlines()
    )


@pytest.mark.process
def test_the_command_renders_several_and_refuses_what_it_cannot(tmp_path: Path) -> None:
    for name, report in runs(0.4, 41.0):
        write_text(tmp_path / name, to_json(report))
    said = (
        "bert, logits diverges since 0000001 (2026-11-02): was 0.4 of the limit in 0000000, is 41"
    )
    for format in RENDERINGS:
        done = gate("report", "1.json", "0.json", "--format", format, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert said in unescape(done.stdout).replace("\u200b", ""), done.stdout
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.json").write_text('{"schema": 2}')
    for arguments, words in (
        (["bad.json"], "bad.json: not a report of this version of onnx-gate: schema"),
        (["gone.json"], "gone.json: No such file"),
        (["empty"], "empty: no report.json in this folder"),
        (["1.json", "--format", "junit"], "junit is of one report; several are rendered as"),
        (["1.json", "--format", "pdf"], "no format is called 'pdf'"),
    ):
        done = gate("report", "0.json", *arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr
