"""What ``make compat`` asks pip for, and what it makes of a report."""

from __future__ import annotations

from typing import Any

from benchmarks.compat.versions import known_fault, lower_bounds, profiles
from tests.support.gate import ROOT

PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_every_dependency_has_a_lower_bound_that_is_tried() -> None:
    block = PYPROJECT.partition("\ndependencies = [")[2].partition("\n]")[0]
    bounds = lower_bounds(PYPROJECT)
    assert len(bounds) == len(block.strip().splitlines())
    assert f"onnxscript=={bounds['onnxscript']}" in profiles(bounds)["oldest"]
    assert profiles(bounds)["newest"] == []


def test_a_fault_counts_as_known_in_the_versions_that_have_it_only() -> None:
    def model(name: str, code: str) -> dict[str, Any]:
        return {"name": name, "error": {"kind": "export", "code": code}}

    assert known_fault(model("lstm", "OG206"), "2.11.0")
    assert not known_fault(model("lstm", "OG206"), "2.13.0+cpu")
    assert not known_fault(model("lstm", "OG207"), "2.11.0")
    assert not known_fault(model("resnet", "OG206"), "2.11.0")
    assert not known_fault({"name": "lstm", "error": None}, "2.9.0")
