"""The links between a module and a runtime's answer, each run alone, in a fork, with a time limit.

In a fork, because a session may abort its process, an evaluator may take for ever, and a module
that keeps state must not notice.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from onnx_gate.deadline import Deadline
from onnx_gate.errors import GateError
from onnx_gate.findings.codes import code_of
from onnx_gate.graph.walk import all_nodes, opset_of, trains
from onnx_gate.manifest import RuntimeSpec
from onnx_gate.runtimes.base import Array, Refusal, first_line
from onnx_gate.runtimes.open import open_session
from onnx_gate.runtimes.torch_eager import Eager
from onnx_gate.verify.determinism import call_once, second_difference
from onnx_gate.verify.inputs.example import examples
from onnx_gate.verify.sessions import answers_of
from onnx_gate.verify.subject import Subject
from onnx_gate.workers.forked import Trouble, run_forked

T = TypeVar("T")

# The most that one experiment may take, in seconds.
FORWARD = 30.0
RUN = 20.0
EVALUATOR = 15.0
EXPORT = 40.0
# Below this nothing is begun.
SHORTEST = 0.5
# Models with more weights than this are too much for the reference evaluator.
EVALUATOR_BYTES = 256 * 2**20
# Before this opset the reference evaluator normalises by the running statistics, moved by the batch's.
_TRAINED = 14


@dataclass(frozen=True)
class Answer:
    """What one link says: the diverged output, and how many outputs there are.

    ``refused`` is its own sentence where it raises on these inputs, ``failed`` says why the
    experiment could not be made at all; ``array`` is then ``None``. ``crashed``: it failed because
    its process was killed by a signal. ``noticed`` are warnings.
    """

    array: Array | None = None
    count: int = 0
    refused: str = ""
    failed: str = ""
    crashed: bool = False
    noticed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Twice:
    """PyTorch called twice: its first answer, how the second differs, and what was noticed."""

    answer: Answer
    difference: str = ""
    noticed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fresh:
    """A new export of the module; ``program`` is what torch.export's program says on the case."""

    path: Path = Path()
    inputs: Mapping[str, str] = field(default_factory=dict)
    program: Answer | None = None
    failed: str = ""


class Bench:
    """Runs the links of one subject's chain for as long as there is time.

    Attention is run without its fast path, as exporters see it.
    """

    def __init__(self, subject: Subject, seconds: float) -> None:
        self.subject = subject
        self.eager = subject.eager.without_fast_path() or subject.eager
        self._deadline = Deadline(seconds)
        self._example: tuple[tuple[Mapping[str, Array], Answer] | None, ...] = ()
        subject.folder.mkdir(parents=True, exist_ok=True)

    def left(self) -> float:
        """Return the seconds that are left."""
        return self._deadline.left

    def apart(self, work: Callable[[], T], seconds: float) -> tuple[T | None, Trouble]:
        """Return what ``work`` returns in a fork, or ``None`` and why there is nothing."""
        seconds = min(seconds, self.left())
        if seconds < SHORTEST:
            return None, Trouble("no time was left for it")
        with tempfile.TemporaryDirectory(dir=self.subject.folder) as folder:
            path = Path(folder) / "result"

            def attempt() -> dict[str, Any]:
                try:
                    outcome: tuple[T | None, Trouble] = work(), Trouble()
                except Exception as error:
                    outcome = None, Trouble(f"{type(error).__name__}: {first_line(error)}")
                path.write_bytes(pickle.dumps(outcome))
                return {}

            _, trouble = run_forked(attempt, seconds)
            if trouble:
                return None, trouble
            # Written by our own fork a moment ago.
            result: tuple[T | None, Trouble] = pickle.loads(path.read_bytes())
            return result

    def answer(self, work: Callable[[], Sequence[Array]], seconds: float) -> Answer:
        """Return the diverged output of what ``work`` returns in a fork."""

        def attempt() -> Answer:
            try:
                return self.select(work())
            except Refusal as error:
                return Answer(refused=str(error))
            except GateError as error:
                if code_of(error.code).load_failure:
                    return Answer(refused=error.message)
                return Answer(failed=error.message)

        answer, trouble = self.apart(attempt, seconds)
        return answer or Answer(failed=trouble, crashed=trouble.killed)

    def twice(self) -> Twice:
        """Call the module twice on the case's inputs."""
        arrays = self.subject.arrays

        def attempt() -> Twice:
            try:
                call = call_once(self.eager, arrays)
                difference = second_difference(self.eager, arrays, call)
            except Refusal as error:
                return Twice(Answer(refused=str(error)))
            except GateError as error:
                return Twice(Answer(failed=error.message))
            if difference:
                return Twice(Answer(failed=difference), difference=difference)
            noticed = tuple(finding.message for finding in call.findings())
            return Twice(self.select(call.outputs.arrays), noticed=noticed)

        twice, trouble = self.apart(attempt, FORWARD)
        return twice if twice is not None else Twice(Answer(failed=trouble))

    def eager_answer(self, eager: Eager, arrays: Mapping[str, Array]) -> Answer:
        """Call ``eager`` once."""
        return self.answer(lambda: eager.run(arrays).arrays, FORWARD)

    def runtime(
        self,
        spec: RuntimeSpec,
        arrays: Mapping[str, Array],
        fresh: Fresh | None = None,
        seconds: float = RUN,
    ) -> Answer:
        """Run the exported file, or a fresh export, in a runtime."""
        path = fresh.path if fresh else self.subject.exported.path
        inputs = fresh.inputs if fresh else self.subject.graph_inputs

        def work() -> Sequence[Array]:
            session = open_session(path, spec)
            half = self.subject.half if fresh is None else None
            answers, refused = answers_of(session, arrays, inputs, half)
            if refused is not None:
                raise refused
            return answers or ()

        answer = self.answer(work, seconds)
        if answer.crashed:
            return Answer(refused=f"it takes its process down: {answer.failed}")
        return answer

    def evaluator(self, arrays: Mapping[str, Array]) -> Answer:
        """Run the exported file in ONNX's reference evaluator."""
        size = self.subject.exported.size
        if size > EVALUATOR_BYTES:
            return Answer(failed=f"{size / 2**20:.0f} MiB are too much for it")
        proto = self.subject.exported.proto
        if opset_of(proto) < _TRAINED and any(
            node.op_type == "BatchNormalization" and trains(node) for node in all_nodes(proto)
        ):
            return Answer(failed="it has no statistics of the batch before opset 14")
        return self.runtime(RuntimeSpec("reference"), arrays, seconds=EVALUATOR)

    def example(self) -> tuple[Mapping[str, Array], Answer] | None:
        """Return the inputs that the model was exported with, and PyTorch's answer to them.

        ``None`` where they cannot be drawn again. Made once.
        """
        if not self._example:
            self._example = (self.apart(self._draw_example, FORWARD)[0],)
        return self._example[0]

    def _draw_example(self) -> tuple[Mapping[str, Array], Answer] | None:
        subject = self.subject
        first = subject.exported.example or None
        for _, arrays in examples(subject.spec, subject.workspace, first):
            try:
                return arrays, self.select(self.eager.run(arrays).arrays)
            except Refusal:
                continue
        return None

    def select(self, arrays: Sequence[Array]) -> Answer:
        """Return the diverged one of the outputs of the model."""
        index = self.subject.output
        return Answer(arrays[index] if index < len(arrays) else None, len(arrays))
