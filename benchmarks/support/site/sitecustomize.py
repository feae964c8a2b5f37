"""Let torchvision be imported beside a build of torch that its compiled operators were not made for.

PyPI's torchvision is made for CUDA. Beside a CPU build its library does not load, and importing the
package fails while it registers shape functions for operators that nobody has defined. Here they are
defined, with ``nms`` in Python, as soon as somebody imports torchvision, and no sooner. Python runs
this file by itself in every process whose ``PYTHONPATH`` names its folder.
"""

from __future__ import annotations

import importlib.abc
import sys
from typing import Any

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
    "_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, SymInt batch_size, SymInt channels, SymInt height, SymInt width, "
    "int sampling_ratio, bool aligned) -> Tensor",
)
_KEPT: list[Any] = []


class _Before(importlib.abc.MetaPathFinder):
    """Defines the operators before torchvision is looked for, and vouches for them after that."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        # Looked for more often than imported: transformers asks whether it is there.
        if name == "torchvision" and not _KEPT:
            self._define()
        elif name.startswith("torchvision."):
            # Half imported, the module has no such function yet, and would define it again.
            extension = sys.modules.get("torchvision.extension")
            if hasattr(extension, "_assert_has_ops"):
                extension._assert_has_ops = _has_ops  # type: ignore[union-attr]

    def _define(self) -> None:
        import torch

        library = torch.library.Library("torchvision", "DEF")
        for schema in _SCHEMAS:
            library.define(schema)
        library.impl("nms", _nms, "CPU")
        _KEPT.append(library)


def _has_ops() -> None:
    """Do nothing; TorchScript, which compiles it, takes no lambda."""


def _nms(boxes: Any, scores: Any, threshold: float) -> Any:
    """Indices of the boxes that overlap no better one by more than ``threshold``, best first."""
    import torch

    order = scores.argsort(descending=True, stable=True)
    sizes = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    kept = []
    while len(order):
        best, order = order[0], order[1:]
        kept.append(best)
        low = torch.maximum(boxes[order, :2], boxes[best, :2])
        high = torch.minimum(boxes[order, 2:], boxes[best, 2:])
        common = (high - low).clamp(min=0).prod(1)
        order = order[common / (sizes[order] + sizes[best] - common) <= threshold]
    return torch.stack(kept) if kept else torch.empty(0, dtype=torch.int64)


sys.meta_path.insert(0, _Before())
