"""What ranks cases without sorting all of them gives what sorting all gives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memory.ranking.best_rows import best_rows
from memory.ranking.votes import few_a_writer, few_of_each

FEW_VALUES = st.lists(st.integers(0, 5), min_size=1, max_size=300)


@given(FEW_VALUES, st.integers(1, 40), st.randoms(use_true_random=False))
def test_the_best_of_equals_are_the_first(values: list[int], count: int, draw: Any) -> None:
    scores = np.array(values, np.float64)
    rows = np.array(draw.sample(range(len(values)), draw.randint(1, len(values))))
    everything = rows[np.argsort(-scores[rows], kind="stable")]
    assert best_rows(scores, rows, count).tolist() == everything[:count].tolist()


@given(FEW_VALUES, st.integers(1, 10), st.booleans())
def test_few_of_a_writer_need_not_look_at_all(writers: list[int], most: int, mine: bool) -> None:
    names = np.array(writers)
    own = (names == 0) & mine
    bank = SimpleNamespace(writers=SimpleNamespace(values=names))
    asked: Any = SimpleNamespace(bank=bank, found=SimpleNamespace(own=own))
    rows = np.arange(len(writers))[::-1]
    everything = rows[few_of_each(names[rows], own[rows])]
    assert few_a_writer(asked, rows, most).tolist() == everything[:most].tolist()
