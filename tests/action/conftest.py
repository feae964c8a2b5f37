from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.gate import ROOT
from tests.support.runner import BASE_IMAGE, CHECKOUT_TOKEN, RUNTIME_TOKEN, TOKEN, Job, docker_works

HOSTILE = Path(__file__).parent / "hostile"
IMAGE = "onnx-gate-test"
UNPROTECTED = "onnx-gate-test-unprotected"


def build(tag: str, *arguments: str, context: Path = ROOT) -> str:
    """Build an image and return its tag; a failure is one of the test."""
    if ready := os.environ.get("ONNX_GATE_TEST_IMAGE"):
        # An image that was built elsewhere, a release's say, stands in for the action's.
        if tag == IMAGE:
            return ready
        tag = f"{ready}-{tag}"
    done = subprocess.run(
        ["docker", "build", "--network", "host", "-q", "-t", tag, *arguments, str(context)],
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return tag


@pytest.fixture(scope="session")
def docker() -> None:
    """Skip where no container can be run."""
    reason = docker_works()
    if reason is not None:
        pytest.skip(f"needs a container engine: {reason}")
    known = subprocess.run(["docker", "image", "inspect", BASE_IMAGE], capture_output=True)
    if known.returncode != 0:
        pulled = subprocess.run(
            ["docker", "pull", "-q", BASE_IMAGE], capture_output=True, timeout=600
        )
        if pulled.returncode != 0:
            pytest.skip(f"needs the image {BASE_IMAGE}, which is neither here nor to be had")


@pytest.fixture(scope="session")
def image(docker: None) -> str:
    """The action's image, built from the Dockerfile as it is."""
    return build(IMAGE)


@pytest.fixture(scope="session")
def publish_image(docker: None) -> str:
    """The image without torch."""
    return build(f"{IMAGE}-publish", "--file", str(ROOT / "Dockerfile.publish"))


@pytest.fixture(scope="session")
def web_image(image: str) -> str:
    """The image with a browser in it."""
    arguments = ("--file", str(ROOT / "Dockerfile.web"), "--build-arg", f"IMAGE={image}")
    return build(f"{IMAGE}-web", *arguments)


@pytest.fixture(scope="session")
def unprotected(image: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image with the token's process readable; with ``sandbox: off`` nothing is left."""
    folder = tmp_path_factory.mktemp("unprotected")
    patch = "import onnx_gate.action.harden as h; open(h.__file__, 'w').write('def harden(): pass')"
    lines = [f"FROM {image}", f"RUN {json.dumps(['python', '-c', patch])}"]
    (folder / "Dockerfile").write_text("\n".join(lines) + "\n")
    return build(UNPROTECTED, context=folder)


@pytest.fixture(scope="session")
def make_job(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Job]:
    """Make a job whose workspace is a copy of a folder."""

    def make(source: Path, **values: object) -> Job:
        job = Job(tmp_path_factory.mktemp("job"), **values)  # type: ignore[arg-type]
        shutil.copytree(source, job.workspace, dirs_exist_ok=True)
        return job

    return make


@pytest.fixture(scope="session")
def hostile_job(make_job: Callable[..., Job]) -> Callable[[], Job]:
    """Make a job with everything in it that is worth stealing."""

    def make() -> Job:
        job = make_job(HOSTILE)
        secrets = [TOKEN, RUNTIME_TOKEN, CHECKOUT_TOKEN]
        (job.workspace / "canaries.json").write_text(json.dumps(secrets))
        for folder in (".git", "vendor/lib/.git"):
            (job.workspace / folder).mkdir(parents=True)
            config = f"[http]\n  extraheader = AUTHORIZATION: basic {CHECKOUT_TOKEN}\n"
            (job.workspace / folder / "config").write_text(config)
        (job.workspace / "innocent.txt").symlink_to(".git/config")
        (job.workspace / "data").mkdir()
        (job.workspace / "data" / "link").symlink_to("/github/runner_temp")
        (job.temp / "git-credentials-1.config").write_text(f"x-access-token:{CHECKOUT_TOKEN}")
        docker_config = job.temp / "_github_home" / ".docker" / "config.json"
        docker_config.parent.mkdir()
        docker_config.write_text(CHECKOUT_TOKEN)
        return job

    return make
