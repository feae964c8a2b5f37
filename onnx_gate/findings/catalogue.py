"""Every code that a report can hold, with its text.

OG1xx speak of the model and its graph, OG2xx of building and exporting, OG3xx of runtimes, OG4xx
of verdicts, OG5xx of workers, OG6xx of the manifest's waivers.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from onnx_gate.errors import UserError


@dataclass(frozen=True)
class Entry:
    """One code: a sentence, why it matters, and the remedy."""

    code: str
    title: str
    why: str
    remedy: str


def explanation(code: str) -> str:
    """Return the text of ``onnx-gate explain``; raises ``UserError`` for an unknown code."""
    entry = CATALOGUE.get(code.upper())
    if entry is None:
        near = difflib.get_close_matches(code.upper(), CATALOGUE, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"no finding has the code {code!r}{hint} (onnx-gate explain lists them)")
    return f"{entry.code}: {entry.title}\n\nWhy it matters: {entry.why}\n\nHow to mend it: {entry.remedy}"


_ENTRIES = (
    Entry(
        "OG101",
        "the model was returned in training mode",
        "Dropout stays alive and BatchNorm uses the batch when such a model is exported or served "
        "as it is. The gate verifies it in eval() mode, which is not what your own export script "
        "does if it calls the same factory.",
        "Return model.eval() from the factory.",
    ),
    Entry(
        "OG102",
        "a dimension that is declared dynamic is baked into the graph",
        "The graph was traced at one size. Where forward turns a size into a Python number "
        "(int(x.shape[0]), a loop over it, a reshape to a constant) the graph keeps the example's "
        "number and refuses, or silently miscomputes, every other size.",
        "Take sizes from x.shape inside the expression that uses them, use -1 in one place of a "
        "reshape, or write the fixed size into the manifest if that is what you ship.",
    ),
    Entry(
        "OG103",
        "float64 weights or inputs",
        "Most runtimes have few float64 kernels, and mobile and GPU runtimes none. Usually one "
        "NumPy array without a dtype made it happen.",
        "Convert with .float(), or torch.tensor(..., dtype=torch.float32).",
    ),
    Entry(
        "OG104",
        "forward cannot be called with the manifest's inputs",
        "Inputs are passed by keyword where forward has a parameter of that name, else by "
        "position; these do not add up to a call.",
        "Name the inputs in the manifest as forward names its parameters.",
    ),
    Entry(
        "OG105",
        "forward raises on the example inputs",
        "The export needs one call that works. The message is the exception of forward itself.",
        "Check dtype, shape and range of the inputs in the manifest; where a dynamic dimension "
        "takes certain sizes only (multiples of 32, say), list some under dims.",
    ),
    Entry(
        "OG106",
        "the model disagrees with itself",
        "Called again on equal inputs it answers differently: a counter, a cache, live dropout, "
        "np.random, the time. A graph computes the same thing at every call, so the export is "
        "wrong from the second call on, however well the first one agrees.",
        "Take the state out of forward and make it an input and an output; draw random numbers "
        "outside; call self.dropout rather than F.dropout, whose default is training=True.",
    ),
    Entry(
        "OG107",
        "an output cannot be compared",
        "The model returns something that is no dense tensor of real numbers, so there is nothing "
        "to compare and nothing that an ONNX graph could return.",
        "Return tensors, or tuples, dictionaries and dataclasses of them.",
    ),
    Entry(
        "OG108",
        "a suite gives no usable inputs",
        "A file is missing or unreadable, a generator raised, or an array has another name, dtype "
        "or shape than the manifest declares. A suite that silently tests nothing would be green.",
        "The message names the file or the case and what is wrong with it.",
    ),
    Entry(
        "OG109",
        "forward changes the model's own state",
        "A graph keeps nothing between calls. The result did not depend on the change here (a lazy "
        "cache, a counter nobody reads); with other inputs it may.",
        "Compute caches in __init__, or make the state an input and an output.",
    ),
    Entry(
        "OG110",
        "forward changes its inputs in place",
        "The graph leaves its inputs alone. Code that reads the input after the call sees other "
        "values with PyTorch than with ONNX.",
        "Clone before writing: x = x.clone(), or use the operator without the underscore.",
    ),
    Entry(
        "OG111",
        "forward draws random numbers",
        "The result did not change with them here, and the next edit may change that.",
        "Draw outside the model, and pass the numbers in.",
    ),
    Entry(
        "OG112",
        "inputs of the manifest and of the graph are not the same",
        "An input that no output depends on is dropped by some exporters, and a runtime refuses to "
        "be fed it; an input that the manifest lacks cannot be fed at all.",
        "Remove the unused input from forward and manifest, or name the missing one.",
    ),
    Entry(
        "OG113",
        "a node in training mode",
        "Dropout that draws, or BatchNormalization that uses the batch, in a graph made for "
        "inference: its numbers depend on the other rows, or change with every run.",
        "Call model.eval() before exporting.",
    ),
    Entry(
        "OG114",
        "the graph draws random numbers",
        "No two runs agree, so no run can be verified.",
        "Draw outside the model, and pass the numbers in.",
    ),
    Entry(
        "OG115",
        "outputs are renamed, reordered or too many",
        "Whoever reads the outputs by name or by place gets something else than the manifest says.",
        "Give output_names to your exporter in the order of forward's return value, or correct the "
        "manifest's outputs.",
    ),
    Entry(
        "OG116",
        "torch.export vouches for some sizes of a dynamic dimension only",
        "forward has a condition on the size (if x.shape[0] > 4). The branch of the example was "
        "exported, the condition was dropped, and the ONNX dimension says that every size works.",
        "Make both branches one computation, or restrict the sizes where the model is served and "
        "list those under dims.",
    ),
    Entry(
        "OG117",
        "onnx.checker rejects the file",
        "The file is not valid ONNX. Some runtimes load it all the same, others refuse it.",
        "Often an input is named like an operator's value (cat, view): rename it. Otherwise the "
        "message names the node.",
    ),
    Entry(
        "OG118",
        "the opset that was asked for was not honoured",
        "The exporter's converter failed, left the file at another opset and said so in its log "
        "only. A runtime that supports the opset you asked for may not load the file.",
        "Ask for the opset that the file has, or for one that the exporter supports by itself.",
    ),
    Entry(
        "OG120",
        "strict shape inference fails",
        "The shapes that the graph declares contradict each other. ONNX Runtime warns and goes "
        "on; compilers such as TensorRT may not.",
        "Often a dynamic length through a recurrent layer: declare the dimension static, or export "
        "with the other exporter.",
    ),
    Entry(
        "OG121",
        "an input has another dtype in the graph",
        "Feeding the dtype that the manifest (and PyTorch) has is an error in every runtime.",
        "Export the file anew, or correct the manifest.",
    ),
    Entry(
        "OG201",
        "an operator has no translation to ONNX",
        "The exporter does not know the operator at this opset.",
        "Write it with other operators, ask for a higher opset, or register a translation "
        "(custom_translation_table) in an exporter function of your own.",
    ),
    Entry(
        "OG202",
        "the runtime has no kernel for an operator and dtype",
        "The file is valid and this runtime cannot run it: bfloat16 on a CPU, for one.",
        "Use a dtype or an execution provider that has the kernel.",
    ),
    Entry(
        "OG203",
        "the export meets data-dependent control flow",
        "forward takes a branch, or makes a size, from the values of its inputs. The graph would "
        "have to be another one for other inputs.",
        "Use torch.where, torch.cond, or masks instead of branches.",
    ),
    Entry(
        "OG204",
        "the model cannot be built",
        "Importing the file or calling the factory raised, or what came back is no nn.Module.",
        "The message has the exception; the model's log has its traceback.",
    ),
    Entry(
        "OG205",
        "the weights do not fit the model",
        "A key that is missing keeps its random values, so nothing is loaded unless all fit.",
        "The message names missing, unexpected and misshapen keys; save the state of the bare "
        "module (model.module.state_dict() for DataParallel).",
    ),
    Entry(
        "OG206",
        "a declared dynamic dimension does not survive the export",
        "torch.export found that forward works at one size only, or not at all sizes.",
        "The message names the dimension; take the size from the input's shape where forward uses "
        "a constant, or write the fixed size into the manifest.",
    ),
    Entry(
        "OG207",
        "the export failed",
        "The message has the exporter's essential lines; the model's log has them all.",
        "Try the other exporter (export: {exporter: torchscript}), or reduce the model.",
    ),
    Entry(
        "OG208",
        "a file cannot be read as an ONNX model",
        "It is empty, truncated, a Git LFS pointer, or something else.",
        "Check the file out in full (git lfs pull), or export it anew.",
    ),
    Entry(
        "OG301",
        "an execution provider was asked for and did not run the model",
        "ONNX Runtime falls back to the CPU without an error, and the numbers that you would see "
        "are not those of the hardware that you ship to.",
        "Install the package that has the provider, or name the provider that you mean.",
    ),
    Entry(
        "OG302",
        "a runtime or one of its options is not available",
        "The engine is not installed, or does not know the option.",
        "Install the package that registers it, or correct the manifest.",
    ),
    Entry(
        "OG303",
        "the runtime does not load the model",
        "The export succeeded and the file is of no use to this runtime.",
        "The message is the runtime's own; other opsets often help.",
    ),
    Entry(
        "OG304",
        "the model was not run with optimisations off",
        "Some faults show at one optimisation level only; this one could not be tried.",
        "Nothing, where you ship with optimisations on.",
    ),
    Entry(
        "OG401",
        "an output is ill-conditioned",
        "PyTorch itself is so far from float64 on these inputs that the tolerance, a multiple of "
        "that, lets larger faults through than elsewhere.",
        "Look for large offsets before a normalisation, differences of nearly equal numbers, or "
        "half precision in a long sum.",
    ),
    Entry(
        "OG402",
        "nothing was compared",
        "No case was selected, none fits the inputs, or PyTorch refuses all of them. A check that "
        "compares nothing must not be green.",
        "Correct --case, the suites, or the ranges and sizes of the inputs.",
    ),
    Entry(
        "OG403",
        "an advisory case diverges",
        "NaN, infinite, very large or empty inputs are tried where the manifest names no suites. "
        "Many correct models promise nothing about them, so this is a warning.",
        "Name the suite in the manifest (edges: [nan]) where such inputs do occur: then it counts.",
    ),
    Entry(
        "OG405",
        "a tolerance cannot be applied to an output",
        "The metric raised, or does not fit the output's dtype or shape.",
        "Give that output a tolerance of its own under outputs.",
    ),
    Entry(
        "OG406",
        "an advisory case took the process down",
        "The runtime crashed, hung or ran out of memory on inputs that nobody asked for, after the "
        "verdict stood. A server that is sent such inputs goes down with it.",
        "Keep such inputs out, or name the suite in the manifest to make it count.",
    ),
    Entry(
        "OG501",
        "the worker ended before its result",
        "The model's process exited or was killed: sys.exit, a segmentation fault, a kill.",
        "The end of its log is in the report.",
    ),
    Entry(
        "OG502",
        "the worker ran out of time",
        "The model's timeout ended it.",
        "Raise timeout in the manifest, or look in its log for what it was doing.",
    ),
    Entry(
        "OG503",
        "the worker ran out of memory",
        "It used more than the model's memory limit, or than 85 % of what was free.",
        "Raise memory in the manifest, use smaller sizes under dims, or --jobs 1.",
    ),
    Entry(
        "OG504",
        "the worker's result is not one",
        "What came over the pipe was incomplete or not what a worker sends; the model's code may "
        "have written to it.",
        "Do not write to file descriptors that the model did not open.",
    ),
    Entry(
        "OG601",
        "a waiver has ended",
        "It forgives nothing any more, so the divergence that it covered counts.",
        "Mend the divergence, or agree on a new date.",
    ),
    Entry(
        "OG602",
        "a waiver was not needed",
        "What it covers agrees now.",
        "Remove it, so that the divergence cannot come back unseen.",
    ),
)

CATALOGUE: Mapping[str, Entry] = {entry.code: entry for entry in _ENTRIES}
