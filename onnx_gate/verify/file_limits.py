"""Limits that a file has and its module has not: found at the values that they are about."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import numpy as np
import onnx

from onnx_gate.graph.graph import read_graph
from onnx_gate.graph.limits import limits_of_values, sizes_named
from onnx_gate.graph.steer import Steered
from onnx_gate.manifest import EXPORTERS
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.tensors import to_tensor
from onnx_gate.verify.checks import Checker, ModuleSetting
from onnx_gate.verify.export.exported import LARGEST_SIZE, Exported
from onnx_gate.verify.probing import MOST_BYTES
from onnx_gate.verify.reach.probe import EXACT, is_alike
from onnx_gate.verify.reach.sites import DecisionSite
from onnx_gate.verify.reach.steered import SteeredModule
from onnx_gate.verify.reach.watch import Call, Calls, Limits, Watcher

# Two numbers that are as near to each other are one, in float32 and as it is written.
_ONE = 1e-6


def learn_of_file(checker: Checker, exported: Exported) -> None:
    """Have inputs looked for where the file decides.

    What PyTorch's own exporters write decides what the module does, and a file in fewer bits computes
    other values than it.
    """
    if exported.exporter in EXPORTERS or checker.setting.reduced is not None:
        return
    if exported.size <= MOST_BYTES:
        named = sizes_named(read_graph(exported.proto, exported.path))
        own = (n for n in named if 2 < n <= LARGEST_SIZE)
        checker.explorer.numbers = (*checker.setting.numbers, *own)
        checker.explorer.besides = partial(limits_besides, checker.setting)


def limits_besides(setting: ModuleSetting, watcher: Watcher, arrays: Mapping[str, Array]) -> Limits:
    """Return where the module makes the values that the file holds against numbers of its own.

    Of one case: a value that lies on both sides of such a number there is no matter of what inputs
    reach. Empty where the file cannot be run node by node.
    """
    model = onnx.load(str(setting.path), load_external_data=False)
    known = {site.limit for site in watcher.seen if site.limit is not None}
    wanted = {
        value: own
        for value, limits in limits_of_values(read_graph(model, setting.path)).items()
        if (own := {n: op for n, op in limits.items() if not _among(n, known)})
    }
    if not wanted:
        return {}
    feeds = {graph: arrays[name] for name, graph in setting.graph_inputs.items()}
    found: dict[tuple[Call | str, int], Mapping[float, str]] = {}
    try:
        steered = Steered(model, setting.path, feeds, setting.threads)
        named = {DecisionSite("", value, "limit", None): value for value in wanted}
        held = {site: np.asarray(steered.values[value]) for site, value in named.items()}
        alike = {
            site: partial(is_alike, to_tensor(array), share=EXACT.alike)
            for site, array in held.items()
            if array.dtype.kind == "f" and array.size
        }
        calls = Calls(watcher)
        watcher.eager.run(arrays, mode=calls)
        for site, places in SteeredModule(watcher, arrays).roots(alike).items():
            low, high = float(held[site].min()), float(held[site].max())
            limits = {n: op for n, op in wanted[named[site]].items() if not low < n < high}
            if places and limits:
                at, index = places[0]
                key = (calls.at[at] if isinstance(at, int) else at, index)
                found[key] = {**found.get(key, {}), **limits}
    except (Refusal, LookupError):
        return {}
    return found


def _among(number: float, known: set[float]) -> bool:
    return any(math.isclose(number, each, rel_tol=_ONE, abs_tol=0.0) for each in known)
