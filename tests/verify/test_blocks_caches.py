"""Caches that blocks are given and write to: handed on, and judged where they leave a block."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from onnx_gate.diagnose.blocks import locate
from onnx_gate.manifest.spec import ModelSpec
from onnx_gate.report.model import ModelResult
from onnx_gate.verify.blocks.staged import Call, Leaves, Unfit
from onnx_gate.verify.context import Context
from onnx_gate.verify.verify import verify
from tests.support.blocks_caches import cached, committed

pytest.importorskip("transformers.cache_utils")

PRESENT = {f"present.{n}.{half}" for n in range(3) for half in ("key", "value")}


def verified(folder: Path, spec: ModelSpec) -> ModelResult:
    return verify(spec, Context(folder, folder / "out"), lambda _: None, locate=locate)


def own(layer: int, *halves: str) -> set[str]:
    return {f"layers.{layer}[cache.layers.{layer}.{half}]" for half in halves}


@pytest.mark.slow
@pytest.mark.parametrize("past", [True, False])
def test_what_each_layer_writes_to_a_cache_is_judged_where_it_leaves_the_layer(
    tmp_path: Path, past: bool
) -> None:
    result = verified(tmp_path, cached(tmp_path, past=past))
    assert result.verdict == "pass", result.error
    for n in range(3):
        outputs = {c.output for c in result.checks if c.block == f"layers.{n}" and c.compared}
        assert outputs == {f"layers.{n}:in", f"layers.{n}", *own(n, "keys", "values")}
    ends = {c.output for c in result.checks if not c.block}
    (carried,) = {c.case for c in result.checks if c.case.endswith("/carried")}
    assert {name.replace("past_key_values", "present") for name in ends} == {"logits", *PRESENT}
    assert sum(c.case == carried for c in result.checks) == len(ends)


@pytest.mark.slow
def test_a_wrong_key_is_found_in_its_layer(tmp_path: Path) -> None:
    result = verified(tmp_path, cached(tmp_path, fault="key", at=1))
    wrong = {c.output for c in result.checks if c.verdict == "diverged" and c.block}
    assert wrong == {"layers.1", *own(1, "keys")}
    carried = {c.output for c in result.checks if c.case.endswith("/carried") and c.budget}
    assert "present.1.key" in carried
    assert result.diagnosis is not None
    assert result.diagnosis.source is not None
    assert "k = k * 1.01" in result.diagnosis.source.code


@pytest.mark.slow
@pytest.mark.parametrize("past", [True, False])
def test_a_committed_file_is_cut_where_caches_leave_its_layers(tmp_path: Path, past: bool) -> None:
    result = verified(tmp_path, committed(tmp_path, past=past))
    assert result.verdict == "pass", result.error
    for n in range(3):
        outputs = {c.output for c in result.checks if c.block == f"layers.{n}" and c.compared}
        assert outputs == {f"layers.{n}", *own(n, "keys", "values")}
    ends = {c.output for c in result.checks if not c.block}
    assert {name.replace("past_key_values", "present") for name in ends} == {"logits", *PRESENT}


@pytest.mark.slow
def test_a_wrong_key_of_a_committed_file_is_found_in_its_layer(tmp_path: Path) -> None:
    result = verified(tmp_path, committed(tmp_path, fault="key", at=1))
    wrong = {c.output for c in result.checks if c.verdict == "diverged" and c.block}
    assert wrong == {"layers.1", *own(1, "keys")}


STEPS = "steps: {count: 4, carry: {past_key_values: present}, feed: {ids: argmax(logits)}}"


@pytest.mark.slow
def test_steps_are_judged_in_each_block_and_carried_through_all(tmp_path: Path) -> None:
    result = verified(tmp_path, cached(tmp_path, more=STEPS))
    assert result.verdict == "pass", result.error
    # Two blocks are run in a row on one step: what is optimised across their border shows in each.
    stepped = [check for check in result.checks if not check.case.endswith("/joined")]
    for check in stepped:
        assert check.runtime != "onnxruntime" or check.steps is not None, check
        assert check.steps is None or len(check.steps.errors) == 4
    cases = {check.case for check in stepped}
    # One check for all steps of an output.
    assert len({(c.case, c.runtime, c.output) for c in result.checks}) == len(result.checks)
    ends = {c.output: c for c in result.checks if c.case.endswith("/carried")}
    assert ends.keys() == {"logits", *PRESENT}
    (case,) = {c.case.removesuffix("/carried") for c in ends.values()} & cases
    inside = next(c for c in result.checks if c.case == case and c.output == "layers.1")
    carried = ends["logits"].steps
    assert inside.steps is not None
    assert carried is not None
    assert carried.tokens is not None
    assert (carried.tokens.same, carried.tokens.of) == (8, 8)
    # The errors of the steps before are in a runtime's own cache, and in none that PyTorch hands on.
    assert ends["present.2.key"].steps is not None
    assert max(ends["present.2.key"].steps.errors) > 0


@pytest.mark.slow
def test_steps_may_begin_with_a_cache_of_length_0(tmp_path: Path) -> None:
    result = verified(tmp_path, cached(tmp_path, sizes="[0, 3]", more=STEPS))
    assert result.verdict == "pass", result.error
    for n in range(3):
        empty = {c.output for c in result.checks if c.block == f"layers.{n}" and "past=0" in c.case}
        assert empty == {f"layers.{n}:in", f"layers.{n}", *own(n, "keys", "values")}


@pytest.mark.slow
def test_a_fault_of_a_later_step_is_found_in_its_block_and_at_its_step(tmp_path: Path) -> None:
    result = verified(tmp_path, cached(tmp_path, fault="late", at=1, more=STEPS))
    wrong = [c for c in result.checks if c.verdict == "diverged"]
    assert {c.block for c in wrong} == {"layers.1", ""}
    # It begins once there are five in the cache.
    begins = {2: 4, 4: 2}
    for check in wrong:
        assert check.steps is not None
        assert check.steps.at >= begins[check.sizes["past"]]
    places = {(c.sizes["past"], c.steps.at) for c in wrong if c.block and c.steps is not None}
    assert places == set(begins.items())
    assert "at step 4 of 4" in next(c.reason for c in wrong if c.sizes["past"] == 2)


def test_steps_that_do_not_fit_are_refused_before_the_export(tmp_path: Path) -> None:
    spec = cached(tmp_path, more="steps: {count: 2, carry: {past_key_values: prevent}}")
    result = verified(tmp_path, spec)
    assert result.error is not None
    assert result.error.code == "OG412"
    assert result.export is None


class Store:
    """Holds tensors in every way that a cache does."""

    def __init__(self, owner: Any = None) -> None:
        self.layers: list[Any] = [{"keys": torch.zeros(2)}, (torch.ones(2),)]
        self.steps, self.owner = 0, owner or self


class Writer(torch.nn.Module):
    def forward(self, x: torch.Tensor, store: Store) -> Any:
        store.layers[0]["keys"].add_(x)
        store.layers.append(Store(store))
        store.steps += 1
        return x + store.layers[1][0], store


def called() -> Iterator[Any]:
    store = Store()
    call = Call("writer", Writer().forward, (torch.full((2,), 3.0),), {"store": store})
    yield from (store, call, *call.made())


def test_what_a_block_does_to_an_object_is_done_again_to_another() -> None:
    _, call, result, said = called()
    assert sorted(map(str, call.given.at)) == ["0", "store.layers.0.keys", "store.layers.1.0"]
    # What it leaves alone is not what it says.
    assert set(said.at) == {
        *(0, "store.layers.0.keys"),
        *("store.layers.2.layers.0.keys", "store.layers.2.layers.1.0"),
    }
    other = Store()
    left = other.layers[1]
    again = Call("writer", Writer().forward, (torch.zeros(2),), {"store": other})
    answer, store = again.answered(said, said.copied())
    assert store is other
    assert other.owner is other
    assert other.steps == 1
    assert torch.equal(answer, result[0])
    assert torch.equal(other.layers[0]["keys"], torch.full((2,), 3.0))
    assert other.layers[1][0] is left[0]
    assert type(other.layers[2]) is Store
    assert other.layers[2].owner is other


def test_a_block_is_given_new_objects_of_the_same_state() -> None:
    store, call, *_ = called()
    given = call.given
    at = {place: torch.full((2,), float(n)) for n, place in enumerate(given.at)}
    made = given.restored(at, {})["store"]
    assert isinstance(made, Store)
    assert made is not store
    assert (made.steps, made.owner) == (0, made)
    assert torch.equal(made.layers[1][0], at["store.layers.1.0"])
    # The key of a block has no addresses.
    assert " at 0x" not in repr((given.plain, given.objects))


@pytest.mark.parametrize("what", ["lock", "module", "twice"])
def test_an_object_that_is_more_than_its_attributes_is_refused(what: str) -> None:
    store = Store()
    held: Any = {"lock": threading.Lock(), "module": torch.nn.Linear(1, 1), "twice": store.layers}
    store.layers.append(held[what])
    words = {"lock": "lock,", "module": "Linear,", "twice": "list in two places,"}
    with pytest.raises(
        Unfit, match=f"the block writer takes or returns a value of class {words[what]}"
    ):
        Leaves.of((store,), "writer", {})
