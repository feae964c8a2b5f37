"""A graph cut at its borders: each piece a file of its own that reads its weights in the checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx
from onnx import helper

from onnx_gate.graph.extract import between, cut, open_ends, stored_by
from onnx_gate.graph.graph import Node, read_graph
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.blocks.divided import Divided, is_table
from onnx_gate.verify.blocks.staged import Place

_COPY = ".copy"


@dataclass(frozen=True)
class Piece:
    """The nodes between some values of the graph and ``outputs``.

    ``needs`` are the values that it is fed with, ``parameters`` those of the module that it reads.
    """

    nodes: tuple[Node, ...]
    needs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: frozenset[str]


@dataclass(frozen=True)
class BlockStage:
    """One step of the way through a model: from one border to the next.

    ``number`` is how many calls of blocks lie before it. ``inside``: it is the block of that number;
    otherwise what leads from the blocks before to its inputs, and after the last block to the outputs.
    ``places`` are those of the piece's outputs in what PyTorch has there, ``names`` what they are called.
    """

    number: int
    inside: bool
    name: str
    piece: Piece
    places: tuple[Place, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What the piece's outputs are called in checks; those of the model have names of their own."""
        side = self.name if self.inside else f"{self.name}:in"
        alone = sum(isinstance(place, int) for place in self.places) == 1
        return tuple(
            side if alone and isinstance(place, int) else f"{side}[{place}]"
            for place in self.places
        )


class Cutter:
    """Cuts a graph whose external data are in ``folder``; ``parameters`` are those of its initializers."""

    def __init__(self, proto: onnx.ModelProto, folder: Path, parameters: Mapping[str, str]) -> None:
        self._proto, self.parameters = proto, parameters
        # Of the path its folder alone is used.
        self.graph = read_graph(proto, folder / "graph")

    def piece(self, outputs: Sequence[str], stop: Collection[str]) -> Piece:
        """Return what makes ``outputs`` of the values ``stop``."""
        nodes = tuple(between(self.graph, outputs, stop))
        made = {name for node in nodes for name in node.outputs}
        needs = [*open_ends(self.graph, nodes), *(name for name in outputs if name not in made)]
        own = self.parameters
        read = frozenset(own[n] for n in stored_by(self.graph, nodes) if n in own)
        return Piece(nodes, tuple(dict.fromkeys(needs)), tuple(outputs), read)

    def write(self, piece: Piece, feeds: Mapping[str, Array], path: Path) -> onnx.ModelProto:
        """Write a piece that takes arrays like ``feeds``, of any sizes; return it.

        An output that is an input, too, gets a name of its own.
        """
        model = self._model(piece, feeds)
        onnx.save_model(model, str(path))
        return model

    def write_whole(self, piece: Piece, feeds: Mapping[str, Array], path: Path) -> onnx.ModelProto:
        """Write a piece with its weights in it; return it."""
        model = self._model(piece, feeds)
        for tensor in model.graph.initializer:
            tensor.CopyFrom(self.graph.constants.embedded(tensor.name))
        onnx.save_model(model, str(path))
        return model

    def _model(self, piece: Piece, feeds: Mapping[str, Array]) -> onnx.ModelProto:
        outputs = tuple(n + _COPY if n in piece.needs else n for n in piece.outputs)
        inputs = {name: feeds[name] for name in piece.needs}
        model = cut(
            self._proto, self.graph, piece.nodes, inputs, dict.fromkeys(outputs), in_place=True
        )
        for name, copy in zip(piece.outputs, outputs, strict=True):
            if copy != name:
                model.graph.node.append(helper.make_node("Identity", [name], [copy]))
        return model


def _made(piece: Piece) -> set[str]:
    return {name for node in piece.nodes for name in node.outputs}


class Pieces(Cutter):
    """All pieces of a divided graph; ``pairs`` are those of a call and the one before, by its number."""

    def __init__(self, divided: Divided) -> None:
        super().__init__(divided.exported.proto, divided.folder, divided.parameters)
        self._outside = divided.outside
        calls = divided.calls
        # Not those of later calls: what these are given may be made before.
        borders: set[str] = set()
        known = set(self.graph.inputs)
        stages = []
        self.pairs: dict[int, Piece] = {}
        begin: set[str] = set()
        for number, call in enumerate(calls):
            if number and calls[number - 1].outputs and call.outputs:
                pair = self.piece(tuple(call.outputs.values()), {*begin, *self.graph.inputs})
                if not {*calls[number - 1].outputs.values()}.isdisjoint(_made(pair)):
                    self.pairs[number] = pair
            begin = {*known, *call.inputs.values()}
            borders |= {*call.inputs.values(), *call.outputs.values()}
            for inside, values in ((False, call.inputs), (True, call.outputs)):
                stop = borders - set(values.values()) if inside else known
                piece = self.piece(tuple(values.values()), {*stop, *self.graph.inputs})
                stages.append(BlockStage(number, inside, call.name, piece, tuple(values)))
            known |= set(call.outputs.values())
        outputs = self.graph.outputs
        last = self.piece(outputs, known)
        stages.append(BlockStage(len(calls), False, "", last, tuple(range(len(outputs)))))
        self.stages = tuple(stages)
        self.outputs = outputs

    @property
    def held(self) -> frozenset[str]:
        """The parameters that are read outside of blocks."""
        read = (n for s in self.stages if not s.inside for n in s.piece.parameters)
        return self._outside.union(read)

    @cached_property
    def tables(self) -> frozenset[str]:
        """The parameters of which nodes read rows alone, chosen by what goes into the graph."""
        rows: dict[str, bool] = {}
        for name, own in self.parameters.items():
            nodes = self.graph.readers.get(name, ())
            chosen = is_table(name, [node.proto for node in nodes]) and not any(
                self.graph.is_constant(index) for node in nodes for index in node.inputs[1:]
            )
            if nodes:
                rows[own] = rows.get(own, True) and chosen
        return frozenset(own for own, chosen in rows.items() if chosen)

    def read_after(self, place: int, pairs: bool = False) -> frozenset[str]:
        """Return the values that stages behind that of this place are fed with, and all outputs.

        With ``pairs`` blocks are run with the ones before as well.
        """
        later = [stage.piece for stage in self.stages[place + 1 :]]
        if pairs:
            later += [p for number, p in self.pairs.items() if 2 * number + 1 > place]
        return frozenset(self.outputs).union(*(piece.needs for piece in later))
