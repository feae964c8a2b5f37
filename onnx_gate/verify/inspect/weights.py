"""What each weight of a file is: a parameter or buffer of the module, or a known function of some.

The idea: exporters copy weights, transpose, cast, cut and reorder them, and fold norms into them;
none of that but the last makes a new row. So a weight is held against the module's by its name first,
bit for bit, and then row by row along either axis: hashes of its rows are looked up among those of
the module's tensors. What a norm was folded into is computed again.

The invariant: what is called the module's has the module's bits, or is what folding gives but for a
few roundings. A weight is *wrong* only where it is certainly meant to be a certain parameter (it has
the name, or a stock layer reads it) and is not. What else nothing explains is counted and named, and
the cases have to judge it.

The cost is one pass over the weights that are what their names say, and a few over the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto
from torch import nn

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding, Severity
from onnx_gate.graph.constants import FLOATS, array_of
from onnx_gate.graph.walk import all_nodes, constants
from onnx_gate.report.model import UnknownWeight, Weights
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.inspect.exact import ExactWeights
from onnx_gate.verify.inspect.instead import Instead
from onnx_gate.verify.inspect.known_weights import KnownWeights
from onnx_gate.verify.inspect.left_over import cut_of, has_all, parts_alone, replaced
from onnx_gate.verify.inspect.likely import called, nearest, readers
from onnx_gate.verify.inspect.made import MadeOfNoInput
from onnx_gate.verify.inspect.permuted import moved_together
from onnx_gate.verify.inspect.short_weights import short_weights
from onnx_gate.verify.inspect.wrong_weight import WrongWeight, once_each

# Of fewer bits are codes and truths, which tables have; what is quantised is widened elsewhere.
_WHOLE = (TensorProto.INT64, TensorProto.INT32)
_SHORT = (
    TensorProto.BOOL,
    TensorProto.INT8,
    TensorProto.UINT8,
    TensorProto.INT16,
    TensorProto.UINT16,
)
_LOOK_UP = ("Gather", "ArrayFeatureExtractor")
# A finding names so many weights; they are all in its data.
_SHOWN = 3


@dataclass(frozen=True)
class Accounted:
    """What weights of a file are. ``parameters`` are the names of those that one tensor alone explains.

    By the names of the file's; those that are wrong by what they are called after or stand in place of.
    ``held`` are the parameters whose values the file has, wherever they stand, or has others of by name.
    """

    weights: Weights
    findings: tuple[Finding, ...]
    parameters: Mapping[str, str]
    held: frozenset[str]


def account(
    proto: ModelProto,
    folder: Path,
    module: nn.Module,
    written: Collection[str] = (),
    exact: ExactWeights | None = None,
    instead: Instead | None = None,
    made: MadeOfNoInput | None = None,
) -> tuple[Weights, list[Finding]]:
    """Return what the weights of a file in ``folder`` are, and a finding of those that are wrong.

    ``written`` are the names of those that ``forward`` writes, which a file need not have. Without
    ``exact``, weights in fewer bits are left to the tolerance. ``instead`` tries the module's in the
    place of those that are wrong: what others make up for is none of them. ``made`` are the values that
    ``forward`` computes of no input.
    """
    known = KnownWeights(module, written=written)
    found = identify(proto, folder, module, known, exact, instead, made)
    return found.weights, list(found.findings)


def identify(
    proto: ModelProto,
    folder: Path,
    module: nn.Module,
    known: KnownWeights,
    exact: ExactWeights | None = None,
    instead: Instead | None = None,
    made: MadeOfNoInput | None = None,
    read: Collection[str] = (),
) -> Accounted:
    """Find what the weights of a file in ``folder`` are.

    Whole numbers are weights where they are the module's by name, a table or a list; others are sizes. Of
    a vector that was cut all parts have to be there.
    Those that are ``read`` where the module's own lie are the module's, and not looked at. Single
    numbers are left out, and so are the scales of a ``Resize``, and one number throughout in a form that
    no parameter has, or 0 or 1 under no parameter's name: they are attributes rather than weights.
    """
    scales = {n for node in all_nodes(proto) if node.op_type == "Resize" for n in node.input[1:]}
    counts = {"same": 0, "rearranged": 0, "folded": 0, "made": 0}
    unknown: list[UnknownWeight] = []
    wrong: list[tuple[WrongWeight, Severity]] = []
    off: list[tuple[WrongWeight, Severity]] = []
    whole: dict[str, str] = {}
    scopes = readers(proto, module)
    stock = list(_stock(scopes, known))
    read_by = {(name, each) for name, _, mine in stock for each in mine}
    named: dict[str, str] = {}
    tensors = constants(proto)
    looked_up = set(_looked_up(proto, tensors))
    cuts: dict[str, dict[str, Array]] = {}
    tables: dict[str, list[str]] = {}
    unexplained: list[str] = []
    joined = False
    short = list(short_weights(proto, tensors, folder, known))
    for each in short:
        counts["rearranged"] += each.explained
        if each.parameter is not None:
            whole[each.names[0]] = each.parameter
        if not each.explained:
            unknown.append(UnknownWeight(name=each.names[0], parameter=each.parameter))
        if each.wrong is not None:
            scope = each.wrong.parameter.rpartition(".")[0]
            as_is = each.parameter in known.stock(scope)
            wrong.append((each.wrong, "error" if as_is else "warning"))
    widened = {name for each in short for name in each.names}
    for name, tensor in tensors.items():
        kinds = (*FLOATS, *_WHOLE, *(_SHORT if name in looked_up else ()))
        if tensor.data_type not in kinds or np.prod(tensor.dims) < 2 or name in scales | widened:
            continue
        if name in read:
            counts["same"] += 1
            continue
        own = known.named(name)
        if own is None and tensor.data_type not in FLOATS and name not in looked_up:
            continue  # sizes and axes
        try:
            array = array_of(tensor, folder)
        except ValueError:
            continue  # said by the checker
        how, parameter = known.explain(array, own, name in looked_up)
        cut = cut_of(array, known) if how in (None, "rearranged") and parameter is None else None
        if cut is not None and not (made is not None and made.has(array)):
            cuts.setdefault(cut, {})[name] = array
            continue
        if how is not None:
            counts[how] += 1
            joined |= parameter is None and array.size > max(array.shape)
            if parameter is not None:
                whole[name] = parameter
                # Rows that forward takes of no input are all that it uses there.
                if known.is_part(array, parameter) and not (made is not None and made.has(array)):
                    tables.setdefault(parameter, []).append(name)
                if own is not None and own != parameter and known.differ(own, parameter):
                    wrong.append((known.wrong(name, array, own, instead=parameter), "error"))
            continue
        if own is not None:
            named[name] = own
        elif made is not None and made.has(array):
            counts["made"] += 1
            continue
        mostly = known.mostly(array) if own is None else None
        found = _off(known, name, array, own, exact, mostly, read_by)
        if found is not None:
            equal = known.equal(found[0].parameter) if own is None else 0
            off.append((replace(found[0], equal=equal), found[1]))
        elif own is None:
            unexplained.append(name)
        # What an exporter begins a sum with, and the scale of a norm that has none.
        formless = not known.has_form(array, own) or (own is None and array.flat[0] in (0, 1))
        if formless and (array == array.flat[0]).all():
            continue
        likely = mostly[0] if mostly is not None else own
        unknown.append(nearest(known, name, array, likely, scopes.get(name, ())))
    for parameter, parts in cuts.items():
        if parameter in whole.values() or has_all(parts.values(), known.value(parameter)):
            counts["rearranged"] += len(parts)
        else:  # what is used of it nowhere may be what counts
            unknown += (UnknownWeight(name=name, parameter=parameter) for name in parts)
    wrong += ((each, "error") for each in _misplaced(stock, known, whole))

    def read_again(name: str) -> Array:
        return array_of(tensors[name], folder)

    held = frozenset((*named.values(), *whole.values()))
    left = replaced(read_by, known, unexplained, held, read_again)
    off += ((one, "warning") for one in left if exact is None or not exact.alters(one.parameter))
    # What is whole beside them, or among the rows of several, is missing nowhere.
    complete = {own for name, own in whole.items() if name not in tables.get(own, ())}
    alone = {} if joined else {own: n for own, n in tables.items() if own not in complete}
    for one in parts_alone(alone, known, read_again):
        counts["rearranged"] -= 1
        unknown.append(UnknownWeight(name=one.name, parameter=one.parameter))
        if (one.name, one.parameter) in read_by:
            wrong.append((one, "warning"))

    moved = moved_together([each for each, _ in (*wrong, *off)], known, read_again)
    wrong = [each for each in wrong if each[0].parameter not in moved]
    together = {each.name: each.parameter for each, _ in off if each.parameter in moved}
    whole |= together
    counts["rearranged"] += sum(each.name in together for each in unknown)
    unknown = [each for each in unknown if each.name not in together]
    wrong += (
        each
        for each in off
        if each[0].name not in together
        and not _made_up_for(known, each[0], read_again(each[0].name), instead)
    )
    right = {name for name, scope, _ in stock if whole.get(name, "").startswith(f"{scope}.")}
    places = {
        w.name: w.parameter for w, _ in wrong if w.instead is not None and w.name not in right
    }
    total = sum(counts.values()) + len(unknown)
    weights = Weights(total=total, unknown=tuple(unknown), **counts)
    named_by_readers = (
        (each.called(*called(known, each.parameter, scopes.get(each.name, ()))), severity)
        for each, severity in wrong
    )
    told = once_each(named_by_readers, known.names)
    findings = *_findings(told, "error"), *_findings(told, "warning")
    held = frozenset((*named.values(), *whole.values()))
    return Accounted(weights, findings, {**named, **whole, **places}, held)


def _looked_up(proto: ModelProto, constant: Collection[str]) -> Iterator[str]:
    """Yield what is read at places that inputs say, and what is held against values: tables, lists.

    A list of sizes that is held against another one, as an export of ``expand`` does, is none.
    """
    fixed = set(constant)
    for node in all_nodes(proto):
        if node.op_type == "Equal" and not fixed.issuperset(node.input):
            yield from node.input
        elif node.op_type.startswith(_LOOK_UP) and node.input[1] not in constant:
            yield node.input[0]
        if node.input and fixed.issuperset(node.input):
            fixed.update(node.output)


def _off(
    known: KnownWeights,
    name: str,
    array: Array,
    own: str | None,
    exact: ExactWeights | None,
    mostly: tuple[str, Array] | None,
    read_by: Collection[tuple[str, str]],
) -> tuple[WrongWeight, Severity] | None:
    """Return in what a weight that nothing explains is wrong, and how certainly it is.

    Whatever it is called, it is where the layer that it is ``read_by`` uses its parameters as they are, and
    where it is but for few of its rows or columns: who merges weights changes most of them.
    """
    as_is = mostly is not None and any((name, n) in read_by for n in known.names(mostly[0]))
    meant = known.meant(array, own) if exact is not None else None
    found, few = None, False
    if mostly is not None:
        parameter, turned = mostly
        found = known.wrong(name, turned, parameter)
        # A mask is in most rows and columns, and forward's own.
        few = 2 * len(found.rows) < found.of or known.in_few_columns(turned, parameter)
        if few and exact is not None and exact.vouches(parameter):
            return found, "error"
    if exact is not None and meant is not None and exact.vouches(meant.parameter):
        return known.off(name, array, meant), "error" if as_is else exact.severity(own)
    if own is not None and known.comparable(array, own):
        return known.wrong(name, array, own), "error"
    if found is None or (exact is not None and exact.alters(found.parameter)):
        return None
    if as_is:
        return found, "error"
    return (found, "warning") if few or found.exchanged else None


def _made_up_for(
    known: KnownWeights, wrong: WrongWeight, array: Array, instead: Instead | None
) -> bool:
    own = known.value(wrong.parameter) if instead is not None else None
    if instead is None or own is None:
        return False
    # A square one may lie in the file as it is or transposed.
    fitting = [each for each in (own, own.T) if each.shape == array.shape]
    tried = (instead.parts(wrong.name, each.astype(array.dtype)) for each in fitting)
    return bool(fitting) and all(tried)


_WORDS: Mapping[Severity, str] = {
    "error": "weights of the file are not the module's, whatever the inputs reach",
    "warning": "nothing explains why weights of the file are not quite the module's, unless its code "
    "changes them",
}


def _findings(
    wrong: Sequence[tuple[WrongWeight, Severity]], severity: Severity
) -> Iterator[Finding]:
    each = [one for one, how in wrong if how == severity]
    if not each:
        return
    listed = "; ".join(one.sentence() for one in each[:_SHOWN])
    more = f"; and {len(each) - _SHOWN} more" if len(each) > _SHOWN else ""
    yield codes.OG417.finding(
        f"{_WORDS[severity]}: {listed}{more}",
        severity=severity,
        data={"parameters": [one.parameter for one in each]},
    )


def _stock(
    read_by: Mapping[str, Sequence[str]], known: KnownWeights
) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield what nodes of stock layers read, the layer, and its parameters, used as they are."""
    for name, scopes in read_by.items():
        yield from ((name, scope, mine) for scope in scopes if (mine := known.stock(scope)))


def _misplaced(
    stock: Iterable[tuple[str, str, Sequence[str]]], known: KnownWeights, whole: Mapping[str, str]
) -> Iterator[WrongWeight]:
    """Yield parameters of stock layers in whose place the file reads another's, of equal shape."""
    for name, scope, mine in stock:
        read = whole.get(name)
        if read is None or read.startswith(f"{scope}."):
            continue
        alike = [own for own in mine if known.alike(own, read)]
        if alike and all(known.differ(own, read) for own in alike):
            yield WrongWeight(name, alike[0], known.distance(alike[0], read), (), 0, instead=read)
