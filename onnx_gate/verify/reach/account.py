"""From what was seen of a module to what the report says of it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import get_args

from onnx_gate.report.model import Weights
from onnx_gate.report.model.decisions import MOST_LISTED, Decision, Decisions, Side
from onnx_gate.verify.reach.rules import COUNTED
from onnx_gate.verify.reach.sites import DecisionSite, Seen
from onnx_gate.verify.source_lines import own_source, place_of

_SIDES: tuple[Side, ...] = get_args(Side)


def account(
    seen: Mapping[DecisionSite, Seen],
    before: Collection[DecisionSite],
    workspace: Path | None,
    compared: Collection[tuple[DecisionSite, str]] = (),
    weights: Weights | None = None,
) -> Decisions:
    """Count the decisions; ``before`` are those that were seen both ways by the suites alone.

    ``compared`` are sides that were compared at their operators. Where every one of the file's ``weights``
    is the module's, the rows of its tables were.
    """
    if weights is not None and weights.all_known:
        compared = {*compared, *_rows_of(seen)}
    counted = {site: each for site, each in seen.items() if site.kind in COUNTED and each.moves}
    left = [site for site, each in counted.items() if each.left(site)]
    never = [s for s in left if any((s, side) not in compared for side in counted[s].left(s))]
    return Decisions(
        seen=len(counted) - len(left),
        of=len(counted),
        before=len([site for site in counted if site in before]),
        compared=len(left) - len(never),
        never=tuple(_decision(site, counted[site], workspace) for site in never[:MOST_LISTED]),
    )


def _rows_of(seen: Mapping[DecisionSite, Seen]) -> set[tuple[DecisionSite, str]]:
    """Return the unseen sides of tables of weights: rows that no input has read.

    None of those of which one is computed or chosen: what does so may be wrong where the rows are right.
    """
    tables = ((s, each) for s, each in seen.items() if s.is_table and not each.computed)
    return {(s, side) for s, each in tables for side in each.left(s)}


def both_ways(seen: Mapping[DecisionSite, Seen]) -> frozenset[DecisionSite]:
    """Return the decisions of which every side was seen."""
    return frozenset(site for site, each in seen.items() if not each.left(site))


def _decision(site: DecisionSite, seen: Seen, workspace: Path | None) -> Decision:
    rows = site.kind == "rows"
    sides = () if rows else seen.left(site)
    return described(site, sides, workspace, seen.read if rows else None)


def described(
    site: DecisionSite, sides: Collection[str], workspace: Path | None, read: int | None = None
) -> Decision:
    """Return what the report says of some sides of a decision."""
    line = place_of(site.file, site.line, workspace) if site.line else None
    return Decision(
        module=site.module,
        operator=site.operator,
        limit=site.limit if site.limit is not None and math.isfinite(site.limit) else None,
        never=tuple(side for side in _SIDES if side in sides),
        read=read,
        source=own_source(line),
    )
