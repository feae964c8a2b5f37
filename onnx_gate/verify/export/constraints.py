"""What torch.export's complaints about dynamic dimensions come down to, for the manifest."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.fx import GraphModule, Node

from onnx_gate.manifest import InputSpec, ModelSpec
from onnx_gate.manifest.dimensions import is_computed, names_of, size_of
from onnx_gate.runtimes.binding import identifier
from onnx_gate.verify.export.assumptions import specialised
from onnx_gate.verify.export.specialising import Stacks, size_name
from onnx_gate.verify.source_lines import Line, at, of_frames, of_stack, shown

_STATIC = re.compile(
    r"tracing inferred a static shape of (\d+) for dimension inputs((?:\[[^\]]+\])+)\.shape\[(\d+)\]"
)
_COMPLAINT = re.compile(r"Constraints violated \(.*?\)!|conflicts between user-specified ranges")
_CONSTANT = re.compile(r"You marked (\S+) as dynamic but .*? constant \((\d+)\)")
_FIX = re.compile(r"^  (\w+) = (.+)$", re.M)
_RECURRENT = re.compile(r"(?:^|[.:])(rnn_tanh|rnn_relu|lstm|gru)\b")
_SHAPE_OF = re.compile(r"^L((?:\[[^\]]+\])+)\.size\(\)\[(\d+)\]$")
# What orders the operands of torch.einsum, by their sizes as numbers.
_OPT_EINSUM = re.compile(r"(^|/)opt_einsum/")
# A statement that is a loop, or a line with a comprehension. One through the sizes themselves makes numbers
# of them, and goes on as often as there are axes.
_LOOP = re.compile(r"^while\b|(^|[(\[{].*\b)for\b.*\bin\b(?!\s+[\w.]+\.(shape|size\(\))\W*$)")
# Functions of Python's that take a float, as which a size is a number.
_MATH = re.compile(r"\bmath\.\w+\(")
# Where an input is among the arguments: ['x'], ['args'][0], ['past'][0]['key'].
_STEP = re.compile(r"\['?([^'\]]+)'?\]")


@dataclass(frozen=True)
class FailedTrace:
    """What is left of a trace that failed.

    ``graphs`` are what had been traced, ``stacks`` those at which sizes were decided on, and
    ``root`` the manifest's folder.
    """

    graphs: list[GraphModule]
    stacks: Stacks
    root: Path | None

    def cause(self, path: str, axis: int) -> tuple[str, Line | None]:
        """Return what ties an input's axis to one size, an operator or nothing, and its line.

        ``path`` is where torch says that the input is: ``['x']``, ``['past'][0]``.
        """
        name, fixed = "_".join(_STEP.findall(path)), self.fixed_at(path, axis)
        # What torch keeps of a trace is private to it: without it the sentence is shorter.
        with contextlib.suppress(Exception):
            for graph in self.graphs:
                cause = specialised(graph, name, axis, self.stacks, self.root)
                # The first operator without the size may come after what made a number of it.
                if cause is not None:
                    return cause[0], fixed if fixed is not None else cause[1]
        return "", fixed

    def fixed_at(self, path: str, axis: int) -> Line | None:
        """Return the line at which the size of an input's axis became a number."""
        return of_frames(self.stacks.sizes.get(size_name(path, axis), ()), self.root)


@dataclass(frozen=True)
class Tied:
    """What a dynamic dimension is tied to, what to do about it, and the user's line that ties it."""

    message: str
    remedy: str
    line: Line | None


def constraint(text: str, spec: ModelSpec, trace: FailedTrace, source: Line | None) -> Tied | None:
    """Return what an error says of dynamic dimensions, ``None`` where it says nothing of them.

    ``text`` is the whole message, and ``source`` the line of the user's in its traceback.
    """
    static = _STATIC.search(text)
    if static is not None:
        return _static(int(static[1]), static[2], int(static[3]), spec, trace)
    if _COMPLAINT.search(text) is None:
        return None
    found = [*_fixed(text, spec, trace, source), *_fixes(text, source)]
    if found:
        first, *others = dict.fromkeys(found)
        further = (f"{each.message}: {each.remedy}" for each in others)
        line = next((each.line for each in found if each.line is not None), source)
        return Tied("\n".join((first.message, *further)), first.remedy, line)
    told = _COMPLAINT.split(text, maxsplit=1)[-1]
    rules = [line.strip(" -") for line in told.splitlines() if line.startswith(("  - ", "- "))]
    rule = (rules[0] if rules else told.splitlines()[0]).rstrip(".")
    return Tied(
        f"the model does not work at every size that is declared{at(source)}: {rule}",
        "list the sizes that it is made for under dims, or write a fixed size in the input's shape",
        source,
    )


