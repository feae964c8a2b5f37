"""The page to look at answers what people ask, from its text and its pictures; and it is bounded."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from onnx_gate.pages import BASE
from onnx_gate.report.model import Report
from onnx_gate.report.render import html
from onnx_gate.report.story.sentence import of_model, of_report
from tests.support.report.pages import PICTURES, drawn, many, several_runtimes
from tests.support.report.reports import check
from tests.support.report.scenes import diverged, invalid, loosened, model, passing, whole

LIMIT = 5_000_000


class Read(HTMLParser):
    """What a person reads in the section of one model, and what its pictures say of themselves."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.pictures: dict[str, str] = {}
        self.ids: list[str] = []
        self._within: list[str] = []
        self._title = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._within.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        if tag in ("dt", "dd", "p", "td", "th"):
            self.text.append(" ")
        while self._within and self._within.pop() != tag:
            pass

    def handle_data(self, text: str) -> None:
        if "svg" not in self._within:
            self.text.append(text)
        elif self._within[-1] == "title":
            self._title = text
        elif self._within[-1] == "desc":
            self.pictures[self._title] = text


def section(report: Report, name: str) -> Read:
    page = html.render(report)
    cards = re.split('(?=<details class="model )', page)
    return Read(next(card for card in cards if f'id="model-{name}"' in card))


def read(report: Report, name: str) -> str:
    return " ".join("".join(section(report, name).text).split())


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("which model", "gpt diverged 1 of 2 checks diverged"),
        ("which input and size", "Input typical/0, batch=2, seq=7, on onnxruntime"),
        ("which element", "Element logits[0, 3]: PyTorch says 0.25, ONNX 0.251"),
        ("how far off, and how far is allowed", "Error 1.0e-03 where 8.3e-05 is allowed, ×12 of"),
        ("which node", "First wrong node Gelu node_gelu in mlp.act"),
        ("which line of mine", "Line models/gpt.py:7"),
        ("which line of mine, its text", "x = gelu(self.fc(x))"),
        ("is it new", "Against the base it passed in the baseline: ▲ ×8 000 (was 10 %)"),
        ("how do I see it again", "$ onnx-gate replay onnx-gate-report/repro/gpt/typical-0"),
        ("how do I see it again", "$ onnx-gate run --model gpt --case typical/0"),
        ("why", "The exporter: the graph computes something else than the program"),
    ],
)
def test_the_page_answers(question: str, answer: str) -> None:
    assert answer in read(drawn(), "gpt"), question


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("whisper", "Error export, OG201 Line onnx-gate.yml:31"),
        ("whisper", "Against the base it passed in the baseline"),
        ("tiny_bert", "Input edges/large/batch=2, on onnxruntime"),
        ("detector", "it diverged in the baseline: ▼ ×0.1 (was 10 %)"),
    ],
)
def test_the_page_answers_for_other_failures(name: str, answer: str) -> None:
    assert answer in read(drawn(), name)


def test_a_refusal_has_no_element_and_says_who_refused() -> None:
    refused = check(
        "typical/0",
        "diverged",
        deviation=None,
        metrics=None,
        worst=None,
        budget=None,
        refused=("runtime",),
        reason="onnxruntime refuses: the size of x is 7",
    )
    report = whole(model("net", refused, verdict="diverged"), model("other"))
    assert "Difference onnxruntime refuses: the size of x is 7" in read(report, "net")
    assert "the base" not in read(report, "net")
    # Beside a check with numbers nothing else says that the others have none.
    wrong = check("typical/1", "diverged")
    both = whole(model("net", refused, wrong, verdict="diverged"), model("other"))
    assert "2 of 2 checks diverged, 1 of them refused by the runtime" in read(both, "net")
    assert '<td class="n">refused</td>' in html.render(report)


@pytest.mark.parametrize(
    ("picture", "says"),
    [
        (
            "The error along the graph",
            "the first wrong one is Gelu with an error of 1.0e-03, number 3",
        ),
        ("The error along the graph", "the largest is Softmax with an error of ∞"),
        (
            "PyTorch against ONNX",
            "3 of 8 elements, evenly spread ones and the worst: PyTorch across",
        ),
        ("PyTorch against ONNX", "1 of them are outside the tolerance"),
        ("The errors in units of the tolerance", "2 up to 0.01, 5 up to 1, 1 up to 100"),
        ("Where in the output", "1 of 4 tiles have an error outside the tolerance"),
        ("The error by case, in units of the tolerance", "the worst is typical/0: ×12"),
    ],
)
def test_the_pictures_say_what_they_show(picture: str, says: str) -> None:
    assert says in section(drawn(), "gpt").pictures[picture]


def test_the_pictures_are_drawn_from_the_report_s_numbers() -> None:
    page = html.render(drawn())
    card = next(c for c in page.split("<details class=") if 'id="model-gpt"' in c)
    figures = dict(re.findall(r"<figcaption>(.*?)</figcaption>(.*?)</figure>", card, re.S))
    graph = figures["The error along the graph"]
    assert "first wrong: Gelu" in graph
    assert "allowed 8.3e-05" in graph
    histogram = figures["The errors in units of the tolerance"]
    counts = [n for n in PICTURES.histogram if n]
    assert histogram.count('class="bar"') + histogram.count('class="bar bad"') == len(counts)
    assert [int(n) for n in re.findall(r">(\d+)</text>", histogram) if int(n) in counts][
        :3
    ] == counts
    pairs = figures["PyTorch against ONNX"]
    assert re.findall(r'class="dot bad" d="([^"]*)"', pairs)[0].count("M") == 1
    assert re.findall(r'class="dot" d="([^"]*)"', pairs)[0].count("M") == 2
    tiles = figures["Where in the output"]
    assert re.findall(r'class="m2" d="([^"]*)"', tiles)[0].count("M") == 1


