"""Which blocks each of several machines judges: all of them, each once, and about as much work for each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onnx_gate.verify.blocks.portion import shared


@given(st.lists(st.integers(1, 10**9), min_size=2, max_size=40), st.integers(1, 30), st.data())
def test_each_block_is_one_machines_and_each_machine_has_some(
    weights: list[int], cases: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(2, len(weights)))
    ranges = list(shared(weights, cases, count))
    assert len(ranges) == count
    assert all(ranges)
    assert [call for own in ranges for call in own] == list(range(len(weights)))


@given(st.integers(30, 200), st.integers(2, 20), st.integers(2, 6))
def test_alike_blocks_are_shared_evenly_and_the_runtimes_own_way_counts(
    blocks: int, cases: int, count: int
) -> None:
    ranges = list(shared([7] * blocks, cases, count))
    work = [len(own) * cases for own in ranges]
    work[-1] += blocks  # one case more, through all of them
    mean = sum(work) / count
    if blocks < mean:
        assert all(abs(each - mean) <= count * cases for each in work)
    else:  # the end alone is more than a share
        assert len(ranges[-1]) == 1
