"""Which parts of a module are its blocks: what is as large as the layers that it repeats."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from torch import nn

from onnx_gate.verify.blocks.skeleton import Skeleton

# Nobody calls these; a torch.nn module of any other kind is taken as a whole.
_CONTAINERS = (nn.ModuleList, nn.ModuleDict)
# A part that repeats and is a larger share of the model is no block: it has layers of its own.
_LARGEST_SHARE = 0.5


def blocks_of(skeleton: Skeleton) -> tuple[str, ...]:
    """Return the paths of the blocks, of which none is inside of another.

    A block is at most as large as the largest part of a class that a container or a module has several of,
    or as the largest part without parts, whichever is larger. What holds parameters beside them is in
    none.
    """
    return tuple(_below(skeleton, "", skeleton.module, _largest(skeleton)))


def _largest(skeleton: Skeleton) -> int:
    total = skeleton.nbytes(tuple(skeleton.parameters))
    sizes = [0]
    for path, part in skeleton.module.named_modules():
        size = skeleton.nbytes(skeleton.named_below(path))
        if path and _is_whole(part):
            sizes.append(size)
        alike: defaultdict[type, list[int]] = defaultdict(list)
        for name, child in part.named_children():
            own = skeleton.nbytes(skeleton.named_below(f"{path}.{name}".lstrip(".")))
            alike[type(child)].append(own)
        for several in alike.values():
            if len(several) > 1 and max(several) <= _LARGEST_SHARE * total:
                sizes.append(max(several))
    return max(sizes)


def _is_whole(part: nn.Module) -> bool:
    """Return whether a part is one of torch's layers, or has no parts."""
    known = type(part).__module__.startswith("torch.nn.") and not isinstance(
        part, (*_CONTAINERS, nn.Sequential)
    )
    return known or not any(True for _ in part.children())


def _below(skeleton: Skeleton, path: str, part: nn.Module, largest: int) -> Iterator[str]:
    for name, child in part.named_children():
        own = f"{path}.{name}".lstrip(".")
        parameters = skeleton.named_below(own)
        if not parameters:
            continue
        small = skeleton.nbytes(parameters) <= largest and not isinstance(child, _CONTAINERS)
        if small or _is_whole(child):
            yield own
        else:
            yield from _below(skeleton, own, child, largest)
