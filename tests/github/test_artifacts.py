"""Reports from other runs: the right one, of the right size, fetched without the token."""

from __future__ import annotations

import contextlib
import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_gate.errors import UserError
from onnx_gate.github.api_errors import GitHubError
from onnx_gate.github.archive import read_member
from onnx_gate.github.artifacts import Artifact, download_report, find_baseline
from onnx_gate.github.client import Client
from onnx_gate.github.transport import Budget, Transport, Unacceptable
from tests.support.github.clients import Clock, client_for
from tests.support.github.contexts import context
from tests.support.github.server import REPOSITORY, TOKEN, GitHub
from tests.support.github.state import BASE, HEAD, zip_of

EVENTS = Path(__file__).parent / "events"
REPORT = b'{"schema": 1}'


def test_the_redirect_is_followed_without_the_token(
    github: GitHub, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine localhost login ada password hunter2\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    run = github.add_run()
    github.add_artifact(run.id, {"report.json": REPORT})
    assert download_report(client, REPOSITORY, run.id) == REPORT
    assert [download.authorization for download in github.downloads] == [None]
    assert github.store_url not in github.url


def test_the_newest_artifact_that_has_not_expired(github: GitHub, client: Client) -> None:
    run, other = github.add_run(), github.add_run()
    assert download_report(client, REPOSITORY, run.id) is None
    assert download_report(client, REPOSITORY, 999) is None
    for number in range(120):
        github.add_artifact(run.id, {"report.json": b"old"})
        github.add_artifact(run.id, {"report.json": b"log"}, name=f"log-{number}")
    github.add_artifact(run.id, {"folder/report.json": REPORT, "folder/x/report.json": b"no"})
    github.add_artifact(run.id, {"report.json": b"expired"}, expired=True)
    github.add_artifact(other.id, {"report.json": b"another run's"})
    assert download_report(client, REPOSITORY, run.id) == REPORT


def test_a_download_that_fails_starts_again_from_the_api(github: GitHub) -> None:
    run = github.add_run()
    github.add_artifact(run.id, {"report.json": REPORT})
    github.fail("STORE", "", times=1, kind="reset")
    github.fail("STORE", "", times=1, kind="500")
    clock = Clock()
    assert download_report(client_for(github, clock), REPOSITORY, run.id) == REPORT
    assert clock.waits == [0.5, 1]
    assert sum(r.path.endswith("/zip") for r in github.requests) == 3
    github.fail("STORE", "", times=9, kind="reset")
    with pytest.raises(GitHubError) as caught:
        download_report(client_for(github), REPOSITORY, run.id)
    assert "sig=" not in str(caught.value)


def test_a_store_without_encryption_is_for_an_api_without(github: GitHub) -> None:
    secure = Transport(TOKEN, "https://git.corp.example/api/v3", Budget(9), 9)
    with pytest.raises(Unacceptable, match="redirected to http"):
        secure.fetch(github.store_url, 10)
    assert github.downloads == []


@pytest.mark.parametrize("target", ["file:///etc/passwd", "", "ftp://x/y", "http://["])
def test_an_odd_redirect_is_not_followed(github: GitHub, client: Client, target: str) -> None:
    run = github.add_run()
    github.add_artifact(run.id, {"report.json": REPORT})
    github.redirect = target or "//"
    with pytest.raises(GitHubError):
        download_report(client, REPOSITORY, run.id)


def forged(**fields: int) -> bytes:
    """Return an archive whose directory lies about its one file."""
    data = bytearray(zip_of({"report.json": REPORT * 100}))
    places = {"method": (10, "<H"), "packed": (20, "<I"), "size": (24, "<I"), "flags": (8, "<H")}
    start = data.rfind(b"PK\x01\x02")
    for name, value in fields.items():
        offset, form = places[name]
        struct.pack_into(form, data, start + offset, value)
    return bytes(data)


def many_files() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for number in range(25_000):
            archive.writestr(f"{number}", b"")
    return packed.getvalue()


BOMB = zip_of({"report.json": bytes(10**7)})
ODD: list[tuple[str, bytes, str]] = [
    ("bomb", BOMB, "larger than 1 MiB"),
    ("a bomb that lies", forged(size=10), "broken"),
    ("a claim", forged(size=2**21), "larger than 1 MiB"),
    ("no zip", b"PK\x03\x04 this is none", "broken"),
    ("empty", b"", "broken"),
    ("no report", zip_of({"other.json": b""}), "holds no report.json"),
    ("too deep", zip_of({"a/b/report.json": b""}), "holds no report.json"),
    ("two", zip_of({"a/report.json": b"", "b/report.json": b""}), "holds 2 files"),
    ("encrypted", forged(flags=1), "encrypted"),
    ("lzma", forged(method=14), "another method"),
    ("too large itself", bytes(2**20 + 1), "larger than 1 MiB"),
]


@pytest.mark.parametrize(("data", "message"), [odd[1:] for odd in ODD], ids=[o[0] for o in ODD])
def test_an_odd_archive_is_a_sentence(
    github: GitHub, client: Client, data: bytes, message: str
) -> None:
    run = github.add_run()
    github.add_artifact(run.id, data)
    with pytest.raises(UserError, match=message) as caught:
        download_report(client, REPOSITORY, run.id, max_bytes=2**20)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_an_archive_of_too_many_files_is_not_opened() -> None:
    with pytest.raises(UserError, match="too many files"):
        read_member(many_files(), "report.json", 2**20)


def test_a_bomb_that_hides_its_size_is_read_no_further() -> None:
    whole = bytearray(BOMB)
    start = whole.rfind(b"PK\x01\x02")
    # The directory and the header before the data both claim ten bytes.
    struct.pack_into("<I", whole, start + 24, 10)
    struct.pack_into("<I", whole, 22, 10)
    with pytest.raises(UserError):
        read_member(bytes(whole), "report.json", 2**20)


@given(st.data())
def test_no_broken_archive_gets_through(data: st.DataObject) -> None:
    whole = bytearray(zip_of({"report.json": REPORT * 3, "x/y": b"z"}))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)) | st.just(len(whole)))
    with contextlib.suppress(UserError):
        assert len(read_member(bytes(whole[:cut]), "report.json", 1000)) <= 1000


