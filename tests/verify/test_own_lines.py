"""Which lines of what a module stores are given as inputs."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from onnx_gate.manifest import InputSpec
from onnx_gate.runtimes.base import Array
from onnx_gate.verify.reach.domain import Domain
from onnx_gate.verify.reach.own_lines import Table, lines_of_tables
from onnx_gate.verify.reach.sites import MOST_ROWS


def domain(low: float, high: float) -> Domain:
    return Domain(InputSpec("float32", ()), low, high, (), drawn=True)


@given(
    st.lists(
        st.lists(st.lists(st.integers(-2, 2), min_size=3, max_size=3)), min_size=1, max_size=4
    ),
    st.booleans(),
)
def test_lines_are_those_of_each_table_in_turn(
    written: Sequence[Sequence[Sequence[int]]], stored: bool
) -> None:
    """Whatever holds them, as one by one: the first of each, the second of each, none of them twice."""
    arrays = [np.array(each, np.float32).reshape(-1, 3) for each in written]
    tables: list[Table] = [torch.from_numpy(a) if stored else a for a in arrays]
    wanted: dict[tuple[float, ...], None] = {}
    for rank in range(max(map(len, arrays))):
        for array in arrays:
            if rank < len(array) and (np.abs(array[rank]) <= 1).all():
                wanted[tuple(array[rank].tolist())] = None
    found = lines_of_tables(tables, np.zeros(3, np.float32), domain(-1, 1))
    assert [tuple(line.tolist()) for lines in found for line in lines] == list(wanted)


def test_no_more_than_is_given_is_held() -> None:
    """The matrices of a model are as wide as its input, and together as large as it."""
    width = 256
    tables = [torch.randn(MOST_ROWS, width) for _ in range(32)]
    row: Array = np.zeros(width, np.float32)
    tracemalloc.start()
    try:
        (lines,) = lines_of_tables(tables, row, domain(-np.inf, np.inf))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert lines.shape == (MOST_ROWS, width)
    assert peak < 8 * lines.nbytes


def test_tables_are_looked_at_a_few_times_each() -> None:
    """However many there are, of a line each or of lines that no input has."""
    looks = 0

    class Table(np.ndarray):
        def reshape(self, *shape: Any, **how: Any) -> Any:
            nonlocal looks
            looks += 1
            return np.asarray(self).reshape(*shape, **how)

    tables = [
        np.full((1 + n % 2 * MOST_ROWS, 4), 5.0 * (n % 2), np.float32).view(Table)
        for n in range(200)
    ]
    (lines,) = lines_of_tables(tables, np.zeros(4, np.float32), domain(-1, 1))
    assert lines.tolist() == [[0.0] * 4]
    assert looks <= 12 * len(tables)