def declared_fixed(spec: ModelSpec, name: str, axis: int, size: int) -> str:
    """Return the manifest's entries of an input with one axis fixed: ``x: "float32[3, 8]"``.

    Where the axis has a name, it is fixed in all inputs that have it.
    """
    dim = spec.inputs[name].shape[axis]
    if not isinstance(dim, str) or is_computed(dim):
        shape = [size if i == axis else each for i, each in enumerate(spec.inputs[name].shape)]
        return _entry(name, spec.inputs[name], shape)
    sizes = {dim: size}

    def fixed(each: int | float | str) -> int | float | str:
        known = isinstance(each, str) and bool(names_of(each)) and set(names_of(each)) <= {dim}
        return size_of(each, sizes) if known and isinstance(each, str) else each

    return ", and ".join(
        _entry(key, each, list(map(fixed, each.shape)), list(map(fixed, each.bounds or ())))
        for key, each in spec.inputs.items()
        if any(isinstance(own, str) and dim in names_of(own) for own in each.shape)
    )


def _entry(
    name: str,
    declared: InputSpec,
    shape: Sequence[int | float | str],
    bounds: Sequence[int | float | str] = (),
) -> str:
    written = ", ".join(map(str, shape))
    limits = bounds or declared.bounds or declared.range
    if limits is None:
        return f'{name}: "{declared.dtype}[{written}]"'
    low, high = (each if isinstance(each, str) else f"{each:.17g}" for each in limits)
    return f"{name}: {{dtype: {declared.dtype}, shape: [{written}], range: [{low}, {high}]}}"


def _static(size: int, path: str, axis: int, spec: ModelSpec, trace: FailedTrace) -> Tied:
    name = _own_name(path, spec)
    declared = spec.inputs.get(name)
    if declared is None or axis >= len(declared.shape):
        dim, remedy = f"axis {axis}", ""
    else:
        dim = repr(declared.shape[axis])
        remedy = f", or declare what it is: {declared_fixed(spec, name, axis, size)}"
    operator, source = trace.cause(path, axis)
    head = f"{dim} of input {name!r} (axis {axis}) is declared dynamic, and "
    if _RECURRENT.search(operator):
        return _fixed_length(head, operator, source, size, remedy)
    does = "is unrolled at" if _is_loop(source) else "ties it to"
    return Tied(
        f"{head}{shown(source, 'something in forward')} {does} the example's size {size}",
        f"{_instead(source, 'the size')}{remedy}",
        source,
    )


def _instead(line: Line | None, size: str) -> str:
    """Return what to do at a line that makes a number of ``size``."""
    if line is not None and _OPT_EINSUM.search((line.inner or line).file):
        return (
            "set torch.backends.opt_einsum.enabled = False where the model is built, so that einsum "
            "takes its operands from left to right"
        )
    if line is not None and re.search(r"\bistft\(", line.code):
        # Of one size it becomes a file that is not valid, and torchscript has none of it.
        return (
            "write the transform as a transposed convolution there (conv_transpose1d with cosines and "
            "sines, over the sum of the squared windows)"
        )
    if _is_loop(line):
        return (
            "compute all steps at once there, or write the loop with torch.while_loop, or script the "
            "module that has it (torch.jit.script) and ask for export: {exporter: torchscript}"
        )
    if line is not None and _MATH.search((line.inner or line).code):
        return f"Python's math takes {size} as a number: compute in whole numbers there (//, %, **)"
    return f"take {size} from the input's shape there"


def _is_loop(line: Line | None) -> bool:
    """Return whether a line goes through something as often as its size says, which a trace repeats."""
    return line is not None and _LOOP.search((line.inner or line).code) is not None


def _own_name(path: str, spec: ModelSpec) -> str:
    """Return the manifest's name of an input, which as a parameter can have no dots.

    Of ``*args`` the inputs have no names, and are in the manifest's order.
    """
    steps = _STEP.findall(path)
    names = [name for name in spec.inputs if identifier(name) == identifier(".".join(steps))]
    if not names and steps[0] == "args" and steps[-1].isdigit():
        names = list(spec.inputs)[int(steps[-1]) :]
    return names[0] if names else ".".join(steps)


