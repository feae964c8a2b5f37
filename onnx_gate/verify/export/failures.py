"""What an exporter's exception comes down to: its code, a sentence with the remedy, its own words."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.findings.codes import Code
from onnx_gate.manifest import ModelSpec
from onnx_gate.text import shortened, without_escapes
from onnx_gate.verify.export import translations
from onnx_gate.verify.export.constraints import FailedTrace, constraint
from onnx_gate.verify.export.disk import disk_full
from onnx_gate.verify.export.specialising import Stacks
from onnx_gate.verify.source_lines import Line, at, of_error, of_stack, shown, workspace_of

# How many lines of the exporter's own words are shown where they are not understood.
_LINES = 4
_WIDTH = 300
_BOILERPLATE = (
    "Next steps:",
    "- Modify the model code",
    "- Debug `torch.export",
    "- Create an issue",
    "(Refer to the full stack trace",
    "For more information",
    "For extended logs",
    "For more debugging help",
    "For C++ stack trace",
    "If you suspect the guard",
    "Set TORCH_LOGS",
    "If you want to",
    "The following call raised this error",
    "The error above occurred when calling",
    "consider using data-dependent friendly",
    "Caused by:",
    "Specifically, we",
)
_NO_TRANSLATION = re.compile(
    r"No ONNX function found for <OpOverload\(op='([^']+)'(?:, overload='([^']+)')?"
)
_NO_SYMBOLIC = re.compile(
    r"(?:Exporting the operator|ONNX export of operator) '?([\w:.]+)'?.*? opset version (\d+)"
    r"(?:.*?added in version (\d+))?"
)
_NO_NAMESPACE = re.compile(r"operator with unrecognized namespace ([\w:.]+?)\. ")
_NO_FAKE = re.compile(
    r"no fake impl registered for <CustomOpDef\(([\w:.]+)\)>|"
    r"([\w:]+)(?:\.\w+)?: attempted to run this operator with Meta tensors"
)
_NO_OVERLOAD = re.compile(r"Cannot find a compatible OpOverload for ([\w.:]+) with the provided")
_NAME_TAKEN = re.compile(r"attribute '(\w+)' already exists")
_COMPLEX = "No decompositions registered for the complex-valued input"
_TRACED = "let torchscript trace it (export: {exporter: torchscript})"
_NO_OPSET = re.compile(r"Unsupported onnx_opset_version: (\d+)")
_DATA_DEPENDENT = re.compile(
    r"GuardOnDataDependentSymNode|[Dd]ata-dependent|PendingUnbackedSymbolNotFound"
)
_TORCH_NAMESPACES = frozenset(
    {"aten", "prims", "prim", "quantized", "_operator", "math", "builtins"}
)


_CACHEMASK = re.compile(r"_cachemask(_tensor_qparams)?$")
_OPTIMISER = re.compile(r"/onnxscript/(optimizer|rewriter)/")


@dataclass(frozen=True)
class _Said:
    """What an exception is in the gate's words, what to do, and the line where it is not its source.

    ``changes`` of the manifest are what the remedy asks for.
    """

    message: str
    remedy: str = ""
    line: Line | None = None
    changes: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True)
class _Failure:
    """An exception of an exporter, and what its traceback holds.

    ``text`` is every message of the chain, ``last`` the exception that began it, ``source`` the
    line of the user's at which it was raised, or which the exporter was translating.
    """

    text: str
    last: BaseException
    chain: tuple[BaseException, ...]
    source: Line | None
    spec: ModelSpec
    root: Path | None
    stacks: Stacks

    @property
    def exporter(self) -> str:
        return self.spec.export.exporter


def export_error(error: BaseException, spec: ModelSpec, stacks: Stacks | None = None) -> GateError:
    """Return the ``GateError`` of kind ``export`` that says what ``error`` says, in a few lines.

    ``stacks`` are those at which sizes became numbers, as ``specialising`` records them.
    """
    if isinstance(error, GateError):
        return error
    chain = tuple(_chain(error))
    full = next((message for each in chain if (message := disk_full(each))), "")
    if full:
        return codes.OG210.error(full)
    root = workspace_of(spec.model)
    sources = (of_error(each, root) for each in reversed(chain))
    stacks_of = (node.meta.get("stack_trace") or "" for node in _translated(chain))
    translated = (of_stack(text, root) for text in stacks_of)
    failure = _Failure(
        text="\n".join(without_escapes(str(each)) for each in chain),
        last=chain[-1],
        chain=chain,
        source=next((line for line in (*translated, *sources) if line is not None), None),
        spec=spec,
        root=root,
        stacks=stacks or {},
    )
    for code, recognise, lines in _RECOGNISERS:
        said = recognise(failure)
        if said is not None:
            own_words = f"\n{_essential(failure.last, lines)}" if lines else ""
            source = _place(said.line or failure.source)
            return code.error(
                said.message + own_words,
                kind="export",
                source=source,
                remedy=said.remedy,
                changes=said.changes,
            )
    return codes.OG207.error(
        f"the {failure.exporter} exporter failed{at(failure.source)}: "
        f"{_essential(failure.last, _LINES)}",
        source=_place(failure.source),
        remedy=f"put it right in {failure.exporter}" if ":" in failure.exporter else "",
    )


def _place(line: Line | None) -> tuple[str, int] | None:
    return (line.file, line.line) if line is not None and line.own else None


def _promotion(failure: _Failure) -> _Said | None:
    operator = _NO_OVERLOAD.search(failure.text)
    if operator is None:
        return None
    return _Said(
        f"torch {torch.__version__}'s exporter cannot promote the types of {operator[1]}"
        f"{at(failure.source)}, where integers and floats meet",
        f"make them all floats there, 0.0 of a number and .to(torch.float32) of a tensor, or {_TRACED}",
    )


def _taken(failure: _Failure) -> _Said | None:
    name = _NAME_TAKEN.search(failure.text)
    if name is None or not hasattr(GraphModule, name[1]):
        return None
    return _Said(
        f"the module has a parameter, a buffer or a part called {name[1]}, which is the name of an "
        "attribute of torch.export's own programs",
        f"give it another name in the module (a checkpoint has to follow), or {_TRACED}",
    )


def _complex(failure: _Failure) -> _Said | None:
    if _COMPLEX not in failure.text:
        return None
    return _Said(
        f"{shown(failure.source, 'forward')} computes with complex numbers, of which ONNX has none "
        f"and the exporter translates a few operators only, not {_untranslated(failure.text)}",
        "write it with real and imaginary parts, or leave it out of what is exported",
    )


def _opset(failure: _Failure) -> _Said | None:
    asked = _NO_OPSET.search(failure.text)
    if asked is None:
        return None
    low, high = translations.opsets_of_torchscript()
    return _Said(
        f"the {failure.exporter} exporter writes opsets {low} to {high}, and {asked[1]} was asked "
        "for",
        "ask for one of these under export, or leave the opset out",
    )


def _sizes(failure: _Failure) -> _Said | None:
    graphs = [
        value
        for each in failure.chain
        for value in _locals(each)
        if isinstance(value, torch.fx.GraphModule)
    ]
    trace = FailedTrace(graphs, failure.stacks, failure.root)
    tied = constraint(failure.text, failure.spec, trace, failure.source)
    return None if tied is None else _Said(tied.message, tied.remedy, tied.line)


def _optimiser(failure: _Failure) -> _Said | None:
    if not any(map(_in_optimiser, failure.chain)):
        return None
    return _Said(
        "the graph was exported, and onnxscript's optimiser, which the exporter runs, fails on it",
        "leave it out, export: {optimize: false}",
    )


def _in_optimiser(error: BaseException) -> bool:
    frames = traceback.walk_tb(error.__traceback__)
    return any(_OPTIMISER.search(frame.f_code.co_filename) for frame, _ in frames)


def _custom(failure: _Failure) -> _Said | None:
    name = _unfaked(failure.text)
    if name is not None and name.split("::")[0] not in _TORCH_NAMESPACES:
        return _Said(
            f"the custom operator {name} has no fake implementation{at(failure.source)}, so nothing "
            "can trace it",
            f"register one with @torch.library.register_fake({name!r})",
        )
    name = _untranslated(failure.text)
    if name is None or name.split("::")[0] in _TORCH_NAMESPACES:
        return None
    if name.startswith("transformers::grouped_mm"):
        return _Said(
            f"the experts' operator {name} has no translation to ONNX{at(failure.source)}",
            'build the model with transformers\' other one, experts_implementation="batched_mm"',
        )
    return _Said(
        f"the custom operator {name} has no translation to ONNX{at(failure.source)}",
        "write it with PyTorch's own operators, or export with a function of yours (export: "
        '{exporter: "export.py:export"}) that passes custom_translation_table to torch.onnx.export',
    )


def _operator(failure: _Failure) -> _Said | None:
    name = _untranslated(failure.text)
    if name is None:
        return _untraced(failure)
    added = _NO_SYMBOLIC.search(failure.text)
    of = _made_of_it(failure.chain, name)
    missing = f"the {failure.exporter} exporter has no translation of {name}{of}"
    head = f"{missing} to ONNX"
    if added is not None and added[3]:
        return _Said(
            f"{head} at opset {added[2]}{at(failure.source)}: it has one from opset {added[3]} on",
            f"ask for that, export: {{opset: {added[3]}}}",
        )
    overload = (_NO_TRANSLATION.search(failure.text) or ("", "", ""))[2] or ""
    arguments = translations.beyond_default(name, overload)
    if arguments:
        return _Said(
            f"{missing} with `{'`, `'.join(arguments)}` to ONNX{at(failure.source)}, and has one without",
            f"leave {'it' if len(arguments) == 1 else 'them'} out of the call, where that is as good",
        )
    other = translations.elsewhere(name, failure.exporter)
    if other is not None:
        phrase, keys = other
        asked = ", ".join(f"{key}: {value}" for key, value in keys.items())
        return _Said(
            f"{head}{at(failure.source)}, and {phrase} has",
            f"write export: {{{asked}}}",
            changes=(("export", keys),),
        )
    return _Said(
        f"{head} at any opset{at(failure.source)}",
        _parametrized(failure.chain)
        or "write it with other operators, or export with a function of yours that passes "
        "custom_translation_table to torch.onnx.export",
    )


def _untraced(failure: _Failure) -> _Said | None:
    name = _unfaked(failure.text)
    if name is None:
        return None
    # A quantiser appears as what PyTorch makes of it for gradients, with the mask of its clipping.
    name = _CACHEMASK.sub("", name).replace("::_fake", "::fake")
    head = f"torch.export cannot follow {name}{at(failure.source)}"
    other = translations.elsewhere(name, failure.exporter)
    if other is None:
        return _Said(head, "write it with other operators")
    phrase, keys = other
    asked = ", ".join(f"{key}: {value}" for key, value in keys.items())
    return _Said(
        f"{head}, and {phrase} can", f"write export: {{{asked}}}", changes=(("export", keys),)
    )


def _attribute(failure: _Failure) -> _Said | None:
    if "Unsupported attribute type" not in failure.text or "SymbolicTensor" not in failure.text:
        return None
    return _Said(
        f"{shown(failure.source, 'forward')} has a size that varies for a number that is fixed in a "
        "graph, as the groups of a convolution are",
        "declare that dimension with its one size, or write it as products (torch.einsum) of which the "
        "size is an axis",
    )


def _data(failure: _Failure) -> _Said | None:
    line = shown(failure.source, "forward")
    packed = torch.nn.utils.rnn.PackedSequence
    if any(isinstance(value, packed) for each in failure.chain for value in _locals(each)):
        return _Said(
            f"{line} packs sequences by their lengths, which are values of an input: a graph's "
            "sizes cannot depend on values",
            "run the layer on the padded sequence and mask its output",
        )
    if not _DATA_DEPENDENT.search(failure.text):
        return None
    head = (
        f"{line} takes a branch, or makes a size, from the values of tensors, which a graph cannot"
    )
    if failure.source is not None and not (failure.source.inner or failure.source).own:
        return _Said(
            f"{head}. It is a package's",
            f"see whether that has a switch for the export, or {_TRACED}, which keeps the branch "
            "that the example takes; the checks say whether it holds",
        )
    return _Said(
        head,
        "use torch.where where both sides can be computed, torch.cond where not, and torch._check "
        "for what you know of a size; what is the module's own and stays as it is (a flag, a schedule) "
        "may be a number of Python's in the place of a buffer",
    )


def _script(failure: _Failure) -> _Said | None:
    values = [value for each in failure.chain for value in _locals(each)]
    if "LinearPackedParams" in failure.text or "quantized::" in failure.text:
        return _Said(
            f"the {failure.exporter} exporter has no translation of torch.ao's quantised modules"
            f"{at(failure.source)}",
            "export the float model, quantise the file with onnxruntime.quantization, and name it "
            "with onnx:",
        )
    if any(isinstance(value, torch.jit.ScriptModule) for value in values):
        return _Said(
            f"a part of the model is TorchScript{at(failure.source)}, which the {failure.exporter} "
            "exporter does not take inside another module",
            "use the module that it was made from",
        )
    return None


_Recognise = Callable[[_Failure], _Said | None]
# In this order; the number says how many lines of the exporter's own words are worth adding.
_RECOGNISERS: tuple[tuple[Code, _Recognise, int], ...] = (
    (codes.OG118, _opset, 0),
    (codes.OG207, _script, 1),
    (codes.OG207, _optimiser, 1),
    (codes.OG206, _sizes, 0),
    (codes.OG201, _complex, 0),
    (codes.OG207, _promotion, 0),
    (codes.OG207, _taken, 0),
    (codes.OG209, _custom, 1),
    (codes.OG201, _operator, 1),
    (codes.OG206, _attribute, 0),
    (codes.OG203, _data, 1),
)


def _untranslated(text: str) -> str | None:
    """Return the operator that an exporter does not know, as ``aten::linalg_qr``."""
    missing = (
        _NO_TRANSLATION.search(text) or _NO_NAMESPACE.search(text) or _NO_SYMBOLIC.search(text)
    )
    if missing is None:
        return None
    name = missing[1]
    return name if "::" in name else name.replace(".", "::", 1)


def _unfaked(text: str) -> str | None:
    """Return the operator that cannot be traced for want of a fake implementation."""
    fake = _NO_FAKE.search(text)
    return None if fake is None else fake[1] or fake[2]


def _translated(chain: tuple[BaseException, ...]) -> Iterator[torch.fx.Node]:
    """Yield the nodes that the exporter was translating, where it was at that."""
    for error in chain:
        for value in _locals(error):
            if isinstance(value, torch.fx.Node) and value.op == "call_function":
                yield value


def _made_of_it(chain: tuple[BaseException, ...], name: str) -> str:
    """Return of the operator that the module calls that ``name`` is what torch makes of it."""
    called = next((node.meta.get("original_aten") for node in _translated(chain)), None)
    own = str(getattr(getattr(called, "_schema", None), "name", name))
    return "" if own == name else f", which {own} is made of,"


def _parametrized(chain: tuple[BaseException, ...]) -> str:
    """Return how to fix the weight that the operator computes anew at each call, or ''."""
    for node in _translated(chain):
        for path, _ in (node.meta.get("nn_module_stack") or {}).values():
            owner, found, weight = str(path).partition(".parametrizations.")
            if found:
                owner = f"model.{owner}".removesuffix(".").replace("model.L['self'].", "model.")
                return (
                    "fix the weight before it is exported, torch.nn.utils.parametrize."
                    f"remove_parametrizations({owner}, {weight.partition('.')[0]!r})"
                )
    return ""


def _locals(error: BaseException) -> Iterator[Any]:
    """Yield what the frames of a traceback hold: the traced graph is nowhere else."""
    frames = error.__traceback__
    while frames is not None:
        frame = frames.tb_frame
        if "/torch/" in frame.f_code.co_filename:
            yield from list(frame.f_locals.values())
        frames = frames.tb_next


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    seen: set[int] = set()
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (
            None if current.__suppress_context__ else current.__context__
        )


def _essential(error: BaseException, most: int) -> str:
    lines: list[str] = []
    for raw in without_escapes(str(error)).splitlines():
        line = raw.rstrip()
        if not line.strip() or line.strip().startswith(_BOILERPLATE):
            continue
        if re.match(r'\s*File ".*", line \d+', line) and "site-packages" in line:
            continue
        if len(lines) == most:
            lines[-1] += " …"
            break
        lines.append(shortened(line, _WIDTH))
    return f"{type(error).__name__}: " + "\n".join(lines)
