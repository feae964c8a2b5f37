"""The workflows, the samples of the documentation and the action's page, against the tools and code."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from onnx_gate.action import allowed_environment
from onnx_gate.action.action_inputs import Inputs, Mode, Protect, SandboxChoice, Switch, read_inputs
from onnx_gate.github.comment_policy import CommentPolicy
from onnx_gate.report.io import to_json, write_text
from onnx_gate.report.model import Counts, ManifestInfo, ModelResult, Report
from tests.support.gate import ROOT
from tests.support.runner import parse_outputs
from tests.support.samples import FENCES, SAMPLES
from tools import release

pytestmark = pytest.mark.process

OWN = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
PUBLISH: dict[str, Any] = yaml.safe_load((ROOT / "publish/action.yml").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "action.md").read_text(encoding="utf-8")
GATE = "onnx-gate/onnx-gate"

_USES = re.compile(
    r"^\s*(?:- )?uses: (?P<action>[^\s@]+)@(?P<ref>\S+)(?:\s+# (?P<version>\S+))?$", re.M
)
_TAG = re.compile(r"v\d+\.\d+\.\d+")
_PINS = {"unpinned-uses": {"config": {"policies": {f"{GATE.split('/')[0]}/*": "ref-pin"}}}}

# --- The tools ---


def tool(name: str) -> str:
    """Return a tool's path; skip, or fail where the tools are required, without it."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which(name, path=path)
    if found is None:
        missing = f"{name} is not installed: pip install -e .[dev]"
        if os.environ.get("ONNX_GATE_WORKFLOW_TOOLS") == "required":
            pytest.fail(missing)
        pytest.skip(missing)
    return found


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of somebody who has copied every sample."""
    root = tmp_path_factory.mktemp("copied")
    folder = root / ".github" / "workflows"
    folder.mkdir(parents=True)
    (root / ".git").mkdir()
    for name, text in SAMPLES.items():
        (folder / f"{name}.yml").write_text(text, encoding="utf-8")
    # The samples follow the gate's releases; the page says how to pin a commit.
    (root / "zizmor.yml").write_text(json.dumps({"rules": _PINS}), encoding="utf-8")
    return root


def test_actionlint_finds_nothing(copied: Path) -> None:
    actionlint = tool("actionlint")
    run(actionlint, *OWN)
    run(actionlint, *sorted((copied / ".github" / "workflows").iterdir()), cwd=copied)


def test_zizmor_finds_nothing(copied: Path) -> None:
    zizmor = [tool("zizmor"), "--offline", "--pedantic", "--no-progress", "--quiet"]
    run(*zizmor, "action.yml", "publish/action.yml", ".github")
    run(*zizmor, "--config", copied / "zizmor.yml", copied / ".github", cwd=copied)


def test_the_schemas_are_met(copied: Path) -> None:
    check = [tool("check-jsonschema"), "--builtin-schema"]
    samples = sorted((copied / ".github" / "workflows").iterdir())
    run(*check, "vendor.github-workflows", *OWN, *samples)
    run(*check, "vendor.github-actions", ROOT / "action.yml", ROOT / "publish" / "action.yml")
    run(*check, "vendor.dependabot", ROOT / ".github" / "dependabot.yml")
    forms = ROOT / ".github" / "ISSUE_TEMPLATE"
    config = forms / "config.yml"
    run(*check, "vendor.github-issue-config", config)
    run(*check, "vendor.github-issue-forms", *sorted({*forms.glob("*.yml")} - {config}))


def test_hadolint_finds_nothing() -> None:
    run(tool("hadolint"), *sorted(ROOT.glob("Dockerfile*")))


def test_the_marketplace_takes_the_descriptions() -> None:
    assert all(len(action["description"]) < 125 for action in (ACTION, PUBLISH))


def test_there_are_samples_and_one_of_them_alone_overrules_the_tools() -> None:
    assert len(SAMPLES) >= 6
    ignored = {name: re.findall(r"(?:zizmor|shellcheck)[: ].*", t) for name, t in SAMPLES.items()}
    found = [line for lines in ignored.values() for line in lines]
    assert found == ["zizmor: ignore[dangerous-triggers]"]


# --- What the workflows use ---


def pins(text: str) -> Iterator[tuple[str, str, str | None]]:
    """Every action of somebody else's: its name, what it is pinned to, the comment's version."""
    for match in _USES.finditer(text):
        if match["action"] not in (GATE, f"{GATE}/publish") and not match["action"].startswith(
            "docker:"
        ):
            yield match["action"], match["ref"], match["version"]


def test_actions_are_pinned_to_one_commit_everywhere() -> None:
    texts = [*(path.read_text(encoding="utf-8") for path in OWN), *FENCES.values()]
    for text in texts:
        # Nothing escapes the pattern but this repository's own action.
        assert len(re.findall(r"uses: (?!\./)", text)) == len(_USES.findall(text)), text
    found = {pin for text in texts for pin in pins(text)}
    assert {action for action, _, _ in found} >= {"actions/checkout", "actions/upload-artifact"}
    for action, ref, version in found:
        assert re.fullmatch(r"[0-9a-f]{40}", ref), f"{action}@{ref}"
        assert _TAG.fullmatch(version or ""), f"{action}: {version}"
    names = [action for action, _, _ in found]
    assert len(names) == len(set(names)), f"one action, several commits: {sorted(found)}"


def steps(workflow: str) -> Iterator[dict[str, Any]]:
    parsed = yaml.safe_load(workflow)
    if isinstance(parsed, list):
        yield from parsed
        return
    for job in parsed["jobs"].values():
        yield from job["steps"]


@pytest.mark.parametrize("name", FENCES)
def test_a_sample_gives_the_gate_what_it_takes(name: str, tmp_path: Path) -> None:
    for step in steps(FENCES[name]):
        uses = str(step.get("uses"))
        if uses.startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
        if not uses.startswith(GATE):
            continue
        action = PUBLISH if uses.startswith(f"{GATE}/publish@") else ACTION
        given = {key: as_text(value) for key, value in step.get("with", {}).items()}
        assert set(given) <= set(action["inputs"])
        mode = given.get("mode", action["inputs"]["mode"]["default"])
        assert (mode in ("all", "verify")) == (action is ACTION), "torch where it is needed, only"
        given = {k: re.sub(r"\$\{\{ matrix\.shard \}\}", "2/3", v) for k, v in given.items()}
        (tmp_path / given.get("working-directory", ".")).mkdir(parents=True, exist_ok=True)
        inputs_from(given, tmp_path)


def as_text(value: object) -> str:
    """What the runner hands to an action for a value of a workflow."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_no_expression_is_part_of_a_script(path: Path) -> None:
    scripts = [s["run"] for s in steps(path.read_text(encoding="utf-8")) if "run" in s]
    assert scripts or path.stem in ("parity", "security")
    assert not [script for script in scripts if "${{" in script]


