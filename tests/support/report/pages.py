"""Reports for the page to look at: with pictures, with very many models, with several runtimes."""

from __future__ import annotations

from onnx_gate.report.model import Check, CheckBase, ModelResult, Report
from onnx_gate.report.model.diagnosis import Pictures
from tests.support.report.reports import check
from tests.support.report.scenes import diverged, far, model, whole

PICTURES = Pictures(
    scale=1.0,
    allowed=8.3e-5,
    histogram=(0, 2, 0, 5, 0, 1, 0, 0, 0, 0),
    pairs=((0.25, 0.251), (0.5, 0.5), (0.1, 0.1)),
    map=((0.5, 12.0), (0.0, 0.1)),
    map_of=(2, 2),
)


def drawn(also: tuple[Check, ...] = ()) -> Report:
    """Return a report of several failures, of which one, ``gpt``, has all that can be known."""
    report = diverged()
    return report.model_copy(update={"models": tuple(_known(m, also) for m in report.models)})


def _known(result: ModelResult, also: tuple[Check, ...]) -> ModelResult:
    if result.diagnosis is None:
        return result
    sizes = {"sizes": {"batch": 2, "seq": 7}}
    known = {"base": CheckBase(verdict="pass", error=1e-3 / 8000, budget=0.1), **sizes}
    checks = tuple(c.model_copy(update=known) for c in result.checks)
    near = check("typical/1").model_copy(update={"sizes": {"batch": 1}, "advice": False})
    diagnosis = result.diagnosis.model_copy(update={"pictures": PICTURES})
    changes = {"diagnosis": diagnosis, "base": "pass", "checks": (*checks, *also, near)}
    return result.model_copy(update=changes)


def many(models: int, checks: int, failing: int, word: str = "") -> Report:
    """Return a report of very many models, the first of which fail."""
    gpt = next(m for m in drawn().models if m.name == "gpt")
    results = []
    for n in range(models):
        bad = n < failing
        first = check(f"typical/{word}batch=7/0", "diverged", **far(1e-3, None, 12.0))
        rest = (check(f"typical/{word}batch=2/{n}"),) * (checks - 1)
        good = model(f"net-{n}{word}", *rest[:1])
        checks_of_bad = {
            "checks": (first, *rest),
            "verdict": "diverged",
            "diagnosis": gpt.diagnosis,
        }
        changes = checks_of_bad if bad else {"checks": (*rest, *rest[:1])}
        results.append(good.model_copy(update=changes))
    return whole(*results)


def several_runtimes(other: str = "openvino") -> Report:
    """Return a report of models that were run by two engines, and by one of them with two levels."""
    engines = [{"runtime": name, "seconds": 1.0} for name in ("onnxruntime", other)]

    def beside(verdict: str, **changes: object) -> Check:
        return check("typical/0", verdict, runtime=other, compared=8, **changes)

    fine = check("typical/0", compared=8)
    plain = check("typical/0", runtime="onnxruntime:cpu:off", budget=0.3)
    nothing = {"deviation": None, "metrics": None, "worst": None, "budget": None}
    refused = beside("diverged", refused=("runtime",), reason="no kernel", **nothing)
    wrong = beside("diverged", **far(1e-3, None, 41.0))
    return whole(
        model("far", fine, plain, wrong, verdict="diverged", runtimes=engines),
        model("refused", fine, refused, verdict="diverged", runtimes=engines),
        model("one", fine, plain, runtimes=engines[:1]),
    )
