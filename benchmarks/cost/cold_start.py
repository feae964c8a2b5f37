"""How long ``docker run`` of ``mode: publish`` takes on a ready report, the container's start included.

    docker build -t onnx-gate . && docker build -f Dockerfile.publish -t onnx-gate-publish .
    python -m benchmarks.cost.cold_start onnx-gate-publish onnx-gate

Each run comments on a pull request of a server on 127.0.0.1. For comparison, the same container with
nothing to do but ``python -I -c pass``.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.support import results
from onnx_gate.report.io import to_json
from tests.support.github.server import BASE, HEAD, REPOSITORY, TOKEN, GitHub
from tests.support.report.reports import report
from tests.support.runner import Job

RUNS = 7
REPO = {"full_name": REPOSITORY, "default_branch": "main"}
PULL = {
    "number": 7,
    "head": {"sha": HEAD, "ref": "faster", "repo": REPO},
    "base": {"sha": BASE, "ref": "main", "repo": REPO},
}


def publish(image: str) -> float:
    with GitHub() as github:
        environ = {"GITHUB_API_URL": github.url, "INPUT_GITHUB-TOKEN": TOKEN}
        payload = {"pull_request": PULL, "repository": REPO}
        job = Job(Path(tempfile.mkdtemp(prefix="cold-")), payload=payload, environ=environ)
        folder = job.workspace / "onnx-gate-report"
        folder.mkdir()
        (folder / "report.json").write_text(to_json(report()))
        begin = time.perf_counter()
        job.run(image, {"mode": "publish"})
        seconds = time.perf_counter() - begin
        assert len(github.comments) == 1
    return seconds


def nothing(image: str) -> float:
    command = ["docker", "run", "--rm", "--network", "host", "--entrypoint", "python", image]
    begin = time.perf_counter()
    subprocess.run([*command, "-I", "-c", "pass"], check=True)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("images", nargs="+")
    results.add_option(parser)
    options = parser.parse_args()
    print(f"{'image':<24} {'publish':>8} {'nothing':>8}   seconds, medians of {RUNS}")
    kept = []
    for image in options.images:
        pairs = [(publish(image), nothing(image)) for _ in range(RUNS)]
        medians = [statistics.median(values) for values in zip(*pairs, strict=True)]
        print(f"{image:<24} {medians[0]:>8.2f} {medians[1]:>8.2f}")
        kept.append({"image": image, "publish": medians[0], "nothing": medians[1]})
    if options.save:
        results.save(__file__, "cold start", kept)


if __name__ == "__main__":
    main()
