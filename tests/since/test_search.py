"""Which releases a search tries, and what a range of releases is."""

from __future__ import annotations

import math

import pytest
from packaging.version import Version

from onnx_gate.errors import UserError
from onnx_gate.report.model import ModelResult
from onnx_gate.since.bisect import ReleaseRuns, search
from onnx_gate.since.environments import CannotInstall, pins_of
from onnx_gate.since.releases import parse_range


def versions(count: int) -> list[Version]:
    return [Version(f"1.{minor}") for minor in range(count)]


def runs(bad_from: int, broken: tuple[int, ...] = (), *, mended: bool = False) -> ReleaseRuns:
    def of(version: Version) -> dict[str, ModelResult]:
        if version.minor in broken:
            raise CannotInstall("no wheel")
        bad = (version.minor >= bad_from) != mended
        return {"net": ModelResult(name="net", verdict="diverged" if bad else "pass")}

    return ReleaseRuns(of)


@pytest.mark.parametrize("count", [2, 3, 7, 12, 25])
@pytest.mark.parametrize("mended", [False, True])
def test_every_place_is_found_in_logarithmically_many_runs(count: int, mended: bool) -> None:
    for bad_from in range(1, count):
        each, there = runs(bad_from, mended=mended), versions(count)
        found = search(there, there[0], there[-1], "net", each, lambda _: None)
        assert found == (there[bad_from - 1], there[bad_from])
        assert len(each.done) - 2 <= math.ceil(math.log2(count - 1)), (count, bad_from)
        if count == 12:
            assert len(each.done) - 2 <= 4


def test_what_cannot_be_installed_is_passed_over_and_said() -> None:
    said: list[str] = []
    there, each = versions(12), runs(7, broken=(5, 6, 8))
    before, after = search(there, there[0], there[-1], "net", each, said.append)
    assert (before, after) == (Version("1.4"), Version("1.7"))
    assert all(line.startswith("skipped: 1.") for line in said)
    assert {line.split()[1] for line in said} >= {"1.5", "1.6"}


@pytest.mark.parametrize(
    ("text", "specifier"),
    [
        ("1.20..1.32", ">=1.20,<1.33"),
        ("1.20.1..1.32.0", ">=1.20.1,<1.32.1"),
        ("1.0..2.0rc1", ">=1.0,<=2.0rc1"),
    ],
)
def test_a_range_has_both_ends(text: str, specifier: str) -> None:
    assert parse_range(text).specifier([]) == specifier
    assert parse_range(text).specifier([Version("1.31")]) == f"{specifier},!=1.31"


@pytest.mark.parametrize(
    ("text", "says"),
    [("1.20", "1.20..1.32"), ("1.2..x", "1.20..1.32"), ("2.0..1.0", "write it as 1.0..2.0")],
)
def test_what_is_no_range_is_refused(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        parse_range(text)


def test_pins_are_read_from_lines_of_requirements() -> None:
    text = "Torch_Vision[x]==0.1+cpu ; python_version > '3'\n# a==1\nb>=2\nc==3 \\\n  --hash=sha256:0\n"
    assert pins_of(text) == {"torch-vision": "0.1+cpu", "c": "3"}
