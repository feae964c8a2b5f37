"""``docs/known-faults.md``: the book of known faults as a page."""

from __future__ import annotations

from onnx_gate.known import PublicFault, faults

_NAMES = {
    "torch": "PyTorch",
    "onnxscript": "onnxscript",
    "onnxruntime": "ONNX Runtime",
    "onnx": "ONNX",
    "openvino": "OpenVINO",
}
_STAGES = {
    "export": "the export fails",
    "load": "the file is not loaded",
    "run": "a run is refused",
    "diverged": "the answer is wrong",
}
_HEAD = """\
# Known faults

<!-- Written by tools/faults_page.py from onnx_gate/known/faults.yml. -->

A red verdict is often somebody else's fault, and somebody has filed it. Where an export or a file that
does not load says the words of a public thread, or the [diagnosis](diagnosis.md) has singled out its
operator, the terminal, the comment and the page have one more line:

```text
known: a Python number less a tensor of integers is not promoted,
https://github.com/pytorch/pytorch/issues/194381; instead: convert the integers first,
1.0 - mask.to(torch.float32)
```

It is `error.known` and `diagnosis.known` of `report.json`. A wrong link is worse than none: all that an
entry says has to fit, the installed version, the operator with its attributes and the types of its inputs,
whom the diagnosis blames, the words of the error, or the call that the exporter wrote into the node. That
an operator is somewhere in the graph never is enough. What `right in` names is a release in which the fault
is known, or was seen, not to be.

<!-- results: known -->
<!-- end of results -->

Each entry has a test that shows it with the installed versions, or that it is gone there and is not linked.

## To file one

`onnx-gate report onnx-gate-report --issue` prints, for each red model, what the other project needs: the
reproduction that the run has left as a script, with its sizes halved for as long as it still shows; the
same as a torch module, where one call of PyTorch's was written wrongly by the exporter; what was expected
and what came out; the versions; and in which repository to file it. `--model NAME` picks one, and
`--output FILE` writes it. Of an export that fails there is no file: it has the message and the line.
"""


def render() -> str:
    """Return the page: a table for each project, what is not fixed first."""
    parts = [_HEAD]
    book = sorted(faults(), key=lambda fault: bool(fault.fixed))
    for package, name in _NAMES.items():
        rows = [_row(fault) for fault in book if fault.package == package]
        head = [
            "| fault | thread | versions | what happens | instead |",
            "| --- | --- | --- | --- | --- |",
        ]
        parts.append("\n".join([f"## {name}", "", *head, *rows, ""]))
    return "\n".join(parts)


def _row(fault: PublicFault) -> str:
    thread = "/".join(fault.link.split("/")[3:5]) + "#" + fault.link.rpartition("/")[2]
    fixed = f", right in {fault.fixed}" if fault.fixed else ""
    cells = (
        fault.title,
        f"[{thread}]({fault.link})",
        f"`{fault.affected}`{fixed}",
        _STAGES[fault.stage],
        fault.workaround,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
