"""What earlier runs took: seconds and bytes by model, from their reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from onnx_gate.report.model import ModelResult, Report

_MOST = 1 << 50  # of seconds or bytes: a report may hold any number


@dataclass(frozen=True)
class History:
    """Seconds, and the most bytes in use, of each model that an earlier run is known of."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)

    def or_else(self, other: History) -> History:
        """Return this, and what ``other`` knows where this knows nothing."""
        return History({**other.seconds, **self.seconds}, {**other.memory, **self.memory})


def history_of(reports: Iterable[Report]) -> History:
    """Return what is known of the models of ``reports``; of several results the last one counts.

    A result from a cache has the seconds and the memory of the run that made it.
    """
    return history_of_models(model for report in reports for model in report.models)


def history_of_models(models: Iterable[ModelResult]) -> History:
    """Return what is known of ``models``, as ``history_of`` does."""
    seconds: dict[str, float] = {}
    memory: dict[str, int] = {}
    for model in models:
        if 0 < model.taken < _MOST:
            seconds[model.name] = model.taken
        if model.peak_memory is not None and 0 < model.peak_memory < _MOST:
            memory[model.name] = model.peak_memory
    return History(seconds, memory)