# --- The action's page ---


def table(heading: str) -> dict[str, list[str]]:
    """The rows of the first table below a heading, by the name in their first cell."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [
        re.split(r"\s*(?<!\\)\|\s*", line)[1:-1] for line in section.splitlines() if "|" in line
    ]
    return {match[1]: row[1:] for row in rows if (match := re.fullmatch(r"`([^`]+)`", row[0]))}


def inputs_from(given: dict[str, str], workspace: Path) -> Inputs:
    names = {f"INPUT_{name.upper()}": value for name, value in given.items()}
    return read_inputs({"GITHUB_WORKSPACE": str(workspace), **names})


class _Asked(dict[str, str]):
    """An environment that remembers what was asked of it."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.names: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.names.add(key)
        return super().get(key, default)


def test_every_input_is_read_and_the_defaults_are_those_of_the_code(tmp_path: Path) -> None:
    asked = _Asked({"GITHUB_WORKSPACE": str(tmp_path)})
    bare = read_inputs(asked)
    read = {
        name.removeprefix("INPUT_").lower() for name in asked.names if name.startswith("INPUT_")
    }
    assert {name for name in read if "_" not in name} == set(ACTION["inputs"])
    defaults = {name: entry["default"] for name, entry in ACTION["inputs"].items()}
    assert defaults.pop("github-token") == "${{ github.token }}"
    assert inputs_from(defaults, tmp_path) == bare


