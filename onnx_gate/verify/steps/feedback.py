"""Which outputs come back as which inputs, and what a step's inputs make of the next step's: pure.

The rules, for the inputs of the next step:

- what is *carried* is the output, as it is;
- what is *fed* with ``argmax(output)`` is the index of the largest entry along the last axis (the
  first of equals), at the last position of the axis before it where the input has none for it
  (``[batch, seq, vocab]`` becomes ``[batch, 1]`` or ``[batch]``), and all of it for an input of one
  axis;
- what is *counted on* (``position_ids + 1``) is itself, and so much more;
- everything else has its rows in turn, each in the place of the next one, where all that the suites
  hold is drawn: what is the same at every call hides when it was written. A batch of one, and what has
  no batch, stays. Where its shape depends on a dimension that has another size now, what is too long
  keeps its last positions, and what is too short is continued: masks (bool, or a range of 0 to 1) by
  ones, all else by the value nearest to zero that its range allows.

Floating-point outputs come back on each side by themselves. Integers and bools, tokens above all,
are decisions: a tie may fall either way, and everything after it is another sentence. So both sides
are always given PyTorch's. Up to the first token that differs that is the same as giving each its
own; from there on it keeps them comparable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.manifest import Feed, InputSpec, ModelSpec
from onnx_gate.manifest.dimensions import is_computed, names_of, size_of
from onnx_gate.manifest.nesting import below
from onnx_gate.manifest.roles import batch_axes
from onnx_gate.manifest.steps import wholes
from onnx_gate.runtimes.base import Array
from onnx_gate.text import did_you_mean, quote
from onnx_gate.verify.inputs.draw import FLOATS
from onnx_gate.verify.inputs.sizes import Sizes

Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Link:
    """An input that is given an output: the one at ``index``, or the ``argmax`` of it."""

    input: str
    output: str
    index: int
    argmax: bool = False


@dataclass(frozen=True)
class Feedback:
    """How ``count`` calls of a model hang together; ``counted`` is what is added to an input.

    With ``turns`` the rows of what nothing is given to take turns.
    """

    count: int
    links: tuple[Link, ...]
    counted: Mapping[str, int]
    inputs: Mapping[str, InputSpec]
    turns: bool = True

    @property
    def own(self) -> tuple[Link, ...]:
        """The links that each side has for itself: what is floating-point, and no decision."""
        return tuple(
            link
            for link in self.links
            if not link.argmax and self.inputs[link.input].dtype in FLOATS
        )

    @property
    def chosen(self) -> tuple[Link, ...]:
        """The links that choose tokens."""
        return tuple(link for link in self.links if link.argmax)

    def after(self, arrays: Arrays, outputs: Sequence[Array], sizes: Sizes) -> tuple[Arrays, Sizes]:
        """Return PyTorch's inputs of the next step, and the sizes of the dimensions in it.

        Raises ``GateError`` (OG412) where an output does not fit the input that it is given to.
        """
        given = {link.input: self._given(link, outputs) for link in self.links}
        sizes = {**sizes, **self._sizes(given)}
        rest = {
            name: self._fitted(name, array + array.dtype.type(self.counted.get(name, 0)), sizes)
            if name in self.counted
            else self._fitted(name, self._turned(name, array), sizes)
            for name, array in arrays.items()
            if name not in given
        }
        return {name: given[name] if name in given else rest[name] for name in arrays}, sizes

    def mine(self, shared: Arrays, outputs: Sequence[Array]) -> Arrays:
        """Return PyTorch's inputs with the outputs that another side carries for itself."""
        return {**shared, **{link.input: outputs[link.index] for link in self.own}}

    def _given(self, link: Link, outputs: Sequence[Array]) -> Array:
        output, spec = outputs[link.index], self.inputs[link.input]
        given: Array | None = output
        if link.argmax:
            tokens = chosen(output, len(spec.shape))
            given = None if tokens is None else tokens.astype(spec.dtype)
        if given is None or given.dtype.name != spec.dtype or not _fits(given, spec):
            raise _misfit(link, output, spec)
        return given

    def _sizes(self, given: Arrays) -> dict[str, int]:
        """Return the sizes that the dimensions have in what came back."""
        sizes: dict[str, int] = {}
        for name, array in given.items():
            for size, dim in zip(array.shape, self.inputs[name].shape, strict=True):
                if not isinstance(dim, str) or is_computed(dim):
                    continue
                if sizes.setdefault(dim, size) != size:
                    raise codes.OG412.error(
                        f"steps: the dimension {dim!r} is {sizes[dim]} in one of the outputs that "
                        f"come back and {size} in {name}; give the two different names"
                    )
        return sizes

    def _turned(self, name: str, array: Array) -> Array:
        """Return an input with its last row first."""
        axis = self._axes.get(name) if self.turns else None
        return array if axis is None else np.roll(array, 1, axis)

    @cached_property
    def _axes(self) -> Mapping[str, int]:
        return batch_axes(self.inputs)

    def _fitted(self, name: str, array: Array, sizes: Sizes) -> Array:
        """Return an input that nothing is given to, in the shape that it has at ``sizes``."""
        spec = self.inputs[name]
        for axis, dim in enumerate(spec.shape):
            if not set(names_of(dim)) <= sizes.keys():
                continue
            wanted, there = size_of(dim, sizes), array.shape[axis]
            if wanted < there:
                array = np.take(array, range(there - wanted, there), axis)
            elif wanted > there:
                shape = (*array.shape[:axis], wanted - there, *array.shape[axis + 1 :])
                more = np.full(shape, _continued(spec), array.dtype)
                array = np.concatenate([array, more], axis)
        return array


