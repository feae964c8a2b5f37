"""What no input reaches inside of a block, compared at its operator while its weights are loaded.

All cases have gone through the block then, so what they have not shown they will not. It is run once more,
node by node, on one case, when its runtimes are closed: in the place of these, with what flows inside.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping

import numpy as np
import onnx

from onnx_gate.graph.steer import Steered
from onnx_gate.manifest import InputSpec
from onnx_gate.runtimes.base import Array, Refusal
from onnx_gate.verify.blocks.pieces import BlockStage
from onnx_gate.verify.blocks.torch_side import GRAPH, Said, TorchSide
from onnx_gate.verify.reach.probe import EXACT, INTEGER, Probe, probe, to_compare
from onnx_gate.verify.reach.watcher import Watcher


def compared_inside(
    torch: TorchSide,
    stage: BlockStage,
    graph: onnx.ModelProto,
    said: Said,
    watcher: Watcher,
    cases: int,
    inputs: Mapping[str, InputSpec],
) -> list[Probe]:
    """Return the sides that were compared, of those that none of so many cases has shown in a block.

    ``graph`` is its piece, and ``inputs`` are the model's: of what is one of these with a declared range
    nothing beyond is asked. Nothing is compared where the piece cannot be run node by node; what goes wrong
    with values that nobody meant for it is in the model's log, and is no error of the model's.
    """
    paths = tuple(f"{torch.path(each)}." for each in (*torch.hidden(stage.number), stage))
    if not any(f"{site.module}.".startswith(paths) for site, _ in to_compare(watcher)):
        return []
    watcher.eager, arrays = said.eager, said.case.arrays
    own = {name: arrays[name] for name in said.eager.binding.order}
    kept = [arrays[name] for name, each in inputs.items() if each.range is not None]
    ranged = {name for name, array in own.items() if any(_same(array, each) for each in kept)}
    divided = torch.divided
    feeds = {name: arrays[GRAPH + name] for name in stage.piece.needs}
    nearness = EXACT if divided.reduced is None else INTEGER
    try:
        names = said.eager.run(own).names
        order = [stage.names.index(name) for name in names]
        steered = Steered(graph, divided.folder / "graph", feeds, in_place=True)
        return list(probe(watcher, own, cases, steered, order, ranged, nearness))
    except Refusal:
        return []
    except Exception:
        traceback.print_exc()
        return []


def _same(one: Array, other: Array) -> bool:
    return one.dtype == other.dtype and np.array_equal(one, other)
