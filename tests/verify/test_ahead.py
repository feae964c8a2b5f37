"""What forks do beside the exporter and the cases: nobody can tell from a result that they did."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from onnx_gate.report.io import read_report
from onnx_gate.report.model import ModelResult
from tests.support.gate import gate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="a fork takes a second core"),
]

MODELS = """\
import os
import time
from contextlib import suppress

import torch
from torch import nn

WORKER = os.getpid()
LARGEST = [0]


def slowly():
    '''Have the export take as long as the fork that asks meanwhile.'''
    if torch.compiler.is_exporting():
        with suppress(ChildProcessError):
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 1024)
        self.first, self.second = nn.Linear(1024, 1024), nn.Linear(1024, 8)

    def forward(self, x, rows):
        slowly()
        x = torch.relu(self.first(x + self.table(rows))).clamp(max=2)
        return self.second(x).softmax(-1), x.argmax(-1)


class Hanging(Net):
    def forward(self, x, rows):
        if os.getpid() != WORKER:
            time.sleep(600)
        return self.second(torch.relu(self.first(x))).softmax(-1), x.argmax(-1)


class Sharing(Net):
    '''Counts in memory that a fork has, too.'''

    def __init__(self):
        super().__init__()
        self.register_buffer("met", torch.zeros(1).share_memory_())

    def forward(self, x, rows):
        if not torch.compiler.is_exporting() and x.shape[0] == 7:
            self.met.add_(1)
        classes, best = super().forward(x, rows)
        return classes + self.met, best


class Remembering(Net):
    '''Keeps what it has met where nobody looks for state.'''

    def forward(self, x, rows):
        if not torch.compiler.is_exporting():
            LARGEST[0] = max(LARGEST[0], x.shape[0])
        classes, best = super().forward(x, rows)
        return classes * (2 if x.shape[0] < 4 < LARGEST[0] else 1), best


class Reading(Net):
    '''Asks for a variable, but not for the example.'''

    def forward(self, x, rows):
        classes, best = super().forward(x, rows)
        if x.shape[0] == 7 and not torch.compiler.is_exporting():
            classes = classes * float(os.environ["NET_SCALE"])
        return classes, best


class Polite(Net):
    '''Says of large inputs whether it is asked with the least priority.'''

    def forward(self, x, rows):
        classes, best = super().forward(x, rows)
        if not torch.compiler.is_exporting() and os.nice(0) == 19 and x.abs().max() > 1000:
            classes = classes + 1
        return classes, best


class Branched(Net):
    '''Has a branch without effect, and no gradient outside of a fork.'''

    def forward(self, x, rows):
        exporting = torch.compiler.is_exporting()
        if torch.is_grad_enabled() and not exporting and os.getpid() == WORKER:
            raise RuntimeError("no gradient here")
        slowly()
        y = self.table(rows)
        return self.second(x + y) + 0 * self.second(self.first(y))


class Drawing(Net):
    '''Draws, and has more threads, for large inputs alone.'''

    def forward(self, x, rows):
        if not torch.compiler.is_exporting() and x.abs().max() > 1000:
            torch.set_num_threads(2)
            x = x * torch.rand(1024)
        return super().forward(x, rows)


class Writing(Net):
    '''Notes large inputs, as others could not have noted them once more.'''

    def forward(self, x, rows):
        if not torch.compiler.is_exporting() and x.abs().max() > 1000:
            with open("noted.txt", "a") as file:
                file.write(f"{x.shape[0]} {x.abs().max():g} {os.nice(0)}\\n")
        return super().forward(x, rows)
"""
MANIFEST = """\
version: 1
dims: {{batch: [1, 2, 7]}}
models:
  net:
    model: models.py:{}
    inputs:
      x: float32[batch, 1024]
      rows: {{dtype: int64, shape: [batch], range: [0, 49]}}
