"""Pictures of what people look at: the comment as GitHub renders it, and the page, from real runs.

    npm ci --prefix tools/web && apt-get install chromium
    python -m tools.pictures                      # verifies examples/ and examples/broken/ first: minutes
    python -m tools.pictures --reports FOLDER     # with the reports of an earlier call
    python -m tools.pictures --docs               # those of the documentation too

They go to ``build/pictures``. The comment is the action's own Markdown, made HTML by GitHub's parser
and dressed in GitHub's stylesheet; alerts are not in that parser, and are made from quotations here.
"""

from __future__ import annotations

import argparse
import functools
import html
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import cmarkgfm
from cmarkgfm.cmark import Options

from onnx_gate.report.io import read_report
from onnx_gate.report.join.merge import merge
from onnx_gate.report.join.verdict import count, overall
from onnx_gate.report.model import ModelResult, Report, Shard
from onnx_gate.report.render import html as pages
from onnx_gate.report.render.markdown import View, render
from tools.browser import WEB, Browser, browser

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "build" / "pictures"
DOCS = ROOT / "docs" / "images"
DESKTOP, COMMENT, PHONE, NARROW = 1280, 900, 390, 360
MANIFESTS = {"pass": "examples/onnx-gate.yml", "broken": "examples/broken/onnx-gate.yml"}
VIEW = View(
    repository_url="https://github.com/acme/vision",
    sha="9b7d0c1e" * 5,
    base="main@4f1c2e9",
    run_url="https://github.com/acme/vision/actions/runs/17301",
    run_label="Run #17301",
    report_url="https://github.com/acme/vision/actions/runs/17301#artifacts",
    run_id=17301,
    times=False,
)
# What the documentation shows, under which name, and how many pixels of it from the top.
SHOWN = {
    "comment-one-diverged-900-light": ("comment-diverged", 3000),
    "comment-passed-900-light": ("comment-pass", 3000),
    "page-one-diverged-1280-light": ("page-diverged", 1330),
    "page-one-diverged-390-dark": ("page-phone", 1300),
}

_ALERT = re.compile(
    r"<blockquote>\s*<p>\[!(NOTE|TIP|IMPORTANT|WARNING|CAUTION)\]\s*(.*?)</blockquote>", re.S
)
_FRAME = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><style>
{stylesheet}
body {{ margin: 0; padding: 16px; background: {ground}; }}
.comment {{ border: 1px solid {line}; border-radius: 6px; }}
.author {{ border-bottom: 1px solid {line}; padding: 8px 16px; font: 14px/1.5 sans-serif; color: #818b98; }}
.markdown-body {{ padding: 16px; font-size: 14px; }}
</style></head><body><div class="comment"><div class="author"><b>github-actions</b> commented now</div>
<div class="markdown-body">{body}</div></div></body></html>
"""


def comment(report: Report, dark: bool) -> str:
    """Return a page with the comment of a report as GitHub shows it."""
    options = Options.CMARK_OPT_UNSAFE | Options.CMARK_OPT_GITHUB_PRE_LANG
    body = cmarkgfm.github_flavored_markdown_to_html(render(report, VIEW), options)
    kind, ground, line = ("dark", "#0d1117", "#3d444d") if dark else ("light", "#fff", "#d1d9e0")
    style = WEB / "github-markdown-css" / f"github-markdown-{kind}.css"
    stylesheet = style.read_text(encoding="utf-8")
    shown = _ALERT.sub(_alert, body)
    return _FRAME.format(stylesheet=stylesheet, ground=ground, line=line, body=shown)


def comments(passed: Report, broken: Report) -> dict[str, Report]:
    """Return what a comment can come to, from the reports of two runs."""
    diverged = [m for m in broken.models if m.verdict == "diverged"]
    failed = [m for m in broken.models if m.verdict == "error"]
    subtle = next(m for m in diverged if m.name == "tanh-gelu")
    part = _of(passed, passed.models[:4]).model_copy(update={"shard": Shard(index=1, count=2)})
    return {
        "passed": passed,
        "one-diverged": _of(passed, [*passed.models[:3], subtle]),
        "ten-diverged": _of(passed, [*passed.models, *diverged[:10]]),
        "error": _of(passed, [*passed.models[:3], failed[0]]),
        "lost-part": merge([part], names=[m.name for m in passed.models]),
        "long": broken,
    }


def reports(folder: Path) -> Iterable[Report]:
    """Return the reports of both manifests, which are verified where that was not done yet."""
    for name, manifest in MANIFESTS.items():
        output = folder / name
        if not (output / "report.json").exists():
            command = [sys.executable, "-m", "onnx_gate", "run", "--manifest", manifest]
            subprocess.run([*command, "--output", str(output)], cwd=ROOT, check=False)
        yield read_report(output / "report.json")


def take(
    running: Browser, name: str, make: Callable[[bool], str], widths: Iterable[int], docs: bool
) -> None:
    """Write the pictures of one page at some widths, in the light and in the dark."""
    for dark, light in ((False, "light"), (True, "dark")):
        file = TARGET / f"{name}-{light}.html"
        file.write_text(make(dark), encoding="utf-8")
        for width in widths:
            page = running.page(width, dark=dark)
            page.open(file)
            target = TARGET / f"{name}-{width}-{light}.png"
            page.picture(target)
            print(target.relative_to(ROOT))
            if docs and target.stem in SHOWN:
                called, height = SHOWN[target.stem]
                page.picture(DOCS / f"{called}.png", height)


def main() -> None:
    """Make all pictures."""
    parser = argparse.ArgumentParser(description="Pictures of the comment and of the page.")
    parser.add_argument("--reports", type=Path, default=TARGET / "reports")
    parser.add_argument("--docs", action="store_true", help="write those of docs/images too")
    arguments = parser.parse_args()
    TARGET.mkdir(parents=True, exist_ok=True)
    passed, broken = reports(arguments.reports)
    scenes = comments(passed, broken)
    with browser() as running:
        for name, report in scenes.items():
            make = functools.partial(comment, report)
            take(running, f"comment-{name}", make, (COMMENT, NARROW), arguments.docs)
        for name in ("passed", "one-diverged", "ten-diverged", "error"):
            # The page asks for the colours itself.
            page = functools.partial(_page, pages.render(scenes[name]))
            take(running, f"page-{name}", page, (DESKTOP, PHONE), arguments.docs)


def _page(text: str, dark: bool) -> str:
    return text


def _of(report: Report, models: Iterable[ModelResult]) -> Report:
    chosen = tuple(models)
    changes = {"models": chosen, "verdict": overall(chosen), "counts": count(chosen)}
    return report.model_copy(update=changes)


def _alert(match: re.Match[str]) -> str:
    kind = match[1].capitalize()
    title = f'<p class="markdown-alert-title">{html.escape(kind)}</p>'
    return f'<div class="markdown-alert markdown-alert-{kind.lower()}">{title}<p>{match[2]}</div>'


if __name__ == "__main__":
    main()
