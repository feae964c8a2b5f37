"""Whether a size is baked into a graph: the same values at two sizes.

That every case diverges at other sizes than the example's may be for what is in them. So values that
agree at the example's sizes are repeated, or cut, to another size, at which they have to diverge (also
where they are made as much smaller, so that what is added up is no larger), and values that diverge
there are brought to the example's sizes, at which they have to agree. What is repeated is equal, so
equal values have to agree at the example's sizes, too: duplicates that a scatter loses are no sizes.

A file that the gate has not exported may be of another module: a window or a clip that is another one
shows from some size on, too. There a size is baked in only where no other than the example's agrees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import InputSpec, ModelSpec
from onnx_gate.report.model import Check
from onnx_gate.runtimes.base import Array
from onnx_gate.text import listed
from onnx_gate.verify.checks import Checker
from onnx_gate.verify.inputs.cases import Case
from onnx_gate.verify.inputs.sizes import Sizes, at_sizes, concrete, sizes_label
from onnx_gate.verify.judge.judgement import is_floating

# So many sizes are named of those at which a graph diverges.
_SHOWN = 3


def baked_size(
    checker: Checker, checks: Sequence[Check], findings: Sequence[Finding]
) -> Iterator[Finding]:
    """Yield a finding where the graph agrees at the example's sizes and only because of these.

    At the line whose condition torch.export took for granted, where ``findings`` has one. Of
    ``checks``, those that are waived are none that diverge.
    """
    spec, example = checker.setting.spec, checker.setting.example
    if not example or any(codes.OG102.among(findings)):
        return
    agreeing, elsewhere = suspected(checks, example, alone=not spec.exported_here)
    if not agreeing or not elsewhere or not _follows_sizes(checker, agreeing, elsewhere):
        return
    cause = next((f for f in codes.OG116.among(findings) if f.file), None)
    where = f" by {cause.file}:{cause.line}" if cause is not None else ""
    labels = dict.fromkeys(sizes_label(_at(check, example)) for check in elsewhere)
    others = listed(labels, _SHOWN, "sizes")
    same = _at(elsewhere[0], example)
    # Whatever else varies, the cases that agree have this size.
    apart = {check.case for check in checks if check.verdict != "pass"}
    right = [check for check in checks if check.case not in apart and not check.advice]
    dims = {
        name: size
        for name, size in example.items()
        if all(each.sizes[name] == size for each in right)
        and any(each.sizes[name] != size for each in elsewhere)
    }
    yield codes.OG102.finding(
        f"the graph agrees with {spec.against} at the sizes it was exported with "
        f"({sizes_label(example)}) and with the same values at {sizes_label(same)} it does not, as in "
        f"every case at {others}: a size is baked into it{where}",
        at=cause,
        data={"dims": dims}
        | ({"code": cause.data["code"]} if cause is not None and "code" in cause.data else {}),
    )


def suspected(
    checks: Sequence[Check], example: Sizes, *, alone: bool = False
) -> tuple[list[Check], list[Check]]:
    """Return checks that agree at the example's sizes, and a diverging one of each size without any.

    Ordinary cases first; none where some case diverges at the example's sizes, or, if these have to
    be ``alone``, where another size agrees.
    """
    counting = [
        check
        for check in checks
        if not check.advice and check.verdict != "refused" and check.sizes.keys() == example.keys()
    ]
    counting.sort(key=lambda check: bool(check.edge))
    at: dict[str, list[Check]] = {}
    for check in counting:
        at.setdefault(sizes_label(_at(check, example)), []).append(check)
    here = at.pop(sizes_label(example), [])
    if any(check.verdict != "pass" for check in here):
        return [], []
    if alone and any(check.verdict == "pass" for own in at.values() for check in own):
        return [], []
    elsewhere = [own[0] for own in at.values() if all(c.verdict == "diverged" for c in own)]
    return here, elsewhere


def _at(check: Check, example: Sizes) -> Sizes:
    return {name: check.sizes[name] for name in example}


def _follows_sizes(checker: Checker, agreeing: Sequence[Check], apart: Sequence[Check]) -> bool:
    """Return whether the same values agree at the example's sizes and diverge at the others'."""
    one, other = checker.again(agreeing[0]), checker.again(apart[0])
    if one is None or other is None:
        return False
    there, here = _at(apart[0], checker.setting.example), checker.setting.example
    alike = _alike(one[0], checker.setting.spec, there)
    if any(check.verdict == "diverged" for check in checker.try_again(alike)):
        return False
    larger = resized(one[0], checker.setting.spec, there)
    for case in (larger, _no_larger(larger, one[0])):
        if not any(check.verdict == "diverged" for check in checker.try_again(case)):
            return False
    moved = checker.try_again(resized(other[0], checker.setting.spec, here))
    return bool(moved) and all(check.verdict == "pass" for check in moved)


def resized(case: Case, spec: ModelSpec, sizes: Sizes) -> Case:
    """Return a case of the same values at other sizes: repeated where these are larger, else cut."""
    arrays = {
        name: _filled(array, spec.inputs[name], sizes) if name in spec.inputs else array
        for name, array in case.arrays.items()
    }
    label = f"{case.id} at {sizes_label(sizes)}"
    return replace(
        case, id=label, kind="resized", arrays=arrays, sizes=sizes, expected={}, advice=True
    )


def _alike(case: Case, spec: ModelSpec, other: Sizes) -> Case:
    """Return a case with the same sizes whose values are as alike as repeated ones are.

    What two equal indices do is no matter of how many there are.
    """
    arrays = dict(case.arrays)
    for name, array in arrays.items():
        sizes = concrete(spec.inputs[name], other) if name in spec.inputs else array.shape
        for axis, size in enumerate(sizes):
            if array.shape[axis] != size and array.shape[axis]:
                array = array.take(np.zeros(array.shape[axis], np.int64), axis)
        arrays[name] = array
    label = f"{case.id}, all alike"
    return replace(case, id=label, kind="resized", arrays=arrays, expected={}, advice=True)


def _no_larger(case: Case, before: Case) -> Case:
    """Return a case whose numbers come to what they did before they were repeated."""
    arrays = {
        name: array * np.asarray(before.arrays[name].size / array.size, array.dtype)
        if is_floating(array.dtype) and array.size > before.arrays[name].size
        else array
        for name, array in case.arrays.items()
    }
    return replace(case, id=f"{case.id}, scaled", arrays=arrays)


def _filled(array: Array, declared: InputSpec, sizes: Sizes) -> Array:
    for axis, size in enumerate(concrete(declared, sizes)):
        if array.shape[axis]:
            array = array.take(np.arange(size) % array.shape[axis], axis)
    known = at_sizes(declared, sizes).range
    if known is not None and not is_floating(array.dtype):
        array = np.clip(array, *known).astype(array.dtype)
    return array