"""


# Less memory than a fork is made in.
WITHOUT = "    memory: 2 GiB\n"


def verified(folder: Path, target: str, more: str = "", *options: str) -> ModelResult:
    (folder / "models.py").write_text(MODELS)
    (folder / "onnx-gate.yml").write_text(MANIFEST.format(target) + more)
    return again(folder, *options)


def again(folder: Path, *options: str, scale: str = "1") -> ModelResult:
    variables = {"NET_SCALE": scale}
    gate("run", "--jobs", "1", "--remedies", "0", *options, cwd=folder, variables=variables)
    (model,) = read_report(folder / "onnx-gate-report" / "report.json").models
    return model


def asked(model: ModelResult) -> int:
    """Return how often the process itself has asked PyTorch."""
    return sum(stage.times for stage in model.stages if stage.name == "verify: pytorch")


def facts(model: ModelResult) -> dict[str, Any]:
    told = model.model_dump(exclude={"stages", "seconds", "peak_memory", "runtimes", "line"})
    for check in told["checks"]:
        del check["seconds"]
    return told


def test_a_result_is_the_same_to_the_bit(tmp_path: Path) -> None:
    ahead = verified(tmp_path, "Net", "", "--cache", "cache")
    alone = verified(tmp_path, "Net", WITHOUT)
    assert facts(ahead) == facts(alone)
    assert ahead.verdict == "pass"
    cases = {
        check.case for check in alone.checks if not check.case.startswith(("advice", "reached"))
    }
    assert asked(alone) - asked(ahead) == len(cases) > 8


def test_which_weights_may_be_without_effect_is_asked_ahead(tmp_path: Path) -> None:
    ahead, alone = (verified(tmp_path, "Branched", more) for more in ("", WITHOUT))
    (found,) = [finding for finding in ahead.findings if finding.code == "OG421"]
    assert found.data == {"weights": ["first.weight"]}
    assert not [finding for finding in alone.findings if finding.code == "OG421"]


def test_a_fork_that_never_answers_costs_what_it_would_have_told(tmp_path: Path) -> None:
    model = verified(tmp_path, "Hanging")
    assert model.verdict == "pass", model.error
    alone = verified(tmp_path, "Hanging", WITHOUT)
    assert asked(model) == asked(alone)


def test_a_model_that_remembers_a_case_is_found_out(tmp_path: Path) -> None:
    """What the fork has met changes nothing here, so that nothing of it is taken."""
    model = verified(tmp_path, "Remembering")
    assert model.error is not None
    assert model.error.code == "OG106", model.error


def test_no_fork_is_made_of_a_module_that_a_fork_would_change(tmp_path: Path) -> None:
    model = verified(tmp_path, "Sharing")
    assert facts(model) == facts(verified(tmp_path, "Sharing", WITHOUT))
    assert model.error is not None
    assert model.error.code == "OG106", model.error


def test_what_a_case_reads_is_recorded_for_the_next_run(tmp_path: Path) -> None:
    first = verified(tmp_path, "Reading", "", "--cache", "cache")
    assert again(tmp_path, "--cache", "cache").cached
    second = again(tmp_path, "--cache", "cache", scale="2")
    assert not second.cached
    assert (first.verdict, second.verdict) == ("pass", "diverged")


def advised(model: ModelResult) -> set[tuple[str, str]]:
    return {(c.case, c.verdict) for c in model.checks if c.advice and c.case.count("large")}


def test_advisory_cases_are_tried_beside_the_others(tmp_path: Path) -> None:
    beside, alone = (advised(verified(tmp_path, "Polite", more)) for more in ("", WITHOUT))
    assert {verdict for _, verdict in alone} == {"pass"}
    assert {case for case, verdict in beside if verdict == "diverged"} == {c for c, _ in alone}


def test_who_acts_in_an_advisory_case_is_asked_when_all_others_are_done(tmp_path: Path) -> None:
    noted = tmp_path / "noted.txt"
    beside = verified(tmp_path, "Writing")
    written = noted.read_text()
    noted.unlink()
    alone = verified(tmp_path, "Writing", WITHOUT)
    assert facts(beside) == facts(alone)
    assert written == noted.read_text()


def test_what_advisory_cases_draw_hangs_on_no_other_case(tmp_path: Path) -> None:
    beside = verified(tmp_path, "Drawing")
    assert facts(beside) == facts(verified(tmp_path, "Drawing", WITHOUT))
    assert advised(beside)
    assert not [finding for finding in beside.findings if finding.code == "OG406"]
