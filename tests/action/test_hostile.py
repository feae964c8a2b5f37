"""A hostile model, in the container that GitHub's runner would start, gets nothing.

Every attempt is also made against the same image without its protections, where it succeeds: a
test here fails where the protection that it is about is removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.support.runner import CHECKOUT_TOKEN, RUNTIME_TOKEN, TOKEN, Command, Job, Step

pytestmark = [pytest.mark.slow, pytest.mark.container, pytest.mark.timeout(1800)]

READS = {
    "environ": None,
    "proc-environ": TOKEN,
    "proc-memory": None,
    "runner-temp": CHECKOUT_TOKEN,
    "event": None,
    "home": CHECKOUT_TOKEN,
    "git-config": CHECKOUT_TOKEN,
    "git-nested": CHECKOUT_TOKEN,
    "git-link": CHECKOUT_TOKEN,
    "temp-link": CHECKOUT_TOKEN,
}
DENIED = (
    *("docker", "socket", "socket6", "runner-temp", "event", "home", "git-config", "git-nested"),
    *("git-link", "temp-link", "write-github_env", "write-github_path", "write-github_output"),
    *("write-github_state", "write-github_step_summary", "write-new", "write-workspace"),
    *("write-model", "write-gate", "stdout-of-1"),
)
_LINE = re.compile(r"^SPY (?P<name>\S+) (?P<result>got|denied) (?P<rest>.*)$", re.M)


def attempts(step: Step) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for match in _LINE.finditer(step.text("logs/spy.log")):
        found.setdefault(match["name"], []).append((match["result"], match["rest"]))
    return found


@pytest.fixture(scope="module")
def attacked(image: str, hostile_job: Callable[[], Job]) -> Step:
    return hostile_job().run(image, {"mode": "verify", "models": "spy,printer,::error*,honest"})


@pytest.fixture(scope="module")
def control(unprotected: str, hostile_job: Callable[[], Job]) -> Step:
    """The same models where nothing protects anybody from them."""
    return hostile_job().run(unprotected, {"mode": "verify", "models": "spy", "sandbox": "off"})


def test_the_sandbox_is_whole_and_honest_models_pass_in_it(attacked: Step) -> None:
    assert "sandbox: full (uid 65534" in attacked.log
    verdicts = {model["name"]: model["verdict"] for model in attacked.report["models"]}
    assert verdicts["honest"] == verdicts["spy"] == "pass"
    assert attacked.report["sandbox"]["level"] == "full"
    assert "sandbox" in attacked.summary


@pytest.mark.parametrize("name", READS)
def test_no_secret_can_be_read(name: str, attacked: Step, control: Step) -> None:
    assert all("secrets []" in rest for result, rest in attempts(attacked)[name] if result == "got")
    secret = READS[name]
    if secret is not None:
        stolen = [rest for _, rest in attempts(control)[name]]
        assert any(secret[: len(secret) // 2] in rest for rest in stolen), "the attack is no attack"


@pytest.mark.parametrize("name", DENIED)
def test_it_is_denied(name: str, attacked: Step, control: Step) -> None:
    assert {result for result, _ in attempts(attacked)[name]} == {"denied"}
    assert "got" in {result for result, _ in attempts(control)[name]}, "the attack is no attack"


def test_the_command_files_hold_what_the_gate_wrote_and_nothing_else(attacked: Step) -> None:
    job = attacked.job
    assert all(not job.command_file(n).read_text() for n in ("GITHUB_ENV", "GITHUB_PATH"))
    assert "EVIL" not in job.command_file("GITHUB_OUTPUT").read_text() + attacked.summary
    assert not (job.workspace / "evil.py").exists()
    assert attacked.outputs["verdict"] == "error"


def test_the_files_of_the_runner_are_as_open_as_before(attacked: Step) -> None:
    job = attacked.job
    modes = {path: path.stat().st_mode & 0o777 for path in (job.temp, job.workspace / ".git")}
    assert set(modes.values()) == {0o755}
    assert job.command_file("GITHUB_OUTPUT").stat().st_mode & 0o777 == 0o644
    assert job.command_file("GITHUB_OUTPUT").stat().st_uid == 1001
    report = job.workspace / "onnx-gate-report"
    assert {p.lstat().st_uid for p in (report, *report.rglob("*"))} == {1001}


def test_no_secret_is_in_anything_that_leaves(attacked: Step) -> None:
    report = attacked.job.workspace / "onnx-gate-report"
    texts = [path.read_text() for path in report.rglob("*") if path.is_file()]
    for secret in (TOKEN, RUNTIME_TOKEN, CHECKOUT_TOKEN):
        assert not any(secret in text for text in (*texts, attacked.log, attacked.summary))


def test_no_line_of_a_model_is_a_command(attacked: Step) -> None:
    allowed = {"group", "endgroup", "error", "warning"}
    assert {command.name for command in attacked.commands} <= allowed
    ours = re.compile(r"file=(onnx-gate\.yml|models/(plain|printer)\.py),line=\d+,title=|^$")
    errors = [c for c in attacked.commands if c.name in ("error", "warning")]
    assert errors
    assert all(ours.match(command.properties) for command in errors)
    assert Command("error", "", "printed") not in attacked.commands
    groups = [c.name for c in attacked.commands if c.name in ("group", "endgroup")]
    assert groups == ["group", "endgroup"] * (len(groups) // 2), "a model closed a group"


@pytest.mark.parametrize("name", ["leaver", "killer", "forger"])
def test_an_error_cannot_be_turned_into_a_pass(
    name: str, image: str, hostile_job: Callable[[], Job]
) -> None:
    step = hostile_job().run(image, {"mode": "all", "models": f"{name},honest", "comment": "never"})
    verdicts = {model["name"]: model["verdict"] for model in step.report["models"]}
    assert verdicts[name] == ("diverged" if name == "forger" else "error")
    assert step.status == 1
    assert step.outputs["verdict"] == ("diverged" if name == "forger" else "error")
    if name != "killer":
        assert verdicts["honest"] == "pass"
    log = step.text(f"logs/{name}.log")
    assert {"leaver": "LEFT", "killer": "SPARED 1 ", "forger": "KEPT logs"}[name] in log
    assert "MOVED" not in log
    assert not re.search(r"KILLED \d+ .*onnx_gate\.action|KILLED 1 ", log)


def test_a_model_writes_nothing_that_another_reads(
    image: str, hostile_job: Callable[[], Job]
) -> None:
    step = hostile_job().run(image, {"mode": "verify", "models": "swapper,honest"})
    assert step.status == 0
    log = step.text("logs/swapper.log")
    assert "ALLOWED" in log
    assert "KEPT evil PermissionError" in log
    assert "KEPT new PermissionError" in log
    assert "SWAPPED" not in log
