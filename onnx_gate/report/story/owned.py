"""What is the matter of the owner's script, or of who exported their file, and no line of the model's."""

from __future__ import annotations

from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.report.model import ModelResult
from onnx_gate.text import listed, plain

_NAME = 160
_DIMS = 4


def is_owned(finding: Finding | None) -> bool:
    """Return whether a finding fails a file that the owner has written."""
    return finding is not None and finding.severity == "error" and bool(finding.data.get("writer"))


def undeclared(model: ModelResult) -> str:
    """Return the dimensions that such a file has as fixed sizes, as a part of a sentence."""
    fixed = (f.data.get("dims", {}) for f in codes.OG102.among(model.findings) if is_owned(f))
    dims = dict.fromkeys(dim for each in fixed for dim in each)
    return listed([f"'{plain(dim, 30)}'" for dim in dims], _DIMS)


def reason(model: ModelResult, finding: Finding) -> str:
    """Return why the model is red, where that is more than the code's title; empty where it is not."""
    if not is_owned(finding) or finding.code != codes.OG102.code:
        return ""
    return f"{plain(finding.data['writer'], _NAME)} does not declare {undeclared(model)} dynamic"


def remedy(model: ModelResult, finding: Finding) -> str:
    """Return what to do where the file is exported."""
    writer = plain(finding.data["writer"], _NAME)
    is_file = model.export is not None and model.export.exporter == "file"
    if finding.code == codes.OG102.code:
        there = f"where {writer} is exported" if is_file else f"in {writer}"
        return f"name {undeclared(model)} in dynamic_shapes (or dynamic_axes) {there}"
    # The module was seen to give the same answer twice, in eval(): what it draws is drawn elsewhere.
    drawn = "; what forward draws even then, draw outside the model"
    drawn = drawn if finding.code == codes.OG114.code else ""
    before = f"{writer} is exported" if is_file else f"the export in {writer}"
    return f"call model.eval() before {before}{drawn}"
