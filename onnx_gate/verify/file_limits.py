"""Limits that a file has and its module has not: found at the values that they are about."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx.shape_inference import infer_shapes
from torch import nn

from onnx_gate.graph.arithmetic import sizes_computed
from onnx_gate.graph.constants import array_of
from onnx_gate.graph.graph import Graph, read_graph
from onnx_gate.graph.lengths import lengths_beyond
from onnx_gate.graph.limits import EQUAL, FileLimit, limits_of_values, sizes_named
from onnx_gate.graph.steer import Steered
from onnx_gate.graph.trees import boxes, keys
from onnx_gate.graph.walk import all_nodes, constants
from onnx_gate.manifest import EXPORTERS
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.runtimes.file_module import FileModule
from onnx_gate.runtimes.tensors import to_tensor
from onnx_gate.verify.checks import Checker, ModuleSetting
from onnx_gate.verify.export.exported import LARGEST_AREA, Exported
from onnx_gate.verify.probing import MOST_BYTES
from onnx_gate.verify.reach.file_sides import DecidingFile
from onnx_gate.verify.reach.probe import EXACT, Alike
from onnx_gate.verify.reach.shown import Call, Limits, Place
from onnx_gate.verify.reach.sites import DecisionSite
from onnx_gate.verify.reach.steered import SteeredModule
from onnx_gate.verify.reach.watch import Watch
from onnx_gate.verify.reach.watcher import Watcher
from onnx_gate.workers import tracebacks

Found = TypeVar("Found")

# Two numbers that are as near to each other are one, in float32 and as it is written.
_ONE = 1e-6


def learn_of_file(checker: Checker, exported: Exported) -> None:
    """Have inputs looked for where the file decides.

    What PyTorch's own exporters write decides what the module does, but where it computes sizes in floats;
    and a file in fewer bits computes other values than it.
    """
    if exported.size > MOST_BYTES:
        return
    if checker.setting.reduced is None:
        computes = or_nothing(_computes_sizes, False)
        checker.explorer.computes_sizes = computes(exported)
    if exported.exporter in EXPORTERS:
        return
    if isinstance(checker.setting.eager.module, FileModule):
        checker.explorer.files = partial(_deciding, checker.setting)
    if checker.setting.reduced is not None:
        return
    try:
        # Not every exporter writes down what its values are.
        graph = read_graph(infer_shapes(exported.proto), exported.path)
        named = sorted(n for n in sizes_named(graph) if 2 < n <= LARGEST_AREA)
        lengths = lengths_beyond(graph, checker.setting.graph_ranges)
        other_tables = _has_other_tables(exported, checker.setting.eager.module)
    except Exception as error:
        # What cannot be read of a file for this costs no verdict.
        tracebacks.write(error)
        return
    checker.explorer.numbers = (*checker.setting.numbers, *named)
    checker.explorer.lengths = sorted(lengths)
    checker.explorer.other_tables = other_tables
    checker.explorer.besides = or_nothing(partial(limits_besides, checker.setting, graph), {})
    checker.explorer.told = or_nothing(partial(_told, graph, checker.setting.graph_inputs), ())
    checker.explorer.tables = or_nothing(
        partial(_stored, exported, checker.setting.eager.module), ()
    )


def _computes_sizes(exported: Exported) -> bool:
    return sizes_computed(read_graph(exported.proto, exported.path))


def or_nothing(find: Callable[..., Found], nothing: Found) -> Callable[..., Found]:
    """Return what finds the same, and nothing where that fails: it costs no verdict."""

    def found(*given: Any) -> Found:
        try:
            return find(*given)
        except Exception as error:
            tracebacks.write(error)
            return nothing

    return found


def _told(
    graph: Graph, names: Mapping[str, str], arrays: Mapping[str, Array]
) -> Sequence[tuple[str, Array]]:
    """Return rows that come to every leaf of a file's trees, and lines with every key of its labels."""
    given = {own: name for name, own in names.items()}
    widths = {own: arrays[name].shape[-1] for own, name in given.items() if arrays[name].ndim == 2}
    found = [
        (given[own], each.corners(arrays[given[own]][0])) for own, each in boxes(graph, widths)
    ]
    for own, every in keys(graph):
        if own in given and arrays[given[own]].size:
            row = arrays[given[own]][:1]
            # Each at each place of a row.
            turned = np.arange(len(every))[:, None] + np.arange(row.size)
            lines = every[turned % len(every)].astype(row.dtype)
            found.append((given[own], lines.reshape(-1, *row.shape[1:])))
    return found


def _deciding(setting: ModuleSetting, arrays: Mapping[str, Array]) -> Iterator[DecidingFile]:
    """Yield the files that decide, where one is in the module's place: that one first.

    One in fewer bits than it saturates where it was not calibrated, as it is meant to.
    """
    module = setting.eager.module
    assert isinstance(module, FileModule)
    files = [(module.path, module.inputs)]
    if setting.reduced is None:
        files.append((setting.path, dict(setting.graph_inputs)))
    for path, inputs in files:
        try:
            yield DecidingFile(path, inputs, setting.threads, arrays)
        except Exception as error:
            # Not every file can be cut into parts, and that costs no verdict.
            tracebacks.write(error)


