"""The sticky comment: found on every page, never a stranger's, never twice, never lost."""

from __future__ import annotations

from typing import Any

import pytest

from onnx_gate.github.api_errors import GitHubError
from onnx_gate.github.client import Client
from onnx_gate.github.comment import CommentResult, sync_comment
from onnx_gate.github.comment_policy import CommentPolicy
from onnx_gate.github.header import Header
from tests.support.github.clients import Clock, client_for, header
from tests.support.github.server import BOT, NUMBER, TOKEN, GitHub


def sync(
    server: GitHub,
    client: Client | None = None,
    head: Header | None = None,
    *,
    body: str = "new",
    policy: CommentPolicy = "changes",
    wrong: bool = True,
) -> CommentResult:
    client = client or client_for(server)
    return sync_comment(
        client, server.repository, NUMBER, head or header(), body, policy, wrong, pause=1
    )


def stand(server: GitHub, run: int = 50, author: str = BOT, **more: object) -> int:
    return server.add_comment(author, f"{header(run, **more).line()}\nold").id  # type: ignore[arg-type]


def bodies(server: GitHub, author: str = BOT) -> list[str]:
    return [c.body.partition("\n")[2] for c in server.comments if c.author == author]


def test_the_ordinary_case_takes_four_requests(github: GitHub) -> None:
    first = sync(github)
    assert first.action == "created"
    assert first.url == f"https://example.test/octo/models/pull/7#issuecomment-{1001}"
    assert github.counted() == ["GET comments", "GET 7", "POST comments", "GET comments"]
    github.requests.clear()
    clock = Clock()
    assert sync(github, client_for(github, clock), header(101)).action == "updated"
    assert github.counted() == ["GET comments", "GET user", "PATCH 1001", "GET comments"]
    assert clock.waits == [1]
    github.requests.clear()
    again = sync(github, head=header(101))
    assert (again.action, again.url) == ("unchanged", first.url)
    assert github.counted() == ["GET comments", "GET user"]
    assert github.comments[0].body == f"{header(101).line()}\nnew"


def test_ours_is_found_on_the_last_page(github: GitHub) -> None:
    for number in range(230):
        github.add_comment("ada", f"Comment {number}")
    ours = stand(github)
    assert sync(github).action == "updated"
    assert bodies(github) == ["new"]
    assert github.comments[-1].id == ours
    assert sum(r.method == "GET" and "comments" in r.path for r in github.requests) == 6


@pytest.mark.parametrize("field", ["workflow", "manifest"])
def test_the_comment_of_another_gate_is_left_alone(github: GitHub, field: str) -> None:
    theirs: dict[str, Any] = {field: "b.yml"}
    ours: dict[str, Any] = {field: "a.yml"}
    stand(github, 10**9, **theirs)
    assert sync(github, head=header(**ours)).action == "created"
    assert sorted(bodies(github)) == ["new", "old"]


def test_a_spoofed_marker_is_left_alone(github: GitHub) -> None:
    for author in ("mallory", "github-actions", "mallory[bot]"):
        stand(github, 10**9, author)
    github.add_comment(BOT, f"Quoting:\n{header(10**9).line()}\nnot at the start")
    stand(github, 10**9, id="another")
    before = {c.id: c.body for c in github.comments}
    assert sync(github).action == "created"
    assert {c.id: c.body for c in github.comments if c.id in before} == before
    assert len(github.comments) == len(before) + 1


def test_duplicates_go_and_the_first_stays(github: GitHub) -> None:
    ids = [stand(github, run) for run in (50, 52, 51)]
    assert sync(github).action == "updated"
    assert [c.id for c in github.comments] == ids[:1]
    assert bodies(github) == ["new"]


POLICIES: list[tuple[CommentPolicy, bool, bool, str, list[str]]] = [
    # policy, something is wrong, a comment stands: what is done, what stands afterwards
    ("changes", True, False, "created", ["new"]),
    ("changes", True, True, "updated", ["new"]),
    ("changes", False, False, "none", []),
    ("changes", False, True, "updated", ["new"]),
    ("always", False, False, "created", ["new"]),
    ("on-failure", True, False, "created", ["new"]),
    ("on-failure", False, False, "none", []),
    ("on-failure", False, True, "deleted", []),
    ("never", True, True, "none", ["old"]),
]


