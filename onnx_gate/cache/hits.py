"""Which models of a run need not be verified, because a cache has a verdict that still holds."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from onnx_gate.cache.cache import Cache, CacheLookup, open_cache
from onnx_gate.cache.reproduction import put_repro
from onnx_gate.cache.store import Unusable
from onnx_gate.manifest import Manifest, ModelSpec
from onnx_gate.report.layout import REPRO, Layout
from onnx_gate.report.model import ModelResult
from onnx_gate.text import MAX_LINE, plain
from onnx_gate.verify.context import HUNG
from onnx_gate.workers.launch import Launch

_MOST_REASONS = 5


@dataclass(frozen=True)
class CachedResults:
    """What holds of earlier runs: ``results`` as they are.

    ``exported`` has the exports, by model, that hold where the verdict does not; ``reasons`` the
    phrases that say why a model has to be verified, ``past`` its earlier results. An advisory case
    of the models ``hung`` gave no answer when they were verified last.
    """

    results: Mapping[str, ModelResult] = field(default_factory=dict)
    exported: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    past: tuple[ModelResult, ...] = ()
    hung: frozenset[str] = frozenset()

    def lines(self, *, every: bool) -> list[str]:
        """Return what is to be said of the cache; with ``every`` model a line each."""
        total = len(self.results) + len(self.reasons)
        lines = [f"cache: {len(self.results)} of {total} verdicts still hold"]
        if not every:
            return lines
        if self.results:
            lines.append(
                f"  unchanged: {', '.join(plain(name, MAX_LINE) for name in self.results)}"
            )
        return lines + [
            f"  {plain(name, MAX_LINE)}: {plain('; '.join(_few(reasons)), MAX_LINE)}"
            for name, reasons in self.reasons.items()
        ]


def use_cache(
    folder: Path,
    manifest: Manifest,
    launch: Launch,
    *,
    output: Path,
    threads: int,
    cases: tuple[str, ...],
    today: datetime.date,
    versions: Mapping[str, str],
) -> Cache:
    """Return the cache in ``folder``, or one that knows nothing and notes why that is.

    ``versions`` are of what runs beside the models.
    """
    try:
        return open_cache(
            folder,
            manifest.path.resolve().parent,
            launch,
            own=(output,),
            threads=threads,
            cases=cases,
            today=today,
            variables=dict(os.environ),
            versions=versions,
        )
    except Unusable as error:
        return Cache(f"cache: {folder} is not used: {error}")


def look_up(
    cache: Cache,
    specs: Sequence[ModelSpec],
    layout: Layout,
    *,
    keep_models: bool,
    verdicts: bool = True,
) -> CachedResults:
    """Return what the cache knows of each model; without ``verdicts``, of its export alone.

    The reproduction of a known divergence is put where ``layout`` has it, and with ``keep_models``
    the exported file too.
    """
    results: dict[str, ModelResult] = {}
    exported: dict[str, Mapping[str, str]] = {}
    reasons: dict[str, tuple[str, ...]] = {}
    past: list[ModelResult] = []
    for spec in specs:
        stored = cache.look_up(spec)
        if not verdicts:
            entry = stored.entry
            exported[spec.name] = stored.exported or (entry.exported if entry else None) or {}
            continue
        result = _result(spec, stored, layout.repro(spec.name))
        if result is not None and keep_models and spec.onnx is None:
            files = stored.entry.exported if stored.entry is not None else None
            if not cache.restore(files or {}, layout.model(spec.name)):
                result, stored = (
                    None,
                    CacheLookup(reasons=("its exported file is not in the cache",)),
                )
        if result is None:
            exported[spec.name] = stored.exported
            reasons[spec.name] = stored.reasons or ("its entry cannot be read",)
            past += [stored.past] if stored.past is not None else []
        else:
            results[spec.name] = result
    hung = frozenset(m.name for m in past if any(f.data.get(HUNG) for f in m.findings))
    return CachedResults(results, exported, reasons, tuple(past), hung)


def _result(spec: ModelSpec, stored: CacheLookup, repro: Path) -> ModelResult | None:
    entry = stored.entry
    if entry is None or entry.result is None:
        return None
    if entry.files:
        with suppress(OSError):
            put_repro(entry.files, repro)

    def kept(path: str) -> str | None:
        name = Path(path).name
        return f"{REPRO}/{repro.name}/{name}" if (repro / name).is_dir() else None

    return entry.result.with_repros(kept).model_copy(
        update={"cached": True, "required": spec.required, "line": spec.line or None}
    )


def _few(reasons: Sequence[str]) -> list[str]:
    more = len(reasons) - _MOST_REASONS
    return [*reasons[:_MOST_REASONS], *([f"and {more} more"] if more > 0 else [])]
