"""A model that need not fit the machine, from its entry to the checks of its blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from onnx_gate.errors import GateError
from onnx_gate.findings import codes
from onnx_gate.findings.finding import Finding
from onnx_gate.manifest import ModelSpec
from onnx_gate.report.model.decisions import Decisions
from onnx_gate.runtimes import state
from onnx_gate.runtimes.half import HALF
from onnx_gate.text import binary_size
from onnx_gate.verify.blocks.block_steps import expected_sizes, steps_of
from onnx_gate.verify.blocks.cuts import divide_file
from onnx_gate.verify.blocks.divided import Divided
from onnx_gate.verify.blocks.export import export_divided
from onnx_gate.verify.blocks.memory import give_back
from onnx_gate.verify.blocks.need import Flow, Need
from onnx_gate.verify.blocks.partition import blocks_of, with_heads_apart
from onnx_gate.verify.blocks.pieces import Pieces
from onnx_gate.verify.blocks.portion import BlockPortion
from onnx_gate.verify.blocks.skeleton import Skeleton, build_skeleton
from onnx_gate.verify.blocks.staged import Staged, Unfit
from onnx_gate.verify.blocks.stored import find_stored
from onnx_gate.verify.blocks.torch_side import TorchSide
from onnx_gate.verify.blocks.walk import BlockWalk, Walked
from onnx_gate.verify.context import Context, Reduced
from onnx_gate.verify.export.export import export
from onnx_gate.verify.export.exported import Exported
from onnx_gate.verify.half import with_half
from onnx_gate.verify.inputs.cases import cases
from onnx_gate.verify.inspect.exact import ExactWeights, exact_weights
from onnx_gate.verify.inspect.inspect import inspect_proto, join_inputs
from onnx_gate.verify.inspect.known_weights import KnownWeights
from onnx_gate.verify.inspect.made import MadeOfNoInput
from onnx_gate.verify.inspect.reduced import reduced_precision
from onnx_gate.verify.inspect.weights import Accounted, identify
from onnx_gate.verify.left_out import leave_out
from onnx_gate.verify.prepare import Prepared, prepare
from onnx_gate.verify.progress import Progress
from onnx_gate.verify.proposal import note
from onnx_gate.verify.reach.account import account, both_ways
from onnx_gate.verify.steps.course import check_steps
from onnx_gate.verify.stopwatch import Clock
from onnx_gate.verify.subject import Locate
from onnx_gate.workers.admission import WEIGHTS_TIMES
from onnx_gate.workers.limits import default_memory_limit

_FLOAT32 = 4


def in_blocks(spec: ModelSpec, workspace: Path) -> bool:
    """Return whether a model is verified block by block: it says so, or is too large for its memory."""
    if spec.verify is not None:
        return spec.verify == "blocks"
    if _unable(spec) or spec.weights is None:
        return False
    try:
        tensors = find_stored(spec.weights, workspace).tensors
    except GateError:
        return False
    whole = WEIGHTS_TIMES * sum(_FLOAT32 * math.prod(each.shape) for each in tensors.values())
    return whole > _limit(spec)


def _limit(spec: ModelSpec) -> int:
    return spec.memory or default_memory_limit()


def _unable(spec: ModelSpec) -> str:
    """Return what of an entry cannot be done block by block, and what to do, or ''."""
    if spec.reference is not None:
        return "there are no modules whose ends could be looked for where two files are compared"
    if spec.weights is None:
        return "name the .safetensors file under weights, and build the model without them"
    if not _is_file(spec) and spec.export.exporter != "dynamo":
        return f"the exporter {spec.export.exporter} needs the weights; leave it out, which means dynamo"
    others = (r for r in spec.runtimes if not r.engine.plain and r.name != HALF)
    other = next((r.label for r in others), None)
    if other is not None:
        return (
            f"{other} does not read weights where they lie; name onnxruntime alone under runtimes"
        )
    return ""


def _is_file(spec: ModelSpec) -> bool:
    """Return whether the file is written by somebody else, and its weights lie in it."""
    return spec.onnx is not None or spec.export.command is not None


@dataclass
class Verified(Walked):
    """What has come of all stages, or of those of one machine, whose ``portion`` it is."""

    decisions: Decisions | None = None
    without_any: tuple[str, ...] = ()
    portion: BlockPortion | None = None
    reduced: Reduced | None = None
    not_numbers: Callable[[], Sequence[str]] = tuple


def verify_blocks(
    spec: ModelSpec, context: Context, progress: Progress, locate: Locate | None = None
) -> Verified:
    """Verify a model block by block; ``locate`` looks for the first wrong node.

    Raises ``GateError``: OG434 where it cannot be done so, OG503 where even that takes more memory than
    there is, and what building, exporting and running raise.
    """
    unable = _unable(spec)
    if unable:
        raise codes.OG434.error(f"models.{spec.name} cannot be verified block by block: {unable}")
    try:
        return _verify(spec, context, progress, locate)
    except Unfit as reason:
        raise codes.OG434.error(str(reason)) from reason


def _verify(
    spec: ModelSpec, context: Context, progress: Progress, locate: Locate | None
) -> Verified:
    with progress.stage("build"):
        skeleton = build_skeleton(spec, context.workspace)
        if not _is_file(spec):
            skeleton = with_heads_apart(skeleton)
        progress.findings += skeleton.findings
        paths = blocks_of(skeleton)
        staged = Staged(skeleton.module, paths)
        inside = {name for path in paths for name in skeleton.named_below(path)}
        outside = frozenset(name for name in skeleton.parameters if name not in inside)

        @contextmanager
        def whole() -> Iterator[None]:
            streamed = staged.streamed(
                lambda path: skeleton.loaded(skeleton.named_in(staged.read_by(path)))
            )
            with skeleton.loaded(outside), streamed:
                yield

        with whole():
            prepared = prepare(spec, context, skeleton.module)
        made = MadeOfNoInput(prepared.eager, prepared.example, whole)
        check_steps(spec, prepared.example, prepared.call.outputs, prepared.sizes)
        progress.findings += prepared.findings
    if _is_file(spec):
        divided = _of_file(spec, context, progress, skeleton, staged, prepared, outside, made)
    else:
        with progress.stage("export"):
            divided = export_divided(
                spec, skeleton, staged, prepared.eager, prepared.example, outside, context.folder
            )
            progress.exported(divided.exported.info)
        with progress.stage("weights"):
            _weights(progress, divided.exported, skeleton, made, divided.parameters)
    exported = divided.exported
    with progress.stage("inspect"):
        progress.findings += inspect_proto(spec, exported, divided.reduced)
    prepared = leave_out(prepared, exported)
    spec = with_half(spec, exported.proto)
    clock = Clock()
    limit = _limit(spec)
    step = partial(progress.step, "verify")
    keep = None if context.blocks is None else progress.block
    torch = TorchSide(skeleton, staged, prepared.eager, divided, Pieces(divided))
    give_back()
    chosen = cases(spec, dict(prepared.sizes), context.workspace, context.patterns)
    every = steps_of(spec, prepared.call.outputs.names, chosen)
    portion = BlockPortion.of_model(spec, torch, len(every))
    flow = Flow.of(prepared, staged, divided)
    flows = [
        flow.at(sizes, prepared.example)
        for each in every
        for sizes in expected_sizes(spec, prepared, each)
    ]
    need, pairs = _need(torch, flows, limit)
    walk = BlockWalk(spec, context, torch, clock, limit, step, locate, keep, pairs, portion)
    told = len(progress.findings)
    told_of = partial(_told, need, [call.name for call in divided.calls], pairs, portion)
    progress.findings.append(told_of())
    print(progress.findings[-1].message, flush=True)
    if need.peak > limit:
        raise codes.OG503.error(
            f"block by block it takes about {binary_size(need.peak)}, and there are {binary_size(limit)}; "
            f"{need.block or 'the rest'} alone has {binary_size(need.largest.nbytes)} of parameters, and "
            f"values that are held have {binary_size(need.values)}"
        )
    with progress.split("verify", clock):
        if (
            not torch.apart
        ):  # what the module said while it was prepared was said without some of them
            with torch.whole():
                outputs = prepared.eager.run(prepared.example)
            prepared = replace(prepared, call=replace(prepared.call, outputs=outputs))
        walked = walk.run(every, join_inputs(spec, exported), need.together)
        difference = ""
        if portion.ends:
            with torch.whole():
                difference = prepared.agrees_still()
    if walked.known:
        progress.findings[told] = told_of(walked.known)
    if difference:
        raise codes.OG106.error(f"the model disagrees with itself: called again, {difference}")
    seen, workspace = walked.seen, context.workspace.resolve()
    return Verified(
        **vars(walked),
        decisions=account(seen, both_ways(seen), workspace, walked.compared, progress.weights)
        if seen
        else None,
        without_any=chosen.without_any,
        portion=portion,
        reduced=divided.reduced,
        not_numbers=lambda: state.not_numbers((n, skeleton.values(n)) for n in skeleton.parameters),
    )


def _of_file(
    spec: ModelSpec,
    context: Context,
    progress: Progress,
    skeleton: Skeleton,
    staged: Staged,
    prepared: Prepared,
    outside: frozenset[str],
    made: MadeOfNoInput,
) -> Divided:
    """Find the blocks in a committed file, and what each of its weights is."""
    with progress.stage("export"):
        exported = export(spec, prepared.eager, prepared.example, context.workspace, context.folder)
        progress.exported(exported.info)
    reduced = reduced_precision(exported.proto, exported.exporter, skeleton.module)
    if reduced is not None:
        progress.findings.append(note(reduced))
    with progress.stage("weights"):
        # What becomes of those that are in no block nothing has watched.
        exact = exact_weights(
            spec, exported.exporter, reduced, lambda: staged.altered | outside, context.today
        )
        found = _weights(progress, exported, skeleton, made, exact=exact)
        # What few bits make of a weight need not be told from another's.
        certain = reduced is None or reduced.is_half
        missing = _missing(found, skeleton) if certain else frozenset()
        give_back()
    with progress.stage("cut"):
        return divide_file(
            exported,
            found.parameters,
            skeleton,
            staged,
            prepared,
            join_inputs(spec, exported),
            outside,
            spec.runtimes[0],
            context.folder / "cut",
            reduced,
            missing,
        )


def _missing(found: Accounted, skeleton: Skeleton) -> frozenset[str]:
    """Return the parameters that a file has not: none where it has weights that could be any."""
    unknown = {each.parameter for each in found.weights.unknown}
    if None in unknown:
        return frozenset()
    every = skeleton.distinct(tuple(skeleton.parameters))
    return frozenset(
        name
        for weight in every
        if (unknown | found.held).isdisjoint(weight.names)
        for name in weight.names
    )


def _weights(
    progress: Progress,
    exported: Exported,
    skeleton: Skeleton,
    made: MadeOfNoInput,
    read: Collection[str] = (),
    exact: ExactWeights | None = None,
) -> Accounted:
    """Find what each weight of the file is, beside those that are ``read`` from the checkpoint itself."""
    known = KnownWeights(skeleton.module, skeleton.values)
    found = identify(
        exported.proto,
        exported.path.parent,
        skeleton.module,
        known,
        exact,
        made=made,
        read=read,
    )
    progress.weights = found.weights
    progress.findings += found.findings
    return found


def _need(torch: TorchSide, flows: Sequence[Flow], limit: int) -> tuple[Need, bool]:
    """Return what it takes, and whether that is with pairs of neighbours: where memory allows these."""
    loads = {stage.name: torch.load(stage) for stage in torch.pieces.stages}
    inside = [torch.load(stage) for stage in torch.pieces.stages if stage.inside]
    held = torch.skeleton.nbytes(tuple(torch.pieces.held))
    pairs = [inside[number - 1] + inside[number] for number in torch.pieces.pairs]
    need = Need.of(loads, pairs, held, flows)
    if need.peak <= limit or not pairs:
        return need, bool(pairs)
    return Need.of(loads, (), held, flows), False


def _told(
    need: Need, blocks: Sequence[str], pairs: bool, portion: BlockPortion, known: int = 0
) -> Finding:
    alone = "; no two neighbours are run together, for which there is too little memory"
    earlier = (
        f"; {known} of them, their weights and what they are given are as they were in an earlier run, "
        "which has verified them"
    )
    part = ""
    if portion.count > 1:
        own = dict.fromkeys((blocks[portion.calls[0]], blocks[portion.calls[-1]]))
        part = f"part {portion.index} of {portion.count}, {' to '.join(own)}, of "
    return codes.OG433.finding(
        f"verified block by block: {part}{len(blocks)} blocks, of which "
        f"{need.block or 'the rest'} is the largest "
        f"({binary_size(need.largest.nbytes)} of parameters); expected to take {binary_size(need.peak)} of "
        "memory, and more where a block holds many large values at once"
        f"{'' if pairs or len(blocks) < 2 else alone}{earlier if known else ''}",
        data={
            "blocks": len(blocks),
            "largest": need.block,
            "peak": need.peak,
            "known": known,
            "pairs": pairs,
        },
    )
