"""A committed ONNX file that is wrong: is it old, or does exporting make the error every time?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from onnx_gate.diagnose.bench import Answer, Fresh
from onnx_gate.diagnose.blame.blame_result import BlameResult
from onnx_gate.diagnose.blame.captures import export_again
from onnx_gate.diagnose.blame.chain import Chain, Tracing
from onnx_gate.diagnose.blame.reordered import reordered
from onnx_gate.diagnose.blame.weights import told_of_weight, weights_of
from onnx_gate.graph.module_path import module_of_props
from onnx_gate.graph.walk import attributes_of, constants, opset_of, trains
from onnx_gate.manifest import ExportSpec
from onnx_gate.report.model import Weights
from onnx_gate.report.model.diagnosis import Evidence, Experiment
from onnx_gate.runtimes.base import Array, first_line
from onnx_gate.runtimes.file_module import PLAIN
from onnx_gate.text import listed
from onnx_gate.verify.inspect.weights import account
from onnx_gate.verify.source_lines import of_node, shown

# What to do about a file of other weights, and about one that something else was written into.
_ANEW = "export the file anew whenever the model or its weights change"
_MADE = "put that right where the file is made"
# Larger models are compared by their graphs alone.
WEIGHT_BYTES = 2 * 2**30
# Smaller tensors are constants of the graph, not weights: axes, shapes, small numbers.
SMALLEST_WEIGHT = 5
SHOWN = 3


@dataclass(frozen=True)
class Changes:
    """What is different in a file, in sentences: of its ``weights``, which decides, and its ``graph``.

    ``moved`` says of weights that are the model's, in other places: no other training made these.
    """

    weights: tuple[str, ...] = ()
    graph: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()


def blame_file(chain: Chain, plain: Answer) -> BlameResult:
    """Export the module again and hold the result against PyTorch and against the file.

    ``plain`` is the file's answer with optimisations off.
    """
    subject = chain.subject
    right: Fresh | None = None
    own = subject.exported.torch_exporter
    for exporter in subject.exported.exporters:
        opset = subject.exported.opset if exporter == "torchscript" else None
        fresh = export_again(chain.bench, exporter, opset)
        name = f"a fresh export ({exporter})"
        if fresh.failed:
            chain.ask("fresh export", name, Answer(failed=fresh.failed), exporter=exporter)
            continue
        answer = chain.bench.runtime(PLAIN, subject.arrays, fresh)
        experiment = f"{name}, optimisations off"
        measured = chain.ask("fresh export", experiment, answer, exporter=exporter)
        if measured.agrees:
            right = right or fresh
            elsewhere = chain.on_the_example(
                f"{experiment}, against {chain.against}", fresh, exporter=exporter
            )
            if own is not None and elsewhere is not False:
                break
        elif measured.agrees is False:
            same = chain.record(
                "same error", f"{name} against the file", chain.agreement.near(answer, plain)
            )
            if same.agrees:
                return _fault_of(chain, fresh, plain)
    tracing = Tracing()
    if own != "dynamo":
        tracing = chain.trace(plain, by_tracing=own == "torchscript")
    if tracing.alike:
        return BlameResult("capture", "traced", note="tracing the module makes the file's error")
    changes = _changes(chain, right)
    told = (*changes.weights, *changes.moved, *changes.graph)
    if right is not None and tracing.bakes and not told:
        note = "nothing differs from a fresh export but what tracing bakes in"
        return BlameResult("capture", "traced", note=note)
    for change in told:
        chain.evidence.append(
            Evidence(
                kind="file" if change in changes.weights else "graph",
                experiment="the file against a fresh export"
                if right
                else "the file against the module",
                outcome=change,
                agrees=False,
            )
        )
    decided: Experiment = "file" if changes.weights or not told else "graph"
    remedy = remedy_of_stale(chain.evidence, _MADE if decided == "graph" else _ANEW)
    likely = next(iter((*changes.weights, *changes.moved)), "")
    if right is not None:
        decided = decided if told else "fresh export"
        note = told[0] if told else ""
        return BlameResult("stale artifact", decided, note=note, likely=likely, remedy=remedy)
    if told:
        had = any(e.kind == "fresh export" and e.agrees is False for e in chain.evidence)
        note = f"no fresh export {'is right' if had else 'could be had'}, but {told[0]}"
        return BlameResult("stale artifact", decided, note=note, likely=likely, remedy=remedy)
    note = "no fresh export is right, and none makes the file's error"
    return BlameResult("undecided", note=note)


def remedy_of_stale(evidence: Sequence[Evidence], anew: str = _ANEW) -> str:
    """Return what to do about a file that was not made from its model, of what fresh exports showed."""
    wrong = list(dict.fromkeys(e.exporter for e in evidence if e.exporter and e.agrees is False))
    agreeing = dict.fromkeys(e.exporter for e in evidence if e.exporter and e.agrees)
    right = [exporter for exporter in agreeing if exporter not in wrong]
    if wrong and not right:
        others = listed(wrong, SHOWN)
        return f"a fresh export ({others}) is wrong as well: put that right first, and then export it anew"
    if not right:
        return anew
    own = ExportSpec().exporter
    by = "" if own in right else f" with `export: {{exporter: {right[0]}}}`"
    but = f" ({listed(wrong, SHOWN)} gets it wrong, too)" if wrong else ""
    return f"{anew}, or leave onnx out and let the gate export{by}{but}"


def _fault_of(chain: Chain, fresh: Fresh, plain: Answer) -> BlameResult:
    note = "a fresh export makes the same error"
    if fresh.program is None:
        if chain.trace(plain, by_tracing=True).alike:
            return BlameResult("capture", "traced", note=note)
    elif chain.ask("program", "its ExportedProgram", fresh.program).agrees is False:
        return BlameResult("capture", "program", note=note)
    return BlameResult("exporter", "same error", note=note)


def _changes(chain: Chain, fresh: Fresh | None) -> Changes:
    exported, module = chain.subject.exported, chain.bench.eager.module
    try:
        if fresh is None:
            return Changes(tuple(_against_module(exported.path, module)))
        known = chain.subject.weights
        if known is None:
            known, _ = account(exported.proto, exported.path.parent, module)
        small = exported.size <= WEIGHT_BYTES
        old = onnx.load(str(exported.path), load_external_data=small)
        new = onnx.load(str(fresh.path), load_external_data=small)
        graph = *_operators(old, new, chain.subject.workspace), *_opset(old, new)
        changes = _weights(old, new, module, known) if small else Changes()
        return replace(changes, graph=graph)
    except Exception as error:
        told = f"the two could not be compared: {first_line(error)}"
        return Changes(graph=(told,)) if fresh else Changes()


def _against_module(file: Path, module: torch.nn.Module) -> Iterator[str]:
    """Yield which weights of ``file``, joined by name, are not the module's."""
    stored = _tensors(onnx.load(str(file)))
    state = {name: tensor for name, tensor in module.state_dict().items() if name in stored}
    own = {name: tensor.detach().to(torch.float64).numpy() for name, tensor in state.items()}
    changed = [
        name
        for name, array in own.items()
        if array.shape == stored[name].shape and not _close(stored[name].astype(np.float64), array)
    ]
    if changed:
        yield f"{len(changed)} of {len(own)} weights have other values, the first is {changed[0]}"


