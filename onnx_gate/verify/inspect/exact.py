"""Whether a weight has to be the module's to the bit, and how certain that is."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property

from onnx_gate.findings.finding import Severity
from onnx_gate.manifest import EXPORTERS, ModelSpec
from onnx_gate.verify.context import Reduced
from onnx_gate.verify.waive import waives_every_case


@dataclass(frozen=True)
class ExactWeights:
    """That nothing but rounding is allowed, so that a weight has to be what an exporter makes of one.

    ``find_altered`` says which parameters the module makes others of, ``None`` where it cannot.
    What has lost its name is certainly meant to be a parameter in a file of torch's own exporters
    only (``by_torch``): others may have merged weights, as low-rank ones.
    """

    find_altered: Callable[[], Collection[str] | None]
    by_torch: bool

    @cached_property
    def _altered(self) -> Collection[str] | None:
        return self.find_altered()

    def vouches(self, parameter: str) -> bool:
        """Return whether a file has to hold a parameter as the module does."""
        return self._altered is not None and parameter not in self._altered

    def alters(self, parameter: str) -> bool:
        """Return whether the module makes another of a parameter, which a file may hold instead."""
        return self._altered is not None and parameter in self._altered

    def severity(self, own: str | None) -> Severity:
        """Return how certain it is that a weight near to a parameter has to be that parameter."""
        return "error" if own is not None or self.by_torch else "warning"


def exact_weights(
    spec: ModelSpec,
    exporter: str,
    reduced: Reduced | None,
    find_altered: Callable[[], Collection[str] | None],
    today: datetime.date,
) -> ExactWeights | None:
    """Return it where the manifest allows rounding alone and the file is not in fewer bits."""
    if reduced is not None or not spec.by_rounding or waives_every_case(spec, today):
        return None
    return ExactWeights(find_altered, exporter in EXPORTERS)
