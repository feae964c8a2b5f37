"""A divergence as a folder in ONNX's own test layout, cut down to the nodes that make it."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
import onnxruntime as ort
import torch
from onnx import numpy_helper

import onnx_gate
from onnx_gate.diagnose.bench import RUN, Bench
from onnx_gate.diagnose.localize.localize import Located
from onnx_gate.diagnose.repro.reduce import Shrinker, least_error
from onnx_gate.diagnose.repro.replay import (
    DATA_SET,
    MODEL,
    Limits,
    Replayed,
    replay,
    replay_arguments,
)
from onnx_gate.graph.extract import between, cut, open_ends, weight_bytes
from onnx_gate.graph.graph import Node, as_it_is, read_graph
from onnx_gate.graph.walk import inlined
from onnx_gate.report.layout import REPRO
from onnx_gate.report.model.diagnosis import Diagnosis
from onnx_gate.report.render.escape import code
from onnx_gate.runtimes.base import Array, contiguous, first_line
from onnx_gate.text import listed
from onnx_gate.verify.subject import Subject

MAX_BYTES = 64 * 2**20
SECONDS = 60.0
_NAME = 80


@dataclass(frozen=True)
class Repro:
    """A folder that shows a divergence, of ``nodes`` nodes; or no folder, and ``reason`` says why."""

    path: Path | None
    nodes: int = 0
    reason: str = ""


@dataclass(frozen=True)
class _Piece:
    """A candidate: nodes, what goes in, what should come out, and what that is."""

    nodes: Sequence[Node]
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    what: str
    whole: bool = False


def make_repro(
    subject: Subject,
    located: Located,
    max_bytes: int = MAX_BYTES,
    *,
    plain_agrees: bool | None = None,
    seconds: float = SECONDS,
) -> Repro:
    """Write the smallest part of the graph that still diverges to ``subject.repro``/MODEL/CASE.

    Inputs and outputs of the node that was ``located`` may also lie further up and down.
    ``plain_agrees``: ONNX Runtime without optimisations agrees with PyTorch, so a fusion is looked
    for. Nothing larger than ``max_bytes`` is written. Never raises.
    """
    try:
        writer = _Writer(subject, max_bytes, Bench(subject, seconds))
        return writer.write(located, plain_agrees)
    except Exception as error:
        return Repro(None, reason=f"no reproduction: {type(error).__name__}: {first_line(error)}")


def with_repro(subject: Subject, diagnosis: Diagnosis, seconds: float) -> Diagnosis:
    """Return a diagnosis with a reproduction of the whole graph, and with how to replay it."""
    made = make_repro(subject, Located(), seconds=seconds)
    kept = {
        "repro": repro_path(subject, made),
        "replay": replay_arguments(subject.runtime),
        "note": "; ".join(note for note in (diagnosis.note, made.reason) if note),
    }
    return diagnosis.model_copy(update=kept)


def repro_path(subject: Subject, made: Repro) -> str | None:
    """Return where a reproduction is in the model's folder, as the report has it."""
    if made.path is None:
        return None
    return (Path(REPRO) / made.path.relative_to(subject.repro)).as_posix()


