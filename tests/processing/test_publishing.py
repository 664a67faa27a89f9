"""What contexts answer may be asked for at any time: no commit is another for it."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.keys import DEFAULT_PATH
from processing.config import LearningConfig
from processing.contexts import pending_updates as lessons_module
from processing.task import Checkpoint, PartitionTask
from tests.processing.mixtures import EPOCH, PARTITIONS, batches, rules_of
from topics.schema.json_schema import PublishedThreshold

Answers = dict[tuple[str, str], PublishedThreshold]
"""The newest threshold of each context."""


def taken_in(
    log: Any, rules: LearningConfig, every: int, *, ask: bool
) -> tuple[list[Checkpoint], list[Answers]]:
    """Apply a log, a commit after every so many steps; return them, and the answers at each."""
    table: dict[bytes, bytes] = {}
    core = PartitionTask(0, PARTITIONS, EPOCH, rules, table.get)
    found, answered = list[Checkpoint](), [Answers()]
    steps = 0
    for batch in log:
        position = 0
        while position < len(batch):
            position = core.apply(batch, position)
            steps += 1
            if ask:
                answered[-1] |= {(each.tenant, each.path): each for each in core.answers()}
                assert not core.answers(), "once"
            if steps % every == 0:
                found.append(core.commit())
                table.update(found[-1].rows)
                answered[-1] |= {(each.tenant, each.path): each for each in found[-1].thresholds}
                answered.append({})
    return found, answered


@pytest.mark.parametrize("policy", ["ema", "hedge", "hops", "meta"])
@settings(max_examples=25)
@given(seed=st.integers(0, 10**9), every=st.sampled_from([1, 2, 5]), interpreted=st.booleans())
def test_asking_in_between_changes_no_commit(
    compiled: Any, policy: str, seed: int, every: int, interpreted: bool
) -> None:
    log, rules = batches(seed, 100), rules_of(seed, policy)
    with patch.object(lessons_module, "kernels", lambda: None if interpreted else compiled):
        asked, answered = taken_in(log, rules, every, ask=True)
        left_alone, wanted = taken_in(log, rules, every, ask=False)
    assert [(c.rows, c.moved, c.end, c.dead_letters) for c in asked] == [
        (c.rows, c.moved, c.end, c.dead_letters) for c in left_alone
    ]
    assert answered[: len(asked)] == wanted[: len(asked)]
    again = {each.path for commit in asked for each in commit.thresholds}
    assert again <= {DEFAULT_PATH}, "published answers are not published again"
