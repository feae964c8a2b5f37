"""Import torchvision where its compiled operators cannot be loaded.

PyPI's build of torchvision is made for CUDA. Beside a CPU build of torch its library does not load,
and importing the package then fails while it registers shape functions for ``nms`` and ``qnms``.
Defining the two schemas first is enough: no model of this corpus calls them. Models that do need
compiled operators (``nms``, ``roi_align``, ``deform_conv2d``: every detector) are left out.

Import this module before anything that imports torchvision, timm and transformers included. Where
there is no torchvision, transformers does without, and the models of ``vision.py`` cannot be built.
"""

from __future__ import annotations

import contextlib

import torch

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)

try:
    import torchvision
except ModuleNotFoundError:
    torchvision = None
except RuntimeError:
    # A half-imported package stays out of sys.modules, so that importing again starts afresh.
    _library = torch.library.Library("torchvision", "FRAGMENT")
    for _schema in _SCHEMAS:
        with contextlib.suppress(RuntimeError):
            _library.define(_schema)
    import torchvision

__all__ = ["torchvision"]