def test_the_baseline_is_the_last_push_to_the_default_branch(
    github: GitHub, client: Client
) -> None:
    assert find_baseline(client, context()) is None
    github.add_artifact(github.add_run(head_sha=HEAD).id, {"report.json": b"older"})
    good = github.add_run(head_sha=BASE)
    github.add_artifact(good.id, {"report.json": REPORT})
    github.add_run()
    github.add_artifact(github.add_run().id, {"report.json": b"expired"}, expired=True)
    github.add_artifact(github.add_run().id, b"no archive")
    github.add_artifact(github.add_run(conclusion="cancelled").id, {"report.json": b"half"})
    found = Artifact(REPORT, BASE, good.id)
    assert find_baseline(client, context()) == found
    assert find_baseline(client, context("workflow_run")) == found
    assert find_baseline(client, context(workflow=None)) is None
    assert find_baseline(client, context(default_branch=None)) is None
    assert find_baseline(client, context(workflow="other.yml")) is None


@pytest.mark.parametrize("filters", [True, False])
@pytest.mark.parametrize(
    "run",
    [
        {"head_repository": "mallory/models"},
        {"event": "pull_request"},
        {"event": "pull_request", "head_repository": "mallory/models"},
        {"head_branch": "feature"},
        {"head_branch": None},
        {"conclusion": "cancelled"},
        {"conclusion": None, "status": "in_progress"},
        {"workflow": "other.yml", "workflow_id": 56},
    ],
)
def test_no_other_run_is_a_baseline(
    github: GitHub, client: Client, run: dict[str, Any], filters: bool
) -> None:
    """Nor where the server forgets what it was asked for."""
    github.state.filters = filters
    github.add_artifact(github.add_run(**run).id, {"report.json": b"not to be believed"})
    assert find_baseline(client, context()) is None
    assert find_baseline(client, context("workflow_run")) is None
    assert not any("artifacts" in r.path for r in github.requests)


def test_a_red_branch_is_a_baseline_too(github: GitHub, client: Client) -> None:
    github.add_artifact(github.add_run().id, {"report.json": b"the last one that was green"})
    red = github.add_run(head_sha=HEAD, conclusion="failure")
    github.add_artifact(red.id, {"report.json": REPORT})
    assert find_baseline(client, context()) == Artifact(REPORT, HEAD, red.id)


def test_a_run_is_not_its_own_baseline(github: GitHub, client: Client) -> None:
    run = github.add_run()
    github.add_artifact(run.id, {"report.json": REPORT})
    assert find_baseline(client, context("push", run_id=run.id)) is None
    assert find_baseline(client, context("push")) is not None


def test_a_baseline_is_looked_for_in_five_runs(github: GitHub, client: Client) -> None:
    github.add_artifact(github.add_run().id, {"report.json": REPORT})
    for _ in range(5):
        github.add_run()
    assert find_baseline(client, context()) is None
    assert len(github.requests) == 6


def test_a_token_that_may_not_read_runs_is_told_so(github: GitHub, client: Client) -> None:
    github.add_run()
    github.fail("GET", "runs", kind="read-only")
    with pytest.raises(GitHubError) as caught:
        find_baseline(client, context())
    assert caught.value.kind == "permission"
