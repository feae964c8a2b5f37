"""Whole numbers of which a sum of multiples is exactly what it has to be."""

from __future__ import annotations

import pytest

from onnx_gate.verify.reach.solve import Term, solution


def test_a_key_is_solved_as_a_number_is_written_in_digits() -> None:
    terms = [Term(5000, -10, 4989), Term(1, -20, 4979)]
    assert solution(terms, 4321 * 5000 - 3) == [4321, -3]


@pytest.mark.parametrize("wanted", [7, -2, 1, 35])
def test_what_one_term_leaves_is_what_the_others_can_make(wanted: int) -> None:
    terms = [Term(5, -3, 3), Term(4, 0, 5)]
    changes = solution(terms, wanted)
    assert changes is not None
    assert sum(t.slope * n for t, n in zip(terms, changes, strict=True)) == wanted
    assert all(t.down <= n <= t.up for t, n in zip(terms, changes, strict=True))


def test_what_no_changes_make_has_no_solution() -> None:
    assert solution([Term(5, -3, 3), Term(4, 0, 5)], 40) is None
    assert solution([Term(4, -9, 9), Term(2, -9, 9)], 3) is None


def test_a_sum_that_many_terms_may_not_make_ends() -> None:
    assert solution([Term(2, -50, 50)] * 12, 101) is None
    # 31 sixes would make it, and there are 30.
    assert solution([*[Term(6, -1, 1)] * 30, Term(10, -1, 1), Term(15, 0, 1)], 191) is None