class _Writer:
    def __init__(self, subject: Subject, max_bytes: int, bench: Bench) -> None:
        self._subject, self._max, self._bench = subject, max_bytes, bench
        self._source = subject.exported.proto
        self._graph = as_it_is(self._source, subject.exported.path)
        self._feeds = subject.feeds()
        self._large = False
        self._trouble = ""

    def write(self, located: Located, plain_agrees: bool | None) -> Repro:
        node = located.node
        known = {*self._graph.producer, *self._graph.inputs}
        wanted = {*located.inputs, *located.expected}
        wanted |= {node.output} if node and node.output else set()
        if self._source.functions and not wanted <= known:
            self._source = inlined(self._source)
            self._graph = read_graph(self._source, self._subject.exported.path)
        for part in self._candidates(located, plain_agrees):
            path = self._try(part)
            if path is not None:
                return Repro(path, len(part.nodes))
        if self._large:
            reason = f"a reproduction would be larger than {self._max / 2**20:.3g} MiB"
            return Repro(None, reason=reason)
        reason = "no part of the graph, nor all of it, shows the divergence when it is replayed"
        return Repro(None, reason=f"{reason}: {self._trouble}" if self._trouble else reason)

    def _candidates(self, located: Located, plain_agrees: bool | None) -> Iterator[_Piece]:
        inputs = located.inputs
        made = {n: a for n, a in located.expected.items() if n in self._graph.producer}
        if made and inputs:
            stop = {**self._feeds, **inputs}
            yield self._part(between(self._graph, made, inputs), stop, made, "PyTorch's")
        if plain_agrees:
            fused = self._fused()
            if fused is not None:
                yield fused
        if made:
            nodes = between(self._graph, made, self._feeds)
            yield self._part(nodes, self._feeds, made, "PyTorch's")
        whole = self._whole()
        if whole is not None:
            yield whole

    def _part(
        self,
        nodes: Sequence[Node],
        values: Mapping[str, Array],
        outputs: Mapping[str, Array],
        what: str,
    ) -> _Piece:
        ends = open_ends(self._graph, nodes)
        return _Piece(nodes, {name: values[name] for name in ends if name in values}, outputs, what)

    def _fused(self) -> _Piece | None:
        """Look for the part that an optimiser changes."""
        subject = self._subject
        output = self._graph.outputs[subject.output]

        def work() -> tuple[list[int], Mapping[str, Array], Mapping[str, Array]] | None:
            with tempfile.TemporaryDirectory(dir=subject.folder) as folder:
                part = Shrinker(
                    self._source,
                    self._graph,
                    self._feeds,
                    subject.runtime,
                    Path(folder),
                    self._bench.left() / 3,
                ).find(output)
            if part is None:
                return None
            return [node.index for node in part.nodes], part.inputs, part.outputs

        smallest, _ = self._bench.apart(work, self._bench.left() / 2)
        if smallest is None:
            return None
        indices, inputs, outputs = smallest
        nodes = [self._graph.nodes[index] for index in indices]
        return _Piece(
            nodes, inputs, outputs, "what they make without optimisations, as PyTorch does"
        )

    def _whole(self) -> _Piece | None:
        answer = self._bench.eager_answer(self._bench.eager, self._subject.arrays)
        if answer.array is None or self._subject.output >= len(self._graph.outputs):
            return None
        name = self._graph.outputs[self._subject.output]
        nodes = between(self._graph, [name], self._feeds)
        expected, what = self._as_judged(answer.array)
        return replace(self._part(nodes, self._feeds, {name: expected}, what), whole=True)

    def _as_judged(self, expected: Array) -> tuple[Array, str]:
        """Return what has to come out, and whose it is: not PyTorch's where it is not judged.

        A replay compares every element, so the rest is what the runtime answers.
        """
        subject = self._subject
        if subject.spec.where:
            answer = self._bench.runtime(subject.runtime, subject.arrays).array
            if answer is not None:
                whose = "PyTorch's, and the runtime's own where the manifest has nothing judged"
                return subject.judged(expected, subject.arrays, answer), whose
        return expected, "PyTorch's"

    def _try(self, part: _Piece) -> Path | None:
        """Write a part beside its place and move it there if it shows the divergence."""
        arrays = [*part.inputs.values(), *part.outputs.values()]
        size = weight_bytes(self._graph, part.nodes) + sum(a.nbytes for a in arrays)
        if not part.nodes or size > self._max:
            self._large |= size > self._max
            return None
        if set(open_ends(self._graph, part.nodes)) != part.inputs.keys():
            return None
        subject = self._subject
        subject.repro.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".writing-", dir=subject.repro))
        try:
            model = cut(self._source, self._graph, part.nodes, part.inputs, part.outputs)
            onnx.checker.check_model(model)
            _write(folder, model, part)
            if sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) > self._max:
                self._large = True
                return None
            results, self._trouble = self._bench.apart(
                lambda: replay(folder, subject.runtime, Limits()), RUN
            )
            worst = self._shown(results or (), part)
            if worst is None:
                return None
            (folder / "README.md").write_text(self._readme(part, worst), encoding="utf-8")
            folder.chmod(0o755)
            return self._place(folder)
        except (onnx.checker.ValidationError, ValueError, TypeError) as error:
            self._trouble = first_line(error)
            return None
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _shown(self, results: Sequence[Replayed], part: _Piece) -> Replayed | None:
        """Return the worst result if it is the divergence and no other trouble."""
        refusing = bool(self._subject.check.refused)
        wrong = [r for r in results if not r.agrees and (refusing or not r.refused)]
        if not wrong:
            return None
        worst = max(wrong, key=lambda r: r.error)
        known = not part.whole and worst.output in part.outputs
        least = least_error(part.outputs[worst.output]) if known else 0.0
        return worst if worst.error > least else None

    def _place(self, folder: Path) -> Path:
        check, folder_of = self._subject.check, self._subject.repro / _safe(self._subject.spec.name)
        final = folder_of / _safe(check.case)
        if final.exists():  # another runtime's
            final = folder_of / _safe(f"{check.case} {check.runtime}")
        if self._subject.repro not in final.parents:
            raise ValueError(f"{final} is outside of {self._subject.repro}")
        final.parent.mkdir(parents=True, exist_ok=True)
        if final.exists():
            shutil.rmtree(final)
        os.replace(folder, final)
        return final

    def _readme(self, part: _Piece, worst: Replayed) -> str:
        subject, runtime = self._subject, self._subject.runtime
        kinds = [node.op_type for node in part.nodes if node.op_type != "Constant"]
        return README.format(
            model=code(subject.spec.name),
            case=code(subject.check.case),
            runtime=code(runtime.label),
            count=len(part.nodes),
            all=len(self._graph.nodes),
            kinds=code(listed(kinds, 8)),
            opset=subject.exported.opset,
            what=part.what,
            worst=code(str(worst)),
            command=shlex.join(("onnx-gate", "replay", ".", *replay_arguments(runtime))),
            versions=f"onnx-gate {onnx_gate.__version__}, Python {platform.python_version()}, "
            f"torch {torch.__version__}, onnx {onnx.__version__}, onnxruntime {ort.__version__}, "
            f"{platform.machine()}",
        )


README = """# A divergence of {model}

On {case}, {runtime} answers otherwise than PyTorch. `model.onnx` is {count} of the {all} nodes of
the exported graph, opset {opset}: {kinds}. `test_data_set_0` holds what goes into them
(`input_*.pb`) and what has to come out (`output_*.pb`): {what}.

Seen here: {worst}

Replay it in this folder, or with any runner of ONNX backend tests:

    {command}

Versions: {versions}
"""


def _write(folder: Path, model: onnx.ModelProto, part: _Piece) -> None:
    onnx.save(model, str(folder / MODEL))
    data = folder / f"{DATA_SET}0"
    data.mkdir()
    for kind, values in (("input", part.inputs), ("output", part.outputs)):
        for index, (name, array) in enumerate(values.items()):
            tensor = numpy_helper.from_array(contiguous(array), name)
            (data / f"{kind}_{index}.pb").write_bytes(tensor.SerializeToString())


def _safe(name: str) -> str:
    """Return a name that is one part of a path on any system."""
    text = re.sub(r"[^A-Za-z0-9._=,-]+", "_", name).strip("._") or "model"
    return text[:_NAME]