@pytest.mark.parametrize(("policy", "wrong", "stands", "action", "left"), POLICIES)
def test_policies(
    github: GitHub, policy: CommentPolicy, wrong: bool, stands: bool, action: str, left: list[str]
) -> None:
    if stands:
        stand(github)
    assert sync(github, policy=policy, wrong=wrong).action == action
    assert bodies(github) == left
    assert policy != "never" or github.requests == []


@pytest.mark.parametrize("policy", ["changes", "always", "on-failure"])
@pytest.mark.parametrize("wrong", [True, False])
@pytest.mark.parametrize(("run", "attempt"), [(101, 1), (100, 2)])
def test_a_newer_comment_is_never_overwritten(
    github: GitHub, policy: CommentPolicy, wrong: bool, run: int, attempt: int
) -> None:
    stand(github, run, attempt=attempt)
    result = sync(github, policy=policy, wrong=wrong)
    assert result.action == "superseded"
    assert f"run {run}, attempt {attempt}" in result.message
    assert bodies(github) == ["old"]


@pytest.mark.parametrize(("run", "attempt"), [(10**12, 1), (101, 10)])
def test_a_run_that_has_never_been_is_not_given_way_to(
    github: GitHub, run: int, attempt: int
) -> None:
    forged = stand(github, run, attempt=attempt)
    assert sync(github).action == "updated"
    assert [c.id for c in github.comments] == [forged]
    assert bodies(github) == ["new"]
    # Nor is it deleted for being newer, or left for it.
    stand(github, run, attempt=attempt)
    assert sync(github, policy="on-failure", wrong=False).action == "deleted"
    assert bodies(github) == []


def test_a_token_that_may_not_look_up_runs_believes_the_header(github: GitHub) -> None:
    stand(github, 10**12)
    github.fail("GET", "/actions/runs/", times=99, kind="read-only")
    assert sync(github).action == "superseded"


def test_no_comment_about_a_commit_that_is_no_longer_the_head(github: GitHub) -> None:
    result = sync(github, head=header(sha="0123abcd"))
    assert (result.action, result.url) == ("superseded", None)
    assert "9b7d0c1" in result.message
    assert github.comments == []
    # A short form of the head's commit is as good.
    assert sync(github, head=header(sha="9b7d0c1e")).action == "created"


LOST = ["500", "500-after", "reset", "reset-after", "hang", "hang-after"]


@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize("stands", [False, True])
def test_a_write_without_an_answer_is_not_done_twice(
    github: GitHub, kind: str, stands: bool
) -> None:
    if stands:
        stand(github)
    github.fail("PATCH" if stands else "POST", "comments", kind=kind)
    clock = Clock()
    result = sync(github, client_for(github, clock, timeout=1 if "hang" in kind else 10))
    assert result.action == ("updated" if stands else "created")
    assert bodies(github) == ["new"]
    assert clock.waits == [0.5, 1]
    writes = [r for r in github.requests if r.method in ("POST", "PATCH")]
    assert len(writes) == (1 if kind.endswith("after") else 2)


