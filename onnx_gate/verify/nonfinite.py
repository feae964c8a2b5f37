"""Where PyTorch's own NaN or infinity comes from: the first operator that makes one of finite numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.report.model import Check
from onnx_gate.runtimes.base import Refusal
from onnx_gate.verify.checks import Checker
from onnx_gate.verify.reach.rules import Rule
from onnx_gate.verify.reach.sites import DecisionSite
from onnx_gate.verify.reach.watch import Watch
from onnx_gate.verify.reference.operator_mode import tensors_of
from onnx_gate.verify.source_lines import own_source, place_of

# What puts infinities where a mask says so.
_MASKING = ("masked_fill", "where", "index_fill", "index_put", "triu", "tril")


class _First(Watch):
    first: DecisionSite | None = None

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator, and keep the first that makes a number none."""
        given = [each for each in tensors_of((args, kwargs)) if each.is_floating_point()]
        fine = self.first is None and bool(given) and all(map(_finite, given))
        result = func(*args, **kwargs)
        if fine and name.rstrip("_") not in _MASKING and not all(map(_finite, tensors_of(result))):
            self.first = self._site(name, Rule((), "truth"), None, 0)
        return result


def _finite(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


def placed(
    checker: Checker, checks: Sequence[Check], findings: Sequence[Finding], workspace: Path
) -> Iterator[Finding]:
    """Yield the findings, those on PyTorch's own infinities (OG418) with where these come from."""
    for finding in findings:
        site = None
        if finding.code == codes.OG418.code and not finding.line:
            with suppress(Refusal, RuntimeError):
                site = _site(checker, checks, str(finding.data["output"]))
        if site is None:
            yield finding
            continue
        source = own_source(place_of(site.file, site.line, workspace)) if site.line else None
        where = f" ({source.file}:{source.line})" if source is not None else ""
        first = f"{site.operator}{f' of {site.module}' if site.module else ''}{where}"
        yield codes.OG418.finding(
            f"{finding.message}; first at {first}", at=source, data={**finding.data, "first": first}
        )


def _site(checker: Checker, checks: Sequence[Check], output: str) -> DecisionSite | None:
    for check in checks:
        metrics = check.metrics
        lost = metrics is not None and metrics.elements - check.compared - check.open
        if check.output != output or check.advice or check.edge or not lost:
            continue
        again = checker.again(check)
        if again is not None:
            watch = _First(checker.explorer.watcher)
            checker.setting.eager.run(again[0].arrays, mode=watch)
            return watch.first
    return None
