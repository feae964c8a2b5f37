"""What an exporter's exception comes down to: its code, a sentence with the remedy, its own words."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Sequence

import torch
from torch.fx import GraphModule

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.findings.codes import Code
from onnx_gate.manifest import EXPORTERS, ModelSpec
from onnx_gate.text import without_escapes
from onnx_gate.verify.export import translations
from onnx_gate.verify.export.constraints import FailedTrace, constraint, recurrent_layer
from onnx_gate.verify.export.disk import disk_full
from onnx_gate.verify.export.failed import (
    ExportFailure,
    FailureSaid,
    chain_of,
    own_words,
)
from onnx_gate.verify.export.operators import (
    OTHER_EXPERTS,
    complex_numbers,
    custom_operator,
    torch_operator,
    translated_nodes,
)
from onnx_gate.verify.export.specialising import Stacks
from onnx_gate.verify.source_lines import Line, at, of_error, of_stack, shown, workspace_of

# How many lines of the exporter's own words are shown where they are not understood.
_LINES = 4
_NO_OVERLOAD = re.compile(r"Cannot find a compatible OpOverload for ([\w.:]+) with the provided")
_NAME_TAKEN = re.compile(r"attribute '(\w+)' already exists")
_TRACED = "let torchscript trace it (export: {exporter: torchscript})"
_BY_TRACING = (("export", {"exporter": "torchscript"}),)
_NO_OPSET = re.compile(r"Unsupported onnx_opset_version: (\d+)")
_DATA_DEPENDENT = re.compile(
    r"GuardOnDataDependentSymNode|[Dd]ata-dependent|PendingUnbackedSymbolNotFound"
    r"|DataDependentOutputException"
)
# Its constructor checks what a distribution is made of, and ``_validate_sample`` what is asked of it.
_VALIDATION = "/torch/distributions/distribution.py"
_CHECKING = ("__init__", "_validate_sample")
_CAUSAL = "/torch/nn/modules/transformer.py"
# What calls a mixture's experts in whichever way the model was built with.
_EXPERTS = "/transformers/integrations/moe.py"
_UNTRACED_OUTPUT = re.compile(
    r"^output (\d+) \(.*\) of traced region did not have observable data dependence", re.S | re.M
)
_NO_NUMBER = re.compile(r"(int|float)\(\) argument must be .*'SymbolicTensor'")
_NOT_CONSTANT = re.compile(
    r"(\w+)\(\): argument '(\w+)' .*?must be (\w+), not Sym(?:Bool|Int|Float)\b"
)
_TRANSFORMERS = re.compile(r"(^|/)transformers/")
_ONLY_4D = "only 4D query, key, and value are supported"
_OPTIMISER = re.compile(r"/onnxscript/(optimizer|rewriter)/")


def export_error(error: BaseException, spec: ModelSpec, stacks: Stacks | None = None) -> GateError:
    """Return the ``GateError`` of kind ``export`` that says what ``error`` says, in a few lines.

    ``stacks`` are those at which sizes were decided on, as ``specialising`` records them.
    """
    if isinstance(error, GateError):
        return error
    chain = tuple(chain_of(error))
    full = next((message for each in chain if (message := disk_full(each))), "")
    if full:
        return codes.OG210.error(full)
    root = workspace_of(spec.model)
    sources = (of_error(each, root) for each in reversed(chain))
    stacks_of = (node.meta.get("stack_trace") or "" for node in translated_nodes(chain))
    translated = (of_stack(text, root) for text in stacks_of)
    failure = ExportFailure(
        text="\n".join(without_escapes(str(each)) for each in chain),
        last=chain[-1],
        chain=chain,
        source=next((line for line in (*translated, *sources) if line is not None), None),
        spec=spec,
        root=root,
        stacks=stacks or Stacks(),
    )
    code, said, lines = next(
        (code, said, lines)
        for code, recognise, lines in _RECOGNISERS
        if (said := recognise(failure)) is not None
    )
    words = f"\n{own_words(failure.last, lines)}" if lines else ""
    told = code.error(
        said.message + words,
        kind="export",
        source=_place(said.line or failure.source),
        remedy=said.remedy,
        changes=said.changes,
        otherwise=said.otherwise,
    )
    told.data["recognised"] = said.recognised
    return told


def _place(line: Line | None) -> tuple[str, int] | None:
    return (line.file, line.line) if line is not None and line.own else None


def _promotion(failure: ExportFailure) -> FailureSaid | None:
    operator = _NO_OVERLOAD.search(failure.text)
    if operator is None:
        return None
    return _or_traced(
        f"torch {torch.__version__}'s exporter cannot promote the types of {operator[1]}"
        f"{at(failure.source)}, where integers and floats meet",
        "make them all floats there, 0.0 of a number and .to(torch.float32) of a tensor",
    )


def _or_traced(message: str, otherwise: str, but: str = "") -> FailureSaid:
    """Return what can be done in the code, or by tracing: one is left where the other was tried."""
    return FailureSaid(
        message, f"{otherwise}, or {_TRACED}{but}", changes=_BY_TRACING, otherwise=otherwise
    )


def _taken(failure: ExportFailure) -> FailureSaid | None:
    name = _NAME_TAKEN.search(failure.text)
    if name is None or not hasattr(GraphModule, name[1]):
        return None
    return _or_traced(
        f"the module has a parameter, a buffer or a part called {name[1]}, which is the name of an "
        "attribute of torch.export's own programs",
        "give it another name in the module (a checkpoint has to follow)",
    )


def _opset(failure: ExportFailure) -> FailureSaid | None:
    asked = _NO_OPSET.search(failure.text)
    if asked is None:
        return None
    low, high = translations.opsets_of_torchscript()
    return FailureSaid(
        f"the {failure.exporter} exporter writes opsets {low} to {high}, and {asked[1]} was asked "
        "for",
        "ask for one of these under export, or leave the opset out",
    )


def _sizes(failure: ExportFailure) -> FailureSaid | None:
    graphs = [value for value in failure.held if isinstance(value, GraphModule)]
    trace = FailedTrace(graphs, failure.stacks, failure.root)
    tied = constraint(failure.text, failure.spec, trace, failure.source)
    return None if tied is None else FailureSaid(tied.message, tied.remedy, tied.line)


def _optimiser(failure: ExportFailure) -> FailureSaid | None:
    if not any(map(_in_optimiser, failure.chain)):
        return None
    return FailureSaid(
        "the graph was exported, and onnxscript's optimiser, which the exporter runs, fails on it",
        "try it without, export: {optimize: false}",
    )


def _in_optimiser(error: BaseException) -> bool:
    frames = traceback.walk_tb(error.__traceback__)
    return any(_OPTIMISER.search(frame.f_code.co_filename) for frame, _ in frames)


def _attribute(failure: ExportFailure) -> FailureSaid | None:
    if "Unsupported attribute type" not in failure.text or "SymbolicTensor" not in failure.text:
        return None
    return FailureSaid(
        f"{shown(failure.source, 'forward')} has a size that varies for a number that is fixed in a "
        "graph, as the groups of a convolution are",
        "declare that dimension with its one size, or write it as products (torch.einsum) of which the "
        "size is an axis",
    )


def _number(failure: ExportFailure) -> FailureSaid | None:
    if not _NO_NUMBER.search(failure.text):
        return None
    return FailureSaid(
        f"the {failure.exporter} exporter translates an operator of {shown(failure.source, 'forward')} for "
        "a plain number, and is given a size that varies",
        "give that operator a tensor, as in `x % torch.full_like(x, size)`, or export with "
        "`export: {exporter: torchscript}`",
    )


def _constant(failure: ExportFailure) -> FailureSaid | None:
    asked = _NOT_CONSTANT.search(failure.text)
    if asked is None:
        return None
    function, argument, kind = asked.groups()
    line = failure.source
    head = (
        f"{shown(line, 'forward')} computes `{argument}` of {function} from a size that varies: it is a "
        f"{kind} that is fixed in a graph"
    )
    if line is not None and _TRANSFORMERS.search((line.inner or line).file):
        return FailureSaid(
            head,
            'build the model with transformers\' other attention, attn_implementation="eager", or give '
            "it a mask",
        )
    return FailureSaid(
        head, f"give `{argument}` a value that no size decides, where the model is built"
    )


def _attention(failure: ExportFailure) -> FailureSaid | None:
    if _ONLY_4D not in failure.text:
        return None
    return FailureSaid(
        f"the {failure.exporter} exporter takes scaled_dot_product_attention of four axes only (batch, "
        f"heads, length, width), and {shown(failure.source, 'forward')} has others",
        "give query, key and value an axis of one head there, unsqueeze(1), and take it from the "
        "result, squeeze(1)",
    )


def _data(failure: ExportFailure) -> FailureSaid | None:
    line = shown(failure.source, "forward")
    values = list(failure.held)
    if any(isinstance(value, torch.nn.utils.rnn.PackedSequence) for value in values):
        return _packed(failure, values)
    if not _DATA_DEPENDENT.search(failure.text):
        return None
    if any(_within(each, _CAUSAL, ("_detect_is_causal_mask",)) for each in failure.chain):
        return FailureSaid(
            f"{line} gives a mask to torch's transformer and does not say whether it is causal, which "
            "torch then looks up: a branch on its values",
            "say so in the call, is_causal=False, which holds for every mask (of a decoder "
            "tgt_is_causal, of nn.Transformer src_is_causal and tgt_is_causal)",
        )
    if any(_within(each, _VALIDATION, _CHECKING) for each in failure.chain):
        return FailureSaid(
            f"{line} has torch.distributions check its arguments' values, which is a branch on them",
            "make the distribution with validate_args=False, or switch the checks off where the model "
            "is built: torch.distributions.Distribution.set_default_validate_args(False)",
        )
    own = _of_own_state(failure)
    whose = "the module's own parameters or buffers" if own else "tensors"
    head = (
        f"{line} takes a branch, or makes a size, from the values of {whose}, which a graph cannot"
    )
    if any(_within(each, _EXPERTS, ("forward",)) for each in failure.chain):
        return FailureSaid(head, OTHER_EXPERTS)
    if failure.source is not None and not (failure.source.inner or failure.source).own:
        return _or_traced(
            f"{head}. It is a package's",
            "see whether that has a switch for the export",
            ", which keeps the branch that the example takes; the checks say whether it holds",
        )
    if own:
        return FailureSaid(
            head,
            "make a number of Python's of it where the module is built, if it stays as it is (a flag, a "
            "schedule), and use torch.where if not",
        )
    return FailureSaid(
        head,
        "use torch.where where both sides can be computed, torch.cond where not, and torch._check "
        "for what you know of a size",
    )


def _of_own_state(failure: ExportFailure) -> bool:
    """Return whether the value that was asked for is made of parameters and buffers alone.

    In a trace they are placeholders like the inputs, which come last.
    """
    tracer = next((value for value in failure.held if isinstance(value, torch.fx.Tracer)), None)
    nodes = list(tracer.graph.nodes) if tracer is not None else []
    given = [node for node in nodes if node.op == "placeholder"]
    reached, read = nodes[-1:], set(nodes[-1:])
    while reached:
        new = [n for n in reached.pop().all_input_nodes if n not in read]
        reached += new
        read.update(new)
    own = given[: max(len(given) - len(failure.spec.inputs), 0)]
    return not read.isdisjoint(own) and read.isdisjoint(set(given) - set(own))


def _packed(failure: ExportFailure, values: list[object]) -> FailureSaid:
    message = (
        f"{shown(failure.source, 'forward')} packs sequences by their lengths, which are values of an "
        "input: a graph's sizes cannot depend on values"
    )
    # What a backward direction says of a row depends on where the row ends, so no mask mends it.
    if any(isinstance(each, torch.nn.RNNBase) and each.bidirectional for each in values):
        otherwise = (
            "run a layer for each direction on the padded sequence, for the second one with every row "
            "turned round within its length (gather)"
        )
    else:
        otherwise = "run the layer on the padded sequence and mask its output"
    if failure.exporter == "torchscript":
        return FailureSaid(message, otherwise)
    return FailureSaid(
        message, f"{_TRACED}, or {otherwise}", changes=_BY_TRACING, otherwise=otherwise
    )


def _within(error: BaseException, file: str, functions: Sequence[str]) -> bool:
    frames = traceback.walk_tb(error.__traceback__)
    codes_of = (frame.f_code for frame, _ in frames)
    return any(c.co_filename.endswith(file) and c.co_name in functions for c in codes_of)


def _script(failure: ExportFailure) -> FailureSaid | None:
    if "PackedParams" in failure.text or "quantized::" in failure.text:
        return FailureSaid(
            f"the {failure.called} has no translation of torch.ao's quantised modules"
            f"{at(failure.source)}",
            "export the float model, quantise the file with onnxruntime.quantization, and name it "
            "with onnx:",
        )
    if any(isinstance(value, torch.jit.ScriptModule) for value in failure.held):
        return FailureSaid(
            f"a part of the model is TorchScript{at(failure.source)}, which the {failure.exporter} "
            "exporter does not take inside another module",
            "use the module that it was made from",
        )
    return None


def _independent(failure: ExportFailure) -> FailureSaid | None:
    """Recognise an output that a trace does not see made, as of a parameter or a buffer."""
    output = _UNTRACED_OUTPUT.search(failure.text)
    if output is None:
        return None
    otherwise = "leave it out of what forward returns, or register a buffer with persistent=True"
    return FailureSaid(
        f"output {output[1]} (counted from 0) does not depend on the inputs: forward returns a constant, "
        f"or a buffer that is none of its state, of which the {failure.exporter} exporter writes no "
        "output",
        f"write export: {{exporter: dynamo}}, or {otherwise}",
        changes=(("export", {"exporter": "dynamo"}),),
        otherwise=otherwise,
    )


def _recurrent(failure: ExportFailure) -> FailureSaid | None:
    """Recognise a recurrent layer that torch fails to unroll, in words that are about its own loop."""
    called = (recurrent_layer(str(node.target)) for node in translated_nodes(failure.chain))
    layer = next(filter(None, called), "")
    if not layer:
        return None
    return _or_traced(
        f"torch {torch.__version__} unrolls {layer}{at(failure.source)} to write it, and fails at that",
        "declare the dimension that it runs along with its one size",
    )


def _unrecognised(failure: ExportFailure) -> FailureSaid:
    message = (
        f"the {failure.exporter} exporter failed{at(failure.source)}: "
        f"{own_words(failure.last, _LINES)}"
    )
    if failure.exporter not in EXPORTERS:
        return FailureSaid(message, f"put it right in {failure.exporter}")
    other = next(each for each in EXPORTERS if each != failure.exporter)
    otherwise = "reduce the model until the exporter's words make sense"
    return FailureSaid(
        message,
        f"try the other exporter (export: {{exporter: {other}}}), or {otherwise}",
        changes=(("export", {"exporter": other}),),
        otherwise=otherwise,
        recognised=False,
    )


_Recognise = Callable[[ExportFailure], FailureSaid | None]
# In this order; the number says how many lines of the exporter's own words are worth adding.
_RECOGNISERS: tuple[tuple[Code, _Recognise, int], ...] = (
    (codes.OG118, _opset, 0),
    (codes.OG207, _script, 1),
    (codes.OG207, _optimiser, 1),
    (codes.OG206, _sizes, 0),
    (codes.OG201, complex_numbers, 0),
    (codes.OG207, _promotion, 0),
    (codes.OG207, _taken, 0),
    (codes.OG209, custom_operator, 1),
    (codes.OG201, torch_operator, 1),
    (codes.OG207, _attention, 0),
    (codes.OG206, _attribute, 0),
    (codes.OG207, _number, 0),
    (codes.OG206, _constant, 0),
    (codes.OG203, _data, 1),
    (codes.OG207, _recurrent, 1),
    (codes.OG207, _independent, 0),
    (codes.OG207, _unrecognised, 0),
)