def test_every_input_is_on_the_page_with_its_default_and_its_choices() -> None:
    rows = table("Inputs")
    assert list(rows) == list(ACTION["inputs"])
    for name, entry in ACTION["inputs"].items():
        default = rows[name][0]
        if entry["default"] and "${{" not in entry["default"]:
            assert default == f"`{entry['default']}`", name
        else:
            assert "`" not in default, name
    choices = {
        "mode": Mode,
        "comment": CommentPolicy,
        "sandbox": SandboxChoice,
        "audit": Switch,
        "attest": Switch,
        "protect-manifest": Protect,
    }
    for name, type_ in choices.items():
        for choice in get_args(type_):
            assert f"`{choice}`" in rows[name][1]
            assert re.search(rf"\b{choice}\b", ACTION["inputs"][name]["description"]), (
                name,
                choice,
            )
    assert list(table("Modes")) == list(get_args(Mode))
    assert list(table("The comment")) == ["comment", *get_args(CommentPolicy)]


def test_the_action_that_publishes_is_a_part_of_the_other() -> None:
    of_its_own = ("mode", "shard")
    for name, entry in PUBLISH["inputs"].items():
        assert entry == ACTION["inputs"][name] or name in of_its_own
    left_out = set(ACTION["inputs"]) - set(PUBLISH["inputs"])
    assert left_out == {
        *("requirements", "cache", "audit", "audit-min-score", "attest", "remedies"),
        *("since", "since-minutes"),
        *("sandbox", "allow-untrusted-checkout"),
    }
    assert PUBLISH["outputs"] == ACTION["outputs"]
    assert PUBLISH["inputs"]["mode"]["default"] == "publish"


