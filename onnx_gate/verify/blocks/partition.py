"""Which parts of a module are its blocks: what is as large as the layers that it repeats."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import nn

from onnx_gate.verify.blocks.skeleton import Skeleton
from onnx_gate.verify.blocks.stored import LEAST_ROWS, Stored

WEIGHT, BIAS = "weight", "bias"


class InRows(nn.Module):
    """A linear layer as several, each with some of its rows: what they return lies side by side."""

    def __init__(self, parts: Mapping[int, nn.Linear]) -> None:
        super().__init__()
        for row, part in parts.items():
            self.add_module(f"rows_{row}", part)

    @property
    def weight(self) -> torch.Tensor:
        """All rows, for what reads them beside."""
        return torch.cat([part.get_parameter(WEIGHT) for part in self.children()])

    @property
    def bias(self) -> torch.Tensor | None:
        """The bias of all rows."""
        parts = [part._parameters[BIAS] for part in self.children()]
        return None if parts[0] is None else torch.cat(parts)  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the whole layer does."""
        return torch.cat([part(x) for part in self.children()], -1)


# What is called are their parts.
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, InRows)
# Modules of torch.nn that call their parts as a module of anybody's does; of any other kind one is taken
# as a whole.
_OF_PARTS = (nn.Sequential, nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder)
# A part that repeats and is a larger share of the model is no block: it has layers of its own.
_LARGEST_SHARE = 0.5


def blocks_of(skeleton: Skeleton) -> tuple[str, ...]:
    """Return the paths of the blocks, of which none is inside of another.

    A block is at most as large as the largest part of a class that a container or a module has several of,
    or as the largest part without parts, whichever is larger. What holds parameters beside them is in
    none.
    """
    return tuple(_below(skeleton, "", skeleton.module, _largest(skeleton)))


def with_heads_apart(skeleton: Skeleton) -> Skeleton:
    """Return the model with linear layers in rows that are larger than what it repeats.

    The head of a language model is: it has a row for each word.
    """
    most = max(*_repeated(skeleton), LEAST_ROWS)
    paths = [
        path
        for path, part in skeleton.module.named_modules()
        if path and type(part) is nn.Linear and _is_bare(part)
        if skeleton.nbytes((f"{path}.{WEIGHT}",)) > most
    ]
    stored = {name: weight.stored for name, weight in skeleton.parameters.items()}
    return skeleton.changed(in_rows(skeleton.module, paths, most, stored)) if paths else skeleton


def _is_bare(part: nn.Module) -> bool:
    """Return whether calling a part is calling its ``forward``, and nothing beside."""
    hooks = (part._forward_hooks, part._forward_pre_hooks, part._buffers)
    return not any(hooks) and "forward" not in part.__dict__


def _largest(skeleton: Skeleton) -> int:
    parts = skeleton.module.named_modules()
    whole = (skeleton.nbytes(skeleton.named_below(p)) for p, part in parts if p and _is_whole(part))
    return max((*_repeated(skeleton), *whole))


def _repeated(skeleton: Skeleton) -> list[int]:
    """Return the bytes of what a container or a module has several of; and 0."""
    total = skeleton.nbytes(tuple(skeleton.parameters))
    sizes = [0]
    for path, part in skeleton.module.named_modules():
        alike: defaultdict[type, list[int]] = defaultdict(list)
        for name, child in part.named_children():
            own = skeleton.nbytes(skeleton.named_below(f"{path}.{name}".lstrip(".")))
            alike[type(child)].append(own)
        for several in alike.values():
            if len(several) > 1 and max(several) <= _LARGEST_SHARE * total:
                sizes.append(max(several))
    return sizes


def _is_whole(part: nn.Module) -> bool:
    """Return whether a part is one of torch's layers, or has no parts."""
    known = type(part).__module__.startswith("torch.nn.") and not isinstance(
        part, (*_CONTAINERS, *_OF_PARTS)
    )
    return known or not any(True for _ in part.children())


def _has_experts(skeleton: Skeleton, path: str, part: nn.Module) -> bool:
    """Return whether most of a part is a list of parts alike, and worth a block each.

    The experts of a layer are: of many there is one at a time to compute, and in memory.
    """
    whole = skeleton.nbytes(skeleton.named_below(path))
    for name, child in part.named_modules(prefix=path):
        if isinstance(child, nn.ModuleList) and len({type(each) for each in child}) == 1:
            several = len(child) > 1 and not _is_whole(child[0])
            if several and skeleton.nbytes(skeleton.named_below(name)) > max(whole / 2, LEAST_ROWS):
                return True
    return False


def _below(skeleton: Skeleton, path: str, part: nn.Module, largest: int) -> Iterator[str]:
    for name, child in part.named_children():
        own = f"{path}.{name}".lstrip(".")
        parameters = skeleton.named_below(own)
        if not parameters:
            continue
        small = skeleton.nbytes(parameters) <= largest and not isinstance(child, _CONTAINERS)
        if _is_whole(child) or (small and not _has_experts(skeleton, own, child)):
            yield own
        else:
            yield from _below(skeleton, own, child, largest)


def in_rows(
    module: nn.Module, paths: Sequence[str], most: int, stored: Mapping[str, Stored]
) -> dict[str, Stored]:
    """Take linear layers of a module without values apart, and return where their parts' weights lie.

    ``paths`` are theirs, ``stored`` has their weights by name. A part has rows of at most ``most`` bytes.
    """
    places: dict[str, Stored] = {}
    for path in paths:
        whole = module.get_submodule(path)
        assert isinstance(whole, nn.Linear)
        row = whole.in_features + (whole.bias is not None)
        step = max(1, most // (whole.weight.dtype.itemsize * row))
        parts = {}
        for first in range(0, whole.out_features, step):
            count = min(step, whole.out_features - first)
            part = nn.Linear(
                whole.in_features,
                count,
                whole.bias is not None,
                device="meta",
                dtype=whole.weight.dtype,
            )
            parts[first] = part.train(whole.training)
            for name in part._parameters:
                if part._parameters[name] is not None:
                    rows = _rows(stored[f"{path}.{name}"], first, count)
                    places[f"{path}.rows_{first}.{name}"] = rows
        owner, _, key = path.rpartition(".")
        setattr(module.get_submodule(owner), key, InRows(parts).train(whole.training))
    return places


def _rows(stored: Stored, first: int, count: int) -> Stored:
    size = stored.nbytes // stored.shape[0]
    return replace(
        stored,
        offset=stored.offset + first * size,
        nbytes=count * size,
        shape=(count, *stored.shape[1:]),
    )