def feedback_of(spec: ModelSpec, outputs: Sequence[str], count: int = 0) -> Feedback:
    """Return how the steps of a model hang together; its manifest has ``steps``.

    ``outputs`` are the names of what it returns, ``count`` how many steps there are where those are
    not as many as the manifest's. Raises ``GateError`` (OG412) for a name that is no
    output, and for a structure that is not the one that it is carried to.
    """
    assert spec.steps is not None
    pairs = [(name, Feed(source)) for name, source in spec.steps.carry.items()]
    pairs += [(name, feed) for name, feed in spec.steps.feed.items() if not feed.add]
    links = [
        Link(each, source, outputs.index(source), feed.argmax)
        for name, feed in pairs
        for each, source in _joined(name, feed.source, tuple(spec.inputs), outputs)
    ]
    counted = {
        each: feed.add
        for name, feed in spec.steps.feed.items()
        if feed.add
        for each in below(name, spec.inputs)
    }
    return Feedback(count or spec.steps.count, tuple(links), counted, spec.inputs, spec.draws_all)


def chosen(output: Array, rank: int) -> Array | None:
    """Return the indices of the largest entries, as an input of ``rank`` axes takes them.

    ``None`` where it cannot take them. NaN counts as the largest, as in PyTorch.
    """
    if not output.ndim or not output.shape[-1]:
        return None
    tokens = np.asarray(np.argmax(output, axis=-1))
    if tokens.ndim == rank:
        return tokens[..., -1:] if rank > 1 else tokens
    if tokens.ndim == rank + 1:
        return np.asarray(tokens[..., -1])
    return tokens[..., None] if tokens.ndim == rank - 1 else None


def _joined(
    name: str, source: str, inputs: Sequence[str], outputs: Sequence[str]
) -> list[tuple[str, str]]:
    """Return the pairs of input and output that two names stand for."""
    own, theirs = below(name, inputs), below(source, outputs)
    if not own:
        hint = did_you_mean(name, wholes(inputs))
        raise codes.OG412.error(f"steps: the model has no input {quote(name)}{hint}")
    if not theirs:
        hint = did_you_mean(source, wholes(outputs))
        raise codes.OG412.error(
            f"steps: {quote(name)} is to be given {quote(source)}, and the model has no output of "
            f"that name{hint}"
        )
    suffixes = {each.removeprefix(source): each for each in theirs}
    if {each.removeprefix(name) for each in own} == suffixes.keys():
        return [(each, suffixes[each.removeprefix(name)]) for each in own]
    if len(own) == len(theirs):
        return list(zip(own, theirs, strict=True))
    raise codes.OG412.error(
        f"steps: {quote(name)} has {len(own)} tensors ({_few(own)}), and {quote(source)} has "
        f"{len(theirs)} ({_few(theirs)}); name those that belong together"
    )


def _few(names: Sequence[str]) -> str:
    return ", ".join([*names[:4], *["..."] * (len(names) > 4)])


def _continued(spec: InputSpec) -> float:
    if spec.dtype == "bool" or spec.range == (0, 1):
        return 1
    low, high = spec.range or (0, 0)
    return min(max(0, low), high)


def _fits(array: Array, spec: InputSpec) -> bool:
    """Return whether an array has the axes of an input, and its fixed sizes."""
    sizes = zip(array.shape, spec.shape, strict=False)
    return array.ndim == len(spec.shape) and all(
        isinstance(dim, str) or size == dim for size, dim in sizes
    )


def _misfit(link: Link, output: Array, spec: InputSpec) -> GateError:
    declared = f"{spec.dtype}[{', '.join(map(str, spec.shape))}]"
    what = f"argmax({link.output})" if link.argmax else link.output
    return codes.OG412.error(
        f"steps: the input {link.input} is {declared} and cannot be given {what}: {link.output} is "
        f"{output.dtype.name}{list(output.shape)}"
    )
