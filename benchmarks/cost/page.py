"""How large the page of very many models is, how long it takes to make, and to open in a browser.

    python -m benchmarks.cost.page
    python -m benchmarks.cost.page --models 1000 --checks 100

Half of the models fail, each with a diagnosis and its pictures, as in the tests of the page. Opened is
until the browser has laid all of it out (Chromium, headless, a window of a desktop), the median of runs.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.support import results
from onnx_gate.report.render import html
from tests.support.report.pages import many
from tools.browser import Browser, browser

RUNS = 5


def opened(running: Browser, file: Path) -> float:
    page = running.page()
    page.open(file)
    # Milliseconds since the navigation began, once the whole layout was asked for.
    elapsed: float = page.ask("document.body.getBoundingClientRect() && performance.now()")
    return elapsed / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description="The page of very many models.")
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--checks", type=int, default=1000, help="of each model")
    results.add_option(parser)
    arguments = parser.parse_args()
    report = many(arguments.models, arguments.checks, failing=arguments.models // 2)
    start = time.perf_counter()
    text = html.render(report)
    rendered = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder, browser() as running:
        file = Path(folder, "report.html")
        file.write_text(text, encoding="utf-8")
        seconds = [opened(running, file) for _ in range(RUNS)]
    row = {
        "models": arguments.models,
        "checks": arguments.models * arguments.checks,
        "MB": round(len(text.encode()) / 1e6, 2),
        "seconds to make": round(rendered, 2),
        "seconds to open": round(statistics.median(seconds), 2),
        "slowest": round(max(seconds), 2),
    }
    print(row)
    if arguments.save:
        results.save(__file__, f"{arguments.models} models", [row])


if __name__ == "__main__":
    main()
