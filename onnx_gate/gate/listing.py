"""What a run would try, without torch and without the models' code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnx_gate.errors import GateError
from onnx_gate.manifest import EdgesSuite, FilesSuite, GeneratorSuite, ModelSpec, RandomSuite, Suite
from onnx_gate.text import counted, printed
from onnx_gate.verify.inputs.cases import Case, cases, selected
from onnx_gate.verify.inputs.example import example_sizes
from onnx_gate.verify.inputs.sizes import Sizes, sizes_label


@dataclass(frozen=True)
class SuitePlan:
    """The cases of one suite: their ids, the sizes at which they are, and the kinds of edges.

    ``unknown`` says why there may be others, ``advice`` that they fail no model.
    """

    name: str
    ids: tuple[str, ...] = ()
    sizes: tuple[Sizes, ...] = ()
    kinds: tuple[str, ...] = ()
    unknown: str = ""
    advice: bool = False


def listing(
    models: Sequence[ModelSpec],
    workspace: Path,
    patterns: tuple[str, ...] = (),
    *,
    every_case: bool = False,
) -> Iterator[str]:
    """Yield the lines of ``onnx-gate list``: the runtimes, sizes and suites of each model.

    With ``every_case`` they are ``MODEL CASE``, one for each case whose id is known.
    """
    for spec in models:
        plans = suite_plans(spec, workspace, patterns)
        if every_case:
            yield from (printed(f"{spec.name} {each}") for plan in plans for each in plan.ids)
        else:
            yield from _lines(spec, plans)


def suite_plans(
    spec: ModelSpec, workspace: Path, patterns: tuple[str, ...] = ()
) -> tuple[SuitePlan, ...]:
    """Return what each suite of a model tries, of that what ``patterns`` select.

    The example of the export is taken to have the sizes that are tried first.
    """
    if spec.reference is not None and not spec.inputs:
        return (SuitePlan("cases", unknown="for the inputs of the file, which is not read here"),)
    example = next(iter(example_sizes(spec)))
    plans: list[SuitePlan] = []
    for advice in (False, True):
        every = cases(spec, example, workspace, patterns, advice=advice)
        drawn: dict[str, list[Case]] = {}
        for case in every.drawn():
            drawn.setdefault(case.suite, []).append(case)
        for name, suite in every.suites.items():
            if isinstance(suite, RandomSuite | EdgesSuite):
                plans.append(_drawn(name, drawn.get(name, ()), advice))
            else:
                plans.append(_other(name, suite, workspace, patterns))
    return tuple(plan for plan in plans if plan.ids or plan.unknown)


def _drawn(name: str, tried: Sequence[Case], advice: bool) -> SuitePlan:
    sizes = {sizes_label(case.sizes): case.sizes for case in tried}
    kinds = tuple(dict.fromkeys(case.edge for case in tried if case.edge))
    ids = tuple(case.id for case in tried)
    return SuitePlan(name, ids, tuple(sizes.values()), kinds, advice=advice)


def _other(name: str, suite: Suite, workspace: Path, patterns: tuple[str, ...]) -> SuitePlan:
    if isinstance(suite, FilesSuite):
        from onnx_gate.verify.inputs.suites.files import case_name, find_files

        try:
            files = find_files(suite.files, workspace, f"suites.{name}")
        except GateError as error:
            return SuitePlan(name, unknown=error.message)
        ids = (f"{name}/{case_name(path, workspace)}" for path in files)
        return SuitePlan(name, tuple(each for each in ids if selected(each, patterns)))
    if isinstance(suite, GeneratorSuite):
        return SuitePlan(name, unknown=f"what {suite.generator} yields")
    return SuitePlan(name, unknown="what a package yields")


def _lines(spec: ModelSpec, plans: Sequence[SuitePlan]) -> Iterator[str]:
    rows = [("runtimes", ", ".join(each.label for each in spec.runtimes))]
    for name, sizes in spec.dims.items():
        tried = {each[name] for plan in plans if not plan.advice for each in plan.sizes}
        rows.append((name, ", ".join(map(str, sorted(tried | set(sizes))))))
    if spec.steps is not None:
        of = "each case but edges" if spec.suites else "the first cases"
        rows.append(("steps", f"{spec.steps.count} from {of}"))
    rows += [(plan.name, _cases(plan)) for plan in plans]
    width = max(len(name) for name, _ in rows)
    yield printed(spec.name)
    yield from (f"  {printed(name):<{width}}  {printed(shown)}" for name, shown in rows)


def _cases(plan: SuitePlan) -> str:
    if plan.unknown:
        return plan.unknown
    shown = counted(len(plan.ids), "case")
    if plan.kinds:
        shown += f": {', '.join(plan.kinds)}"
    return f"{shown} (advice)" if plan.advice else shown