def test_every_output_is_on_the_page_and_is_written(tmp_path: Path) -> None:
    assert list(table("Outputs")) == list(ACTION["outputs"])
    model = ModelResult(name="m", verdict="pass")
    report = Report(
        verdict="pass",
        counts=Counts.model_validate({"pass": 1}),
        manifest=ManifestInfo(path="onnx-gate.yml", sha256="0" * 64),
        models=(model,),
    )
    write_text(tmp_path / "onnx-gate-report" / "report.json", to_json(report))
    entry = {"model": "m.py:M", "inputs": {"x": "float32[batch, 2]"}}
    manifest = {"version": 1, "models": {"m": entry}}
    (tmp_path / "onnx-gate.yml").write_text(json.dumps(manifest))
    (tmp_path / "m.py").write_text("")
    written: dict[str, str] = {}
    for mode in ("publish", "plan"):
        file = tmp_path / "outputs"
        file.write_text("")
        done = subprocess.run(
            [sys.executable, "-I", str(ROOT / "entrypoint.py")],
            env={
                "PATH": os.environ["PATH"],
                "GITHUB_WORKSPACE": str(tmp_path),
                "GITHUB_OUTPUT": str(file),
                "INPUT_MODE": mode,
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        written |= parse_outputs(file.read_text())
    assert set(written) == set(ACTION["outputs"])
    assert written["verdict"] == "pass"
    assert json.loads(written["matrix"]) == {"shard": ["1/1"]}


def test_the_page_on_security_lists_what_models_see_of_the_environment() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([a-zA-Z ]+) \| (`.*) \|$", text, re.M))
    listed = {kind: re.findall(r"`([A-Z_*]+)`", names) for kind, names in rows.items()}
    installing = set(listed.pop("while packages are installed"))
    ours = set(listed.pop("set by the gate"))
    always = {name for names in listed.values() for name in names}
    assert always == allowed_environment._NAMES | {
        f"{prefix}*" for prefix in allowed_environment._PREFIXES
    }
    assert installing == {name for name in allowed_environment._NETWORK if name.isupper()}
    assert ours == set(allowed_environment.for_models({}, Path("/h"), Path("/t")))


# --- The release ---

DIGEST = "sha256:" + "0123456789abcdef" * 4
PUBLISH_DIGEST = "sha256:" + "fedcba9876543210" * 4
IMAGE = "ghcr.io/onnx-gate/onnx-gate:v1.2.3"


@pytest.mark.parametrize("action", ["action.yml", "publish/action.yml"])
def test_pinning_changes_the_image_alone(action: str) -> None:
    before = (ROOT / action).read_text(encoding="utf-8")
    after = release.pin(before, IMAGE, DIGEST)
    runs = {"using": "docker", "image": f"docker://{IMAGE}@{DIGEST}"}
    assert yaml.safe_load(after) == {**yaml.safe_load(before), "runs": runs}
    changed = set(before.splitlines()) ^ set(after.splitlines())
    assert len(changed) == 2
    with pytest.raises(ValueError, match="0 times"):
        release.pin(after, IMAGE, DIGEST)


@pytest.mark.parametrize(
    ("image", "digest"),
    [
        (IMAGE, "sha256:" + "0" * 63),
        (IMAGE, "sha256:" + "0" * 65),
        (IMAGE, "sha256:" + "A" * 64),
        (IMAGE, "sha512:" + "0" * 64),
        (IMAGE, DIGEST + "\n"),
        (IMAGE, ""),
        (f"{IMAGE}\n  entrypoint: sh", DIGEST),
        (f"{IMAGE}@{DIGEST}", DIGEST),
        (f"docker://{IMAGE}", DIGEST),
        ("ghcr.io/Owner/name:v1", DIGEST),
        ("ghcr.io/owner/name", DIGEST),
        ("name:v1", DIGEST),
    ],
)
def test_pinning_refuses_what_is_no_image_or_no_digest(image: str, digest: str) -> None:
    with pytest.raises(ValueError, match=r"is not (an image|sha256)"):
        release.pin("runs:\n  image: Dockerfile\n", image, digest)


@pytest.mark.parametrize(
    ("tag", "version"),
    [
        *(("1.2.3", "1.2.3"), ("v1.2", "1.2"), ("v1.2.3-rc1", "1.2.3-rc1"), ("v01.2.3", "01.2.3")),
        *(("v1.2.3\nx=1", "1.2.3"), ("v1.2.4", "1.2.3"), ("v1.2.3 ", "1.2.3"), ("", "1.2.3")),
    ],
)
def test_a_tag_is_the_version_of_the_project(tag: str, version: str) -> None:
    own = 'version = "1.2.3"\n'
    assert release.check("v1.2.3", own, own) == "version=v1.2.3\nmajor=v1\n"
    with pytest.raises(ValueError, match=r"version|pyproject"):
        release.check(tag, f'version = "{version}"\n')
    with pytest.raises(ValueError, match=r"says 1\.2\.2"):
        release.check("v1.2.3", own, 'version = "1.2.2"\n')


def git(*arguments: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        ["git", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **_GIT},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


_GIT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.com",
}


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A repository on a server, with what the release needs, and an older v1."""
    work, bare = tmp_path / "work", tmp_path / "origin.git"
    (work / "tools").mkdir(parents=True)
    shutil.copy(ROOT / "action.yml", work)
    shutil.copytree(ROOT / "publish", work / "publish")
    shutil.copy(ROOT / "tools" / "release.py", work / "tools")
    (work / "engines").mkdir()
    for folder in (work, work / "engines"):
        (folder / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    git("init", "--quiet", "--initial-branch=main", cwd=work)
    git("add", ".", cwd=work)
    git("commit", "--quiet", "--message=one", cwd=work)
    git("tag", "v1", cwd=work)
    git("commit", "--quiet", "--allow-empty", "--message=two", cwd=work)
    git("clone", "--quiet", "--bare", work, bare, cwd=tmp_path)
    return bare


@pytest.fixture
def clone(origin: Path, tmp_path: Path) -> Path:
    """What a job has checked out: main as it is now, on no branch."""
    folder = tmp_path / "clone"
    git("clone", "--quiet", origin, folder, cwd=tmp_path)
    git("checkout", "--quiet", "--detach", cwd=folder)
    return folder


def step(job: str, name: str, clone: Path, **values: str) -> subprocess.CompletedProcess[str]:
    """Run the script of a step of the release as a runner does; ``gh`` does nothing."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    script = next(s["run"] for s in workflow["jobs"][job]["steps"] if s.get("name") == name)
    programs = clone.parent / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "gh").write_text("#!/bin/sh\n")
    (programs / "gh").chmod(0o755)
    outputs = clone.parent / "outputs"
    outputs.write_text("")
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=clone,
        env={
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(clone.parent),
            "GITHUB_REPOSITORY": "Octo/Gate",
            "GITHUB_OUTPUT": str(outputs),
            **_GIT,
            **values,
        },
        capture_output=True,
        text=True,
        timeout=60,
    )


def release_step(clone: Path) -> subprocess.CompletedProcess[str]:
    values = {"VERSION": "v1.2.3", "MAJOR": "v1", "IMAGE": IMAGE.split(":")[0]}
    values |= {"DIGEST": DIGEST, "PUBLISH": PUBLISH_DIGEST}
    return step("release", "A commit that names the image, and its tags", clone, **values)


@pytest.mark.parametrize("pushed", [False, True], ids=["by hand", "by a pushed tag"])
def test_a_release_is_a_commit_on_no_branch_that_both_tags_name(
    pushed: bool, origin: Path, clone: Path
) -> None:
    main = git("rev-parse", "main", cwd=origin)
    if pushed:
        git("tag", "--annotate", "--message=1.2.3", "v1.2.3", "main", cwd=origin)
        git("fetch", "--quiet", "--tags", cwd=clone)
    done = release_step(clone)
    assert done.returncode == 0, done.stderr
    commit = git("rev-parse", "v1.2.3^{commit}", cwd=origin)
    assert git("rev-parse", "v1^{commit}", cwd=origin) == commit
    assert git("rev-parse", f"{commit}^", cwd=origin) == main
    assert git("rev-parse", "main", cwd=origin) == main
    files = git("diff", "--name-only", main, commit, cwd=origin).split()
    assert files == ["action.yml", "publish/action.yml"]
    light = f"image: docker://{IMAGE}-publish@{PUBLISH_DIGEST}"
    assert light in git("show", f"{commit}:publish/action.yml", cwd=origin)
    assert f"image: docker://{IMAGE}@{DIGEST}" in git("show", f"{commit}:action.yml", cwd=origin)


@pytest.mark.parametrize("known", [False, True], ids=["made", "moved"])
def test_a_tag_that_somebody_else_pushed_meanwhile_is_left_alone(
    known: bool, origin: Path, clone: Path
) -> None:
    if known:
        git("tag", "v1.2.3", "main", cwd=clone)
    before = git("rev-parse", "v1", cwd=origin)
    git("tag", "v1.2.3", "v1", cwd=origin)
    done = release_step(clone)
    assert done.returncode != 0
    assert "stale info" in done.stderr
    assert git("rev-parse", "v1", cwd=origin) == before == git("rev-parse", "v1.2.3", cwd=origin)


def test_a_release_is_of_a_new_version_on_main(clone: Path) -> None:
    name = "A version of this project, on main, that is not there yet"
    done = step("version", name, clone, VERSION="v1.2.3", EVENT="workflow_dispatch")
    assert done.returncode == 0, done.stderr
    assert parse_outputs((clone.parent / "outputs").read_text()) == {
        "version": "v1.2.3",
        "major": "v1",
        "image": "ghcr.io/octo/gate",
    }
    assert step("version", name, clone, VERSION="v1.2.4", EVENT="push").returncode != 0
    git("tag", "v1.2.3", cwd=clone)
    assert step("version", name, clone, VERSION="v1.2.3", EVENT="push").returncode == 0
    again = step("version", name, clone, VERSION="v1.2.3", EVENT="workflow_dispatch")
    assert again.returncode == 1
    assert "already there" in again.stdout
    git("commit", "--quiet", "--allow-empty", "--message=elsewhere", cwd=clone)
    assert step("version", name, clone, VERSION="v1.2.3", EVENT="push").returncode != 0