def test_every_picture_has_words_and_every_id_is_its_own() -> None:
    page = html.render(drawn())
    assert page.count("<svg") == page.count('role="img"') == page.count("<desc") >= 6
    ids = Read(page).ids
    assert len(ids) == len(set(ids))
    for labels in re.findall(r'aria-labelledby="([^"]*)"', page):
        assert set(labels.split()) <= set(ids)


@pytest.mark.parametrize("make", [drawn, passing, invalid, loosened, several_runtimes])
def test_the_page_loads_and_runs_nothing(make: object) -> None:
    assert callable(make)
    page = html.render(make()).replace(f'<a href="{BASE}/findings/', "")
    assert not re.search(r"<script|<link|<img|<iframe|\bon\w+=|https?://|url\(", page)


def test_the_failing_come_first_and_each_has_an_address() -> None:
    page = html.render(drawn())
    names = re.findall(r'<p class="lead \w+" id="(model-[^"]+)"', page)
    assert names == [
        f"model-{n}" for n in ("whisper", "tiny_bert", "gpt", "detector", "resnet18", "unet")
    ]
    assert set(re.findall(r'href="#([^"]*)"', page)) == set(names)


def test_the_table_and_the_sentence_have_the_same_numbers() -> None:
    """A refusal is worse than any error, and the diagnosis may be about the error."""
    refused = check(
        "a/0", "diverged", deviation=None, worst=None, budget=None, refused=("runtime",)
    )
    report = drawn(also=(refused,))
    row = next(r for r in html.render(report).split("<tr ") if "#model-gpt" in r)
    assert "<code>typical/0</code>" in row
    assert '<td class="n">1.0e-03</td><td class="n">8.3e-05</td>' in row
    assert "--case typical/0" in read(report, "gpt")


def test_filters_are_those_that_leave_something_out() -> None:
    page = html.render(drawn())
    labels = re.findall(r'id="show-\w+"[^>]*><span>([^<]*)<', page)
    assert labels == [
        "All 6",
        "Failing 4",
        "Agrees 2",
        "Diverged 3",
        "Not verified 1",
        "Changed since the base 4",
    ]
    assert "<fieldset" not in html.render(passing())


def test_several_runtimes_are_columns() -> None:
    page = html.render(several_runtimes())
    heads, rows = page.partition("<tbody>")[0], page.partition("<tbody>")[2].split("</tr>")
    assert '>onnxruntime</th><th scope="col" class="n">openvino</th>' in heads
    assert "Of tolerance" not in heads.partition("<table>")[2]
    cells = [re.findall(r'<td class="n">([^<]*)</td>', row)[:2] for row in rows[:3]]
    assert cells == [["40 %", "diverged refused"], ["40 %", "diverged ×41"], ["40 %", ""]]


@pytest.mark.slow
def test_the_page_of_200_models_is_below_5_mb() -> None:
    page = html.render(many(200, checks=1_000, failing=100))
    assert len(page.encode()) < LIMIT
    assert page.count('<details class="model') == 200
    assert page.count("980 more checks are in report.json") == 200


@pytest.mark.slow
def test_the_page_of_a_million_checks_is_bounded() -> None:
    bad = check("edges/zeros", "diverged", budget=41.0)
    report = whole(model("net", bad, verdict="diverged"))
    grown = report.models[0].model_copy(update={"checks": (bad, *[check("a/0")] * 1_000_000)})
    page = html.render(report.model_copy(update={"models": (grown,)}))
    assert len(page.encode()) < LIMIT
    assert "999001 more checks are in report.json" in page
    assert page.index("edges/zeros") < page.index("a/0")


@pytest.mark.slow
def test_a_page_that_is_full_says_what_it_leaves_out() -> None:
    report = many(1_500, checks=40, failing=1_500, word='"<&>' * 400)
    page = html.render(report)
    assert len(page.encode()) < LIMIT
    assert "The page has no more room" in page
    assert "500 more models are in report.json" in page


def test_the_sentence_says_the_worst_of_many() -> None:
    assert str(of_report(diverged())).startswith(
        "whisper: the model could not be exported: aten::foo"
    )
    gpt = next(m for m in diverged().models if m.name == "gpt")
    assert str(of_model(gpt, "ml/onnx-gate.yml")) == (
        "gpt: in typical/0 ONNX says 0.251 where PyTorch says 0.25 in logits[0, 3] (error 1.0e-03, "
        "allowed 8.3e-05): the exporter wrote another computation, first wrong at Gelu in mlp.act, "
        "ml/models/gpt.py:7. Write that line with other operators, or export with another exporter."
    )
    unnamed = tuple(each.model_copy(update={"output": "1"}) for each in gpt.checks)
    said = str(of_model(gpt.model_copy(update={"checks": unnamed}), "ml/onnx-gate.yml"))
    assert "where PyTorch says 0.25 in output 1[0, 3]" in said