def _weights(
    old: onnx.ModelProto, new: onnx.ModelProto, module: torch.nn.Module, known: Weights
) -> Changes:
    """Return which weights differ from those of a fresh export, and from the module's.

    A fresh export may have folded a norm into what the file keeps as the module has it. Names may be
    lost, or new: then it is what the accounting says. Those that exporters count up say something
    where both graphs read them at the same places.
    """
    olds, news, own = _tensors(old), _tensors(new), weights_of(module)
    places = _places(old), _places(new)
    shared = [
        n
        for n in olds
        if n in news and olds[n].shape == news[n].shape
        if n in own or places[0].get(n) == places[1].get(n)
    ]
    changed: list[str] = []
    told: list[str] = []
    moved: tuple[str, ...] = ()
    if len(shared) >= max(1, min(len(olds), len(news)) // 2):
        changed = [
            n
            for n in shared
            if not _close(olds[n], news[n]) and not (n in own and _close(olds[n], own[n]))
        ]
        exchanged = _exchanged(changed, olds, news)
        others = [n for n in changed if n not in exchanged and not reordered(olds[n], news[n])]
        if changed:
            first = next(iter(others or changed))
            what = told_of_weight(olds[first], news[first], first, module)
            if first in exchanged and first not in own:
                by = {_reader(n, old) for n in exchanged} - {""}
                where = f"of {listed(sorted(by), SHOWN)} " if by else ""
                what = f"{len(exchanged)} constants {where}are in each other's places in the file"
                changed = [first, *(n for n in changed if n not in exchanged)]
            rest = f", and {len(changed) - 1} of {len(shared) - 1} others" if changed[1:] else ""
            if others:
                told.append(f"{what}{rest}")
            else:
                moved = (f"{what}{rest}",)
        reshaped = [n for n in olds if n in news and olds[n].shape != news[n].shape]
        if reshaped:
            first = reshaped[0]
            told.append(
                f"{len(reshaped)} weights have another shape: {first} is {list(olds[first].shape)} "
                f"in the file and {list(news[first].shape)} now"
            )
    if not changed:
        # A node in training mode does not read the statistics that it moves.
        still = {n for node in old.graph.node if trains(node) for n in node.input[3:]}
        still |= {n for n in shared if _close(olds[n], news[n])}
        told += _unknown(old, known, still)
    return Changes(tuple(told), moved=moved)


def _exchanged(
    changed: Sequence[str], olds: Mapping[str, Array], news: Mapping[str, Array]
) -> list[str]:
    """Return the weights of a file in whose places a fresh export has others of them, each once."""
    free, found = list(changed), []
    for name in changed:
        fitting = (n for n in free if n != name and olds[name].shape == news[n].shape)
        of = next((n for n in fitting if _close(olds[name], news[n])), None)
        if of is not None:
            free.remove(of)
            found.append(name)
    return found


def _reader(name: str, model: onnx.ModelProto) -> str:
    """Return the module whose operator reads a value, empty where the file does not say."""
    reading = (node for node in model.graph.node if name in node.input)
    return next((module for node in reading if (module := module_of_props(node))), "")


def _unknown(old: onnx.ModelProto, known: Weights, right: Collection[str]) -> list[str]:
    """Say which weights are none of the module's, but for the small constants of ``_constants``."""
    sizes = {name: math.prod(tensor.dims) for name, tensor in constants(old).items()}
    unknown = [
        u
        for u in known.unknown
        if u.name not in right
        and (u.parameter is not None or sizes.get(u.name, SMALLEST_WEIGHT) >= SMALLEST_WEIGHT)
    ]
    if not unknown:
        return []
    first = unknown[0]
    named = first.parameter in (None, first.name)
    name = first.name if named else f"{first.name}, where {first.parameter} belongs"
    return [
        f"{len(unknown)} of the file's {known.total} weights are none of the module's, the first is "
        f"{name}"
    ]


def _places(model: onnx.ModelProto) -> dict[str, list[tuple[str, int]]]:
    """Return which operators read each value, and as which of their inputs."""
    places: dict[str, list[tuple[str, int]]] = {}
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            places.setdefault(name, []).append((node.op_type, place))
    return places


def _operators(old: onnx.ModelProto, new: onnx.ModelProto, root: Path) -> Iterator[str]:
    a, b = map(_computing, (old, new))
    more, less = (
        Counter(n.op_type for n in x) - Counter(n.op_type for n in y) for x, y in ((a, b), (b, a))
    )
    if more or less:
        parts = [
            *([f"{_counted(more)} that a fresh export has not"] if more else []),
            *([f"lacks {_counted(less)}"] if less else []),
        ]
        what = f"has {' and '.join(parts)}" if more else parts[0]
        yield f"the graph is another one: it {what}{_parting(a, b, root)}"
        return
    if [n.op_type for n in a] != [n.op_type for n in b]:
        yield "the graph has the same operators in another order"
        return
    opsets = opset_of(old), opset_of(new)
    for one, other in zip(a, b, strict=True):
        mine, theirs = _attributes(one, opsets[0]), _attributes(other, opsets[1])
        for name in sorted(mine.keys() & theirs.keys()):
            if mine[name] != theirs[name]:
                yield (
                    f"{one.op_type} {one.name!r} has {name}={mine[name]} where a fresh export has "
                    f"{theirs[name]}"
                )
                return
    yield from _constants(old, new)


def _parting(old: Sequence[onnx.NodeProto], new: Sequence[onnx.NodeProto], root: Path) -> str:
    """Return the line that a fresh export has next where the graphs part, if it says one."""
    pairs = zip_longest(old, new)
    node = next((b for a, b in pairs if b and (a is None or a.op_type != b.op_type)), None)
    line = None if node is None else of_node(node, root)
    return f"; they part at {shown(line, '')}" if line is not None else ""


def _constants(old: onnx.ModelProto, new: onnx.ModelProto) -> Iterator[str]:
    """Yield the first small constant that differs, of graphs with the same operators.

    They are joined by who reads them: names that exporters count up say nothing.
    """
    a, b = ({t.name: numpy_helper.to_array(t) for t in m.graph.initializer} for m in (old, new))
    for one, other in zip(*map(_computing, (old, new)), strict=True):
        for mine, theirs in zip(one.input, other.input, strict=False):
            if mine not in a or theirs not in b:
                continue
            own, right = a[mine], b[theirs]
            small = max(own.size, right.size) < SMALLEST_WEIGHT
            if small and not (own.shape == right.shape and _close(own, right)):
                yield (
                    f"the constant {mine} of {one.op_type} is {_digits(own)} where a fresh export has "
                    f"{_digits(right)}"
                )
                return


def _computing(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type != "Constant"]


def _opset(old: onnx.ModelProto, new: onnx.ModelProto) -> Iterator[str]:
    a, b = opset_of(old), opset_of(new)
    if a != b:
        yield f"opset {a} where a fresh export has {b}"


def _tensors(model: onnx.ModelProto) -> dict[str, Array]:
    tensors: dict[str, Array] = {}
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.size >= SMALLEST_WEIGHT:
            tensors[tensor.name] = array
    return tensors


def _close(a: Array, b: Array) -> bool:
    if a.dtype.kind not in "f":
        return bool(np.array_equal(a, b))
    # Folded batch norms and the like are computed anew by each exporter.
    return bool(np.allclose(a, b, rtol=1e-5, atol=1e-7, equal_nan=True))


def _attributes(node: onnx.NodeProto, opset: int) -> dict[str, str]:
    return {
        name: _digits(value)[:60]
        for name, value in attributes_of(node, opset).items()
        if not isinstance(value, onnx.TensorProto)
    }


def _digits(value: object) -> str:
    """Return numbers with the digits that they need: those of an attribute are float32 in the file."""
    if isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim):
        return f"[{', '.join(map(_digits, value))}]"
    return str(np.float32(value) if type(value) is float else value)


def _counted(kinds: Counter[str]) -> str:
    return listed((f"{count} {name}" for name, count in sorted(kinds.items())), SHOWN, "kinds")
