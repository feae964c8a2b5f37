"""What the pictures of a page show: which bars, what they are called, and of how many elements."""

from __future__ import annotations

import re

from onnx_gate.report.model import Check
from onnx_gate.report.model.diagnosis import Diagnosis, NodeError, Pictures
from onnx_gate.report.render.plots import by_case, by_size, error_map, graph, pairs
from tests.support.report.reports import check
from tests.support.report.scenes import model


def _labels(body: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", body)


def _grid(wrong: int) -> list[Check]:
    """Checks at batches and lengths, of which those of ``wrong`` or more words diverge."""
    return [
        check(
            f"typical/batch={batch},seq={seq}/0",
            "diverged" if seq >= wrong else "pass",
            budget=1e4 if seq >= wrong else 0.3,
            sizes={"batch": batch, "seq": seq},
        )
        for batch in (1, 2, 7)
        for seq in range(1, 16)
    ]


def test_the_bars_by_size_are_of_the_dimension_that_decides() -> None:
    picture = by_size(model("m", *_grid(wrong=3), verdict="diverged"))
    assert picture is not None
    assert picture.title == "The error by seq, in units of the tolerance"
    labels = _labels(picture.body)
    assert "seq=3" in labels
    assert {"seq=1", "seq=2"} & set(labels), "what is right shows what the rest is worse than"
    assert "12 of 15 are shown" in picture.text


def test_there_are_no_bars_by_size_where_no_size_decides() -> None:
    assert by_size(model("m", *_grid(wrong=1), verdict="diverged")) is None


def test_what_tells_two_bars_apart_is_not_cut_off() -> None:
    case = "typical/batch=2,height=37,width=41,depth=12,frames=9/0"
    runs = [
        check(case, "diverged", runtime=name) for name in ("onnxruntime", "onnxruntime:cpu:off")
    ]
    picture = by_case(model("m", *runs, verdict="diverged"))
    assert picture is not None
    labels = [label for label in _labels(picture.body) if label.startswith("typical")]
    assert len(set(labels)) == len(labels) == 2


def test_a_sample_says_that_it_is_one() -> None:
    drawn = Pictures(
        scale=1.0,
        allowed=1e-6,
        histogram=(1000, 0, 0, 0, 24, 0, 0, 0, 0, 0),
        pairs=((0.0, 0.5), (1.0, 1.0), (0.5, 0.5)),
        map=((0.5, 3.0),),
        map_of=(1, 2),
    )
    shown = pairs(drawn)
    assert shown is not None
    assert shown.text.startswith("3 of 1024 elements, evenly spread ones and the worst: PyTorch")
    assert "1 of them are outside the tolerance, which is thinner than the green line" in shown.text
    tiles = error_map(drawn)
    assert tiles is not None
    assert "in units of the tolerance" in tiles.text


def test_the_first_wrong_node_is_named_above_the_curve() -> None:
    known = Diagnosis(runtime="onnxruntime", case="typical/0", output="y", blame="exporter")
    node = {"name": "n", "op_type": "Tanh", "output": "y", "module": ""}
    nodes = tuple(NodeError.model_validate({**node, "error": e, "born": e}) for e in (1e-7, 2, 3))
    picture = graph(known.model_copy(update={"nodes": nodes, "guilty": 1}))
    assert picture is not None
    heights = re.findall(r'y="([\d.]+)"[^>]*>first wrong: Tanh', picture.body)
    assert [float(y) for y in heights] == [11.0]
