"""A picture of the comment that a report becomes, for the documentation.

    python tools/screenshot.py REPORT PICTURE.png

The Markdown is the action's own, and GitHub's own parser makes HTML of it. The stylesheet is a
likeness. Alerts (``> [!CAUTION]``) are not in that parser: they are made from the quotations here.
It needs chromium on PATH; what it renders loads nothing and runs no script but the one below.
"""

from __future__ import annotations

import argparse
import html
import re
import shutil
import subprocess
import tempfile
from dataclasses import fields
from pathlib import Path

import cmarkgfm
from cmarkgfm.cmark import Options

from onnx_gate.report.io import read_report
from onnx_gate.report.markdown import View, render

WIDTH = 900
SCALE = 2
SECONDS = 120

_ALERT = re.compile(
    r"<blockquote>\s*<p>\[!(NOTE|TIP|IMPORTANT|WARNING|CAUTION)\]\s*(.*?)</blockquote>", re.S
)
_HEIGHT = re.compile(r'data-height="(\d+)"')

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><style>
:root { --line: #d1d9e0; --muted: #59636e; --link: #0969da; }
* { box-sizing: border-box; }
body { margin: 0; padding: 16px; background: #fff; color: #1f2328;
  font: 14px/1.5 "Noto Sans", "Liberation Sans", "DejaVu Sans", "Noto Color Emoji", sans-serif; }
.comment { border: 1px solid var(--line); border-radius: 6px; }
.author { padding: 8px 16px; background: #f6f8fa; border-bottom: 1px solid var(--line);
  border-radius: 6px 6px 0 0; color: var(--muted); }
.author b { color: #1f2328; }
.author i { font: 500 12px sans-serif; border: 1px solid var(--line); border-radius: 2em;
  padding: 0 6px; margin: 0 4px; }
.body { padding: 16px; }
.body > :first-child { margin-top: 0; }
.body > :last-child { margin-bottom: 0; }
h2 { font-size: 1.5em; line-height: 1.25; margin: 24px 0 16px; padding-bottom: .3em;
  border-bottom: 1px solid #d1d9e0b3; font-weight: 600; }
p, ul, ol, pre, table, blockquote, details { margin: 0 0 16px; }
ul, ol { padding-left: 2em; }
li + li { margin-top: .25em; }
a { color: var(--link); text-decoration: underline; text-underline-offset: .2rem; }
code, pre { font: 85%/1.45 "Liberation Mono", "DejaVu Sans Mono", monospace; }
code { padding: .2em .4em; background: #818b981f; border-radius: 6px; white-space: break-spaces; }
pre { padding: 16px; background: #f6f8fa; border-radius: 6px; overflow: hidden; }
pre code { padding: 0; background: none; font-size: 100%; white-space: pre; }
table { display: block; width: max-content; max-width: 100%; overflow: hidden;
  border-collapse: collapse; border-spacing: 0; }
th { font-weight: 600; }
th, td { padding: 6px 13px; border: 1px solid var(--line); }
tr { border-top: 1px solid #d1d9e0b3; background: #fff; }
tr:nth-child(2n) { background: #f6f8fa; }
summary { cursor: pointer; }
sub { font-size: 75%; line-height: 0; position: relative; vertical-align: baseline;
  bottom: -.25em; }
blockquote, .alert { padding: 0 1em; border-left: .25em solid var(--line); }
blockquote { color: var(--muted); }
.alert { padding: 8px 16px; margin-bottom: 16px; border-color: var(--tone); }
.alert > :last-child { margin-bottom: 0; }
.alert .kind { color: var(--tone); font-weight: 500; }
.note { --tone: #0969da; } .tip { --tone: #1a7f37; } .important { --tone: #8250df; }
.warning { --tone: #9a6700; } .caution { --tone: #d1242f; }
</style></head><body><div class="comment">
<div class="author"><b>github-actions</b> <i>bot</i> commented now</div>
<div class="body">BODY</div></div>
<script>document.body.dataset.height =
  Math.ceil(document.querySelector(".comment").getBoundingClientRect().bottom) + 16</script>
</body></html>
"""


def page(markdown: str) -> str:
    """Return a page with Markdown as GitHub shows it in a comment."""
    options = Options.CMARK_OPT_UNSAFE | Options.CMARK_OPT_GITHUB_PRE_LANG
    body: str = cmarkgfm.github_flavored_markdown_to_html(markdown, options)
    return _PAGE.replace("BODY", _ALERT.sub(_alert, body))


def picture(text: str, target: Path) -> None:
    """Write a page as it is seen, whole, to a PNG file."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "page.html")
        source.write_text(text, encoding="utf-8")
        found = _HEIGHT.search(_chromium(Path(folder), source, "--dump-dom"))
        if found is None:
            raise SystemExit("chromium did not say how high the page is")
        size = f"--window-size={WIDTH},{found[1]}"
        _chromium(Path(folder), source, size, f"--screenshot={target.resolve()}")


def _alert(match: re.Match[str]) -> str:
    kind = match[1].capitalize()
    rest = f"<p>{match[2]}"
    return f'<div class="alert {kind.lower()}"><p class="kind">{html.escape(kind)}</p>{rest}</div>'


def _chromium(folder: Path, source: Path, *arguments: str) -> str:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        raise SystemExit("chromium is not on PATH: apt-get install chromium")
    quiet = ("--disable-quic", "--disable-background-networking", "--disable-component-update")
    command = [
        *(program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *(*quiet, "--disable-sync", "--hide-scrollbars", f"--user-data-dir={folder}/profile"),
        *(f"--force-device-scale-factor={SCALE}", f"--window-size={WIDTH},2000"),
        *(*arguments, source.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    return done.stdout


def main() -> None:
    """Read a report, and what GitHub would know, from the command line."""
    parser = argparse.ArgumentParser(description="A picture of the comment of a report.")
    parser.add_argument("report", type=Path)
    parser.add_argument("picture", type=Path)
    texts = [field.name for field in fields(View) if field.name != "detail"]
    for name in texts:
        parser.add_argument(f"--{name.replace('_', '-')}")
    arguments = parser.parse_args()
    view = View(**{name: getattr(arguments, name) for name in texts})
    picture(page(render(read_report(arguments.report), view)), arguments.picture)


if __name__ == "__main__":
    main()