def test_a_post_that_is_carried_out_late_leaves_no_second_comment(github: GitHub) -> None:
    github.fail("POST", "comments", kind="hang")
    late = header().line() + "\nnew"

    class Late(Clock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if len(self.waits) == 2:
                github.add_comment(BOT, late)

    clock = Late()
    assert sync(github, client_for(github, clock, timeout=1)).action == "created"
    assert bodies(github) == ["new"]


def test_trouble_that_stays_is_given_up(github: GitHub) -> None:
    github.fail("POST", "comments", times=99)
    clock = Clock()
    with pytest.raises(GitHubError) as caught:
        sync(github, client_for(github, clock))
    assert (caught.value.kind, caught.value.status) == ("server", 500)
    assert clock.waits == [0.5, 1, 2]
    assert github.comments == []


def test_no_duplicate_goes_before_the_first_is_written(github: GitHub) -> None:
    for run in (50, 51):
        stand(github, run)
    github.fail("PATCH", "comments", times=99)
    with pytest.raises(GitHubError):
        sync(github)
    assert bodies(github) == ["old", "old"]


def test_a_token_for_issues_alone_may_comment(github: GitHub) -> None:
    github.fail("GET", "pulls/7$", kind="read-only")
    assert sync(github).action == "created"


def test_a_comment_that_somebody_deletes_meanwhile_is_made_anew(github: GitHub) -> None:
    ours = stand(github)

    def delete(method: str, path: str) -> tuple[float, float]:
        if method == "PATCH":
            github.state.delete_comment(ours)
        return 0, 0

    github.latency = delete
    assert sync(github).action == "created"
    assert bodies(github) == ["new"]


def test_a_read_only_token_names_the_permission(github: GitHub) -> None:
    github.fail("POST", "comments", times=99, kind="read-only")
    with pytest.raises(GitHubError) as caught:
        sync(github)
    error = caught.value
    assert (error.kind, error.status) == ("permission", 403)
    assert error.permission == "issues=write; pull_requests=write"
    assert sum(r.method == "POST" for r in github.requests) == 1


def test_rate_limits_are_waited_for_only_within_the_budget(github: GitHub) -> None:
    clock = Clock()
    github.fail("POST", "comments", kind="429", seconds=7)
    github.fail("GET", "comments", kind="secondary")
    assert sync(github, client_for(github, clock)).action == "created"
    # At least a minute for a secondary limit without a header, then the seconds of the header,
    # then a last look, because the comment was not made at the first attempt.
    assert clock.waits == [60, 7, 1]
    github.fail("PATCH", "comments", kind="primary")
    clock = Clock()
    with pytest.raises(GitHubError, match=r"rate limit is reached and ends in 3600 s, at .* UTC"):
        sync(github, client_for(github, clock), header(101))
    assert clock.waits == []


def test_an_older_publisher_looks_again_after_waiting_for_a_rate_limit(github: GitHub) -> None:
    ours = stand(github)
    github.fail("PATCH", "comments", kind="429", seconds=30)

    class Meanwhile(Clock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            github.state.update_comment(ours, f"{header(101).line()}\nnewer")

    assert sync(github, client_for(github, Meanwhile())).action == "superseded"
    assert bodies(github) == ["newer"]


def test_a_body_that_is_too_long_is_said_to_be(github: GitHub) -> None:
    with pytest.raises(GitHubError) as caught:
        sync(github, body="x" * 65_536)
    assert (caught.value.kind, caught.value.status) == ("invalid", 422)


@pytest.mark.parametrize("login", ["octo-gate[bot]", "Ada"])
def test_other_tokens_know_their_own_comments(login: str) -> None:
    with GitHub(login=login) as server:
        stand(server, 10**9, "other[bot]")
        stand(server, 10**9, "mallory")
        assert sync(server).action == "created"
        assert sync(server, head=header(101)).action == "updated"
        assert sync(server, head=header(102), policy="on-failure", wrong=False).action == "deleted"
        assert bodies(server, login) == []
        assert len(server.comments) == 2


def test_an_app_without_graphql_learns_its_name_from_its_first_post() -> None:
    with GitHub(login="octo-gate[bot]") as server:
        ours = [stand(server, run, "octo-gate[bot]") for run in (50, 51)]
        server.fail("POST", "graphql", times=99)
        assert sync(server).action == "updated"
        assert [c.id for c in server.comments] == ours[:1]
        assert bodies(server, "octo-gate[bot]") == ["new"]


def test_enterprise_server() -> None:
    with GitHub(enterprise=True) as server:
        stand(server, 50)
        assert sync(server).action == "updated"
        assert sync(server, head=header(id="second")).action == "created"
        assert bodies(server) == ["new", "new"]
        assert all(r.path.startswith("/api/v3/") for r in server.requests)


def test_a_wrong_token_is_said_to_be_wrong(github: GitHub) -> None:
    with pytest.raises(GitHubError, match="Bad credentials") as caught:
        sync(github, client_for(github, token="ghs_wrong"))
    assert caught.value.kind == "credentials"
    assert TOKEN not in str(caught.value)
