"""Record every value of an exported program, by the name that the ONNX graph has for it."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree
from torch import fx
from torch.export.graph_signature import InputKind, OutputKind

from onnx_gate.diagnose.trace.trace import INPUT, Input, OperatorCall, Trace
from onnx_gate.diagnose.values import ArrayStore
from onnx_gate.errors import GateError
from onnx_gate.graph.module_path import module_of_fx
from onnx_gate.runtimes.base import Array
from onnx_gate.runtimes.torch_eager import Eager, to_array, to_tensor
from onnx_gate.verify.source_lines import of_stack, own_source
from onnx_gate.verify.subject import Subject


class Recorder(fx.Interpreter):
    """Runs a graph module and adds what its nodes return to a trace."""

    def __init__(
        self,
        module: fx.GraphModule,
        trace: Trace,
        store: ArrayStore,
        workspace: Path,
        inputs: Collection[str] = (),
    ) -> None:
        super().__init__(module)
        self._trace, self._store, self._workspace = trace, store, workspace
        self._inputs = inputs
        self.numbers: dict[fx.Node, int] = {}
        self._calls: dict[fx.Node, OperatorCall] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run one node and record its value."""
        if n.op == "call_function" and n.target is torch.ops.higher_order.cond:
            return self._branch(n)
        call = self._call(n)
        value = super().run_node(n)
        if n.op == "call_function" or n.name in self._inputs:
            array = self._array(value)
            if array is not None:
                self._add(n, array, call)
        return value

    def _add(self, n: fx.Node, array: Array, call: OperatorCall | None) -> None:
        parents = [p for i in n.all_input_nodes for p in self._origins(i)]
        self.numbers[n] = self._trace.add(
            self._store.put(array),
            str(n.target) if n.op == "call_function" else f"{INPUT}{n.name}",
            parents,
            name=n.name,
            module=module_of_fx(n.meta),
            source=own_source(of_stack(n.meta.get("stack_trace") or "", self._workspace)),
            call=call,
        ).number

    def _array(self, value: Any) -> Array | None:
        if isinstance(value, torch.Tensor):
            try:
                return to_array(value)
            except (GateError, RuntimeError):
                return None
        if isinstance(value, bool | int):
            return np.asarray(value, np.bool_ if isinstance(value, bool) else np.int64)
        return None

    def _origins(self, n: fx.Node) -> list[int]:
        """Return the traced values behind a node, through nodes that have none (tuples)."""
        if n in self.numbers:
            return [self.numbers[n]]
        return [p for i in n.all_input_nodes for p in self._origins(i)]

    def _call(self, n: fx.Node) -> OperatorCall | None:
        """Return the call of a node that is about to run, or of the node whose output it takes."""
        if n.target is operator.getitem and n.args[0] in self._calls:
            whole = self._calls[n.args[0]]  # type: ignore[index]
            return OperatorCall(whole.function, whole.args, whole.kwargs, n.args[1])  # type: ignore[arg-type]
        if n.op != "call_function" or not isinstance(n.target, torch._ops.OpOverload):
            return None

        def reference(node: fx.Node) -> Any:
            number, value = self.numbers.get(node), self.env.get(node)
            return Input(number) if number is not None and _is_tensor(value) else value

        args, kwargs = fx.map_arg((n.args, n.kwargs), reference)
        self._calls[n] = OperatorCall(n.target, tuple(args), dict(kwargs))
        return self._calls[n]

    def _branch(self, n: fx.Node) -> Any:
        """Run the branch of a ``cond`` that is taken as this graph's own nodes are run."""
        given: Any = fx.map_arg(n.args[:4], lambda node: self.env[node])
        predicate, when_true, when_false, operands = given
        module = when_true if bool(predicate) else when_false
        inner = Recorder(module, self._trace, self._store, self._workspace)
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        for placeholder, outer in zip(placeholders, pytree.tree_leaves(n.args[3]), strict=False):
            if isinstance(outer, fx.Node) and outer in self.numbers:
                inner.numbers[placeholder] = self.numbers[outer]
        result = inner.run(*operands)
        last = next(node for node in module.graph.nodes if node.op == "output")
        self.numbers[n] = max((inner.numbers.get(i, 0) for i in last.all_input_nodes), default=0)
        return result


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def record_program(
    subject: Subject, program: torch.export.ExportedProgram, trace: Trace, store: ArrayStore
) -> list[int | None] | None:
    """Run ``program`` once and add every value to ``trace``; return the numbers of its outputs.

    ``None`` where the program cannot be run on these inputs.
    """
    joined = join_program(subject.eager, program)
    specs = program.graph_signature.input_specs
    try:
        values = [_argument(spec, program, subject, joined) for spec in specs]
        recorder = Recorder(
            program.graph_module, trace, store, subject.workspace, set(joined.values())
        )
        with torch.no_grad():
            recorder.run(*values)
    except MemoryError:
        raise
    except Exception:
        return None
    last = next(node for node in program.graph.nodes if node.op == "output")
    by_name = {node.name: node for node in program.graph.nodes}
    numbers: list[int | None] = []
    for spec, value in zip(program.graph_signature.output_specs, last.args[0], strict=True):
        if spec.kind == OutputKind.USER_OUTPUT:
            node = by_name.get(getattr(value, "name", ""))
            numbers.append(None if node is None else recorder.numbers.get(node))
    return numbers


def _argument(
    spec: Any, program: torch.export.ExportedProgram, subject: Subject, joined: Mapping[str, str]
) -> Any:
    if spec.kind == InputKind.USER_INPUT:
        names = {graph: name for name, graph in joined.items()}
        name = names.get(spec.arg.name)
        if name is None:
            value = getattr(spec.arg, "value", None)
            if value is None and type(spec.arg).__name__ == "TensorArgument":
                raise KeyError(spec.arg.name)
            return value
        return to_tensor(subject.arrays[name])
    if spec.target in program.state_dict:
        return program.state_dict[spec.target]
    return program.constants[spec.target]


def join_program(eager: Eager, program: torch.export.ExportedProgram) -> dict[str, str]:
    """Map the manifest's inputs to the program's, which has them in the order of ``forward``."""
    users = [
        spec.arg.name
        for spec in program.graph_signature.input_specs
        if spec.kind == InputKind.USER_INPUT
    ]
    order = eager.binding.order
    if len(users) == len(order):
        return dict(zip(order, users, strict=True))
    return {name: name for name in order if name in users}