def _fixed(text: str, spec: ModelSpec, trace: FailedTrace, source: Line | None) -> Iterator[Tied]:
    """Speak of dimensions without a name of their own that became constants."""
    for which, size in _CONSTANT.findall(text):
        match = _SHAPE_OF.match(which)
        if match is None:
            continue
        name, axis = _own_name(match[1], spec), int(match[2])
        declared = spec.inputs.get(name)
        remedy = f"write {size} in its shape"
        if declared is not None and axis < len(declared.shape):
            remedy = f"declare what it is: {declared_fixed(spec, name, axis, int(size))}"
        operator, line = _unrolled(trace, int(size))
        if operator:
            head = f"axis {axis} of input {name!r} is declared dynamic, and "
            yield _fixed_length(head, operator, line, int(size), f", or {remedy}")
            continue
        line = trace.fixed_at(match[1], axis) or source
        yield Tied(
            f"axis {axis} of input {name!r} is tied to the size {size} in forward{at(line)}",
            f"{_instead(line, 'it')}, or {remedy}",
            line,
        )


def _unrolled(trace: FailedTrace, size: int) -> tuple[str, Line | None]:
    """Return a recurrent operator that takes a tensor of a fixed ``size``, and its line.

    Up to torch 2.11 its length is a number already in what was traced, and inputs have no names.
    """
    with contextlib.suppress(Exception):
        for node in (node for graph in trace.graphs for node in graph.graph.nodes):
            operator = str(node.target)
            if _RECURRENT.search(operator) and size in _static_sizes(node):
                return operator, of_stack(node.meta.get("stack_trace") or "", trace.root)
    return "", None


def _static_sizes(node: Node) -> list[int]:
    """Return the sizes of an operator's first input that are numbers."""
    first = node.args[0]
    return (
        [s for s in first.meta["val"].shape if isinstance(s, int)]
        if isinstance(first, Node)
        else []
    )


def recurrent_layer(operator: str) -> str:
    """Return ``nn.LSTM`` of ``aten.lstm.input``, '' of an operator that is of no recurrent layer."""
    match = _RECURRENT.search(operator)
    return "" if match is None else {"lstm": "nn.LSTM", "gru": "nn.GRU"}.get(match[1], "nn.RNN")


def _fixed_length(head: str, operator: str, source: Line | None, size: int, remedy: str) -> Tied:
    kind = recurrent_layer(operator)
    version = torch.__version__
    # The first that is known to export the two with any length.
    newer = "torch 2.13, or " if kind != "nn.RNN" and version < "2.13" else ""
    return Tied(
        f"{head}{kind}{at(source)} is unrolled at the example's size {size}: torch {version} exports it "
        "with a fixed length only",
        f"use {newer}export: {{exporter: torchscript}}{remedy}",
        source,
    )


def _fixes(text: str, source: Line | None) -> Iterator[Tied]:
    """Put what torch.export suggests into the words of a manifest."""
    fixes = text.partition("Suggested fixes:")[2]
    for dim, fix in _FIX.findall(fixes):
        if dim.startswith("_"):
            continue
        multiple = re.fullmatch(r"(\d+)\*_?\w+", fix)
        bounds = dict(re.findall(r"\b(min|max)=(\d+)", fix))
        if fix.isdigit():
            yield Tied(
                f"{dim!r} is tied to the size {fix} in forward{at(source)}",
                f"take it from the input's shape there, or write {fix} in its place in the manifest",
                source,
            )
        elif multiple:
            step = int(multiple[1])
            yield Tied(
                f"{dim!r} must be a multiple of {step}{at(source)}",
                f"list such sizes in the manifest, dims: {{{dim}: [{step}, {2 * step}]}}",
                source,
            )
        elif bounds:
            ends = [
                *([f"at least {bounds['min']}"] if "min" in bounds else []),
                *([f"at most {bounds['max']}"] if "max" in bounds else []),
            ]
            sizes = sorted({int(bounds.get("min", 1)), int(bounds.get("max", 8))})
            yield Tied(
                f"{dim!r} must be {' and '.join(ends)}{at(source)}",
                f"list such sizes in the manifest, dims: {{{dim}: [{', '.join(map(str, sizes))}]}}",
                source,
            )
        elif re.fullmatch(r"\w+", fix):
            yield Tied(
                f"{dim!r} must be the size of {fix!r}{at(source)}",
                "give both the same name in the manifest's shapes",
                source,
            )
        else:
            yield Tied(
                f"{dim!r} must be {fix}{at(source)}: sizes of the manifest vary on their own",
                "write fixed sizes, or one input from which the model makes the other",
                source,
            )
