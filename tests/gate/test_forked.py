"""A fork leaves to its parent what is its parent's."""

from __future__ import annotations

import gc
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import psutil
import pytest
import torch
from onnx import TensorProto, helper

from onnx_gate.report.io import read_report
from onnx_gate.runtimes.file_module import FileModule
from onnx_gate.workers.child import LOOKED
from onnx_gate.workers.forked import Fork, beside, run_forked
from tests.support.gate import gate

pytestmark = pytest.mark.process


class Holder:
    session: ort.InferenceSession
    itself: Any


def dropped(path: Path) -> None:
    """Leave a session that nothing but a collection of garbage ends, with threads of its own."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 4
    holder = Holder()
    holder.session = ort.InferenceSession(path, options)
    holder.session.run(None, {"x": np.ones((64, 64), np.float32)})
    holder.itself = holder


@pytest.fixture
def product(tmp_path: Path) -> Path:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64]) for name in "xy"]
    node = helper.make_node("MatMul", ["x", "x"], ["y"])
    path = tmp_path / "m.onnx"
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))
    return path


def test_a_collection_in_the_fork_ends_no_session_of_its_parent(product: Path) -> None:
    gc.disable()
    try:
        dropped(product)
        answer, trouble = run_forked(lambda: {"done": gc.collect() >= 0}, 30)
    finally:
        gc.enable()
    assert (answer, trouble) == ({"done": True}, "")


def test_a_fork_that_the_models_own_code_has_waited_for_has_answered() -> None:
    before = {each.pid for each in psutil.Process().children()}
    fork = Fork(lambda: {"done": True})
    (pid,) = {each.pid for each in psutil.Process().children()} - before
    os.waitpid(pid, 0)
    assert fork.answer(30) == ({"done": True}, "")


def test_a_file_in_the_place_of_a_module_answers_in_a_fork(product: Path) -> None:
    """With a session of the fork's own; that of the parent, with threads, is left as it is."""
    module, x = FileModule(product, {"x": "x"}), torch.ones(64, 64)
    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        module(x)
        answer, trouble = run_forked(lambda: {"sum": float(module(x)["y"].sum())}, 30)
    finally:
        torch.set_num_threads(threads)
    assert (answer, trouble) == ({"sum": 64.0**3}, "")


def test_the_advisory_case_that_ends_its_process_is_named(tmp_path: Path) -> None:
    """ONNX Runtime's LSTM aborts on a batch of none."""
    (tmp_path / "models.py").write_text(
        "from torch import nn\n\n\n"
        "class Lstm(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.rnn = nn.LSTM(4, 4, batch_first=True)\n\n"
        "    def forward(self, x):\n"
        "        return self.rnn(x)[0]\n"
    )
    entry = '{model: "models.py:Lstm", inputs: {x: "float32[batch, 3, 4]"}}'
    (tmp_path / "onnx-gate.yml").write_text(f"version: 1\nmodels:\n  lstm: {entry}\n")
    gate("run", "--remedies", "0", cwd=tmp_path)
    (lstm,) = read_report(tmp_path / "onnx-gate-report" / "report.json").models
    (finding,) = (each for each in lstm.findings if each.code == "OG406")
    assert finding.data == {"case": "advice/empty/batch=0"}
    assert finding.message.startswith("the advisory case advice/empty/batch=0 (large, NaN,")


def test_a_fork_beside_has_threads_of_its_own_and_tells_until_it_is_ended() -> None:
    """Those of its parent do not come along, and who waits for them waits for ever."""
    x = torch.arange(160_000.0).reshape(400, 400) / 160_000
    reading, writing = os.pipe()

    def work(tell: Callable[[object], None]) -> None:
        tell(((x @ x).numpy(), torch.get_num_threads()))
        tell("so far")
        os.write(writing, b"told")
        time.sleep(60)
        tell("never")

    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        own = x @ x
        with beside(work) as told:
            assert select.select([reading], [], [], 30)[0], "the fork hangs"
            assert os.read(reading, 4) == b"told"
            assert torch.equal(x @ x, own)
            assert told == []
    finally:
        torch.set_num_threads(threads)
        os.close(reading)
        os.close(writing)
    ((product, count), second) = told
    assert (product == own.numpy()).all()
    assert (count, second) == (4, "so far")


def test_a_fork_beside_ends_where_it_would_read_something_new() -> None:
    def work(tell: Callable[[object], None]) -> None:
        tell("before")
        sys.audit(LOOKED)
        tell("after")

    with beside(work) as told:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    assert told == ["before"]


def test_nothing_that_becomes_of_a_fork_beside_is_an_error() -> None:
    def work(tell: Callable[[object], None]) -> None:
        tell(1)
        os.kill(os.getpid(), signal.SIGKILL)

    with beside(work) as told:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    assert told == [1]
    with pytest.raises(KeyError), beside(lambda tell: time.sleep(60)):
        raise KeyError
    states = [each.status() for each in psutil.Process().children()]
    assert psutil.STATUS_ZOMBIE not in states


@pytest.mark.parametrize("name", ["write", "remove", "start"])
def test_a_fork_beside_ends_where_it_would_change_what_others_see(
    tmp_path: Path, name: str
) -> None:
    there = tmp_path / "there"
    there.write_text("as it was")
    acts: dict[str, Callable[[], object]] = {
        "write": lambda: there.open("a").write("and more"),
        "remove": there.unlink,
        "start": lambda: subprocess.run(["rm", there], check=True),
    }

    def work(tell: Callable[[object], None]) -> None:
        tell(there.read_text())
        acts[name]()
        tell("after")

    with beside(work) as told:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    assert told == ["as it was"]
    assert there.read_text() == "as it was"