def _stored(exported: Exported, module: nn.Module) -> Sequence[Array]:
    """Return what a file stores, and the file in the module's place if it is one, in lines."""
    protos = [(exported.proto, exported.path)]
    if isinstance(module, FileModule):
        protos.append((onnx.load(str(module.path), load_external_data=False), module.path))
    return [
        array_of(tensor, path.parent)
        for proto, path in protos
        for tensor in constants(proto).values()
        if len(tensor.dims) and tensor.data_type != onnx.TensorProto.STRING
    ]


def _has_other_tables(exported: Exported, module: nn.Module) -> bool:
    """Return whether a file has tables that the file in the module's place, if it is one, has not."""
    if not isinstance(module, FileModule):
        return False
    own = onnx.load(str(module.path), load_external_data=False)
    tables = _tables(exported.proto, exported.path.parent)
    return not tables <= _tables(own, module.path.parent)


def _tables(proto: onnx.ModelProto, folder: Path) -> set[tuple[object, ...]]:
    """Return what the tables that a file reads rows of hold: their forms, with a hash of their values."""
    weights = constants(proto)
    read = {node.input[0] for node in all_nodes(proto) if node.op_type == "Gather"}
    arrays = (array_of(weights[name], folder) for name in read & weights.keys())
    return {
        (str(each.dtype), each.shape, blake2b(each.tobytes()).digest())
        for each in arrays
        if each.ndim > 1
    }


def limits_besides(
    setting: ModuleSetting, graph: Graph, watcher: Watcher, arrays: Mapping[str, Array]
) -> Limits:
    """Return where the module makes the values that the file holds against numbers of its own.

    Of one case: a value that lies on both sides of such a number there is no matter of what inputs
    reach. Those of inputs alone where the file cannot be run node by node.
    """
    found = _of_inputs(graph, setting.graph_inputs)
    module = setting.eager.module
    if isinstance(module, FileModule):  # decides by numbers as well, which nothing has watched
        own = read_graph(onnx.load(str(module.path), load_external_data=False), module.path)
        for place, limits in _of_inputs(own, module.inputs).items():
            found.setdefault(place, {}).update(limits)
    numbers = (site.limit for site in watcher.seen if site.limit is not None)
    known = {*numbers, *watcher.constants}
    wanted = [
        each
        for each in limits_of_values(graph)
        # Of what decides at one of the module's numbers the module decides by the same, unless it is
        # another value.
        if not _among(each.values[0][1], known) or len(each.values) > 1
    ]
    if not wanted:
        return found
    feeds = {graph: arrays[name] for name, graph in setting.graph_inputs.items()}
    try:
        model = onnx.load(str(setting.path), load_external_data=False)
        steered = Steered(model, setting.path, feeds, setting.threads)
        values = {v for e in wanted for v in (*(name for name, _ in e.values), e.result) if v}
        places = _made_where(steered, watcher, arrays, values)
        calls = _Calls(watcher)
        watcher.eager.run(arrays, mode=calls)
        for each in wanted:
            value, number = next((pair for pair in each.values if places.get(pair[0])), ("", 0.0))
            if not value or _among(number, known) or places.get(each.result):
                continue
            at, index = places[value][0]
            if isinstance(at, int) and not _is_shown(
                np.asarray(steered.values[value]), number, each
            ):
                found.setdefault((calls.at[at], index), {}).setdefault(number, each.operator)
    except (Refusal, LookupError):
        pass
    return found


def _of_inputs(
    graph: Graph, names: Mapping[str, str]
) -> dict[tuple[Call | str, int], dict[float, str]]:
    """Return the limits for what a graph is given, by the manifest's names of its inputs."""
    found: dict[tuple[Call | str, int], dict[float, str]] = {}
    given = {own: name for name, own in names.items()}
    for each in limits_of_values(graph):
        for value, number in each.values:
            if value in given:
                found.setdefault((given[value], 0), {}).setdefault(number, each.operator)
    return found


def _is_shown(held: Array, number: float, limit: FileLimit) -> bool:
    """Return whether a value lies on all sides of a number: whole ones are at it, too."""
    sides = [held < number, held > number] if limit.operator != EQUAL else [held != number]
    if held.dtype.kind in "iu" or limit.operator == EQUAL:
        sides.append(held == number)
    return all(bool(side.any()) for side in sides)


def _made_where(
    steered: Steered, watcher: Watcher, arrays: Mapping[str, Array], values: Collection[str]
) -> Mapping[str, Sequence[Place]]:
    """Return where the module makes values of the file, by their names."""
    alike = {}
    for value in sorted(values):
        array = np.asarray(steered.values[value])
        if array.dtype.kind in "fiu" and array.size:
            site = DecisionSite("", value, "limit", None)
            alike[site] = Alike(to_tensor(array), EXACT.alike)
    found = SteeredModule(watcher, arrays).roots(alike)
    return {site.operator: places for site, places in found.items()}


def _among(number: float, known: set[float]) -> bool:
    return any(math.isclose(number, each, rel_tol=_ONE, abs_tol=0.0) for each in known)


class _Calls(Watch):
    """Notes of each operator's call where it is, by its number."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self.at: list[Call] = []

    def run(self, name: str, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator and note where."""
        self.at.append(self.place_of(name))
        return func(*args, **kwargs)
