"""Vectorized application against one event at a time: the same commits, to the byte.

The reference applies record by record and event by event, and every context learns at once. Both
are given the same mixtures, cut at the same places.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.policy import HierarchicalPolicy, IndependentPolicy
from learners.registry import POLICIES
from processing import partition_state as state_module
from processing import task as partition_module
from processing.apply import vectorized as stretches_module
from processing.config import LearningConfig
from processing.contexts import pending_updates as lessons_module
from processing.contexts.context import Context, ContextPath
from processing.records import batch as records_module
from processing.records.batch import RecordBatch
from processing.state import expiry_budget as endings_module
from processing.task import Checkpoint, PartitionTask
from tests.processing.mixtures import (
    EPOCH,
    PARTITIONS,
    Stretched,
    batches,
    commits,
    plain_batch,
    prefetch_scan,
    rules_of,
    stretched,
    stretches_of,
)

POLICIES_TRIED = (
    "ema", "td", "sliding", "gradient", "hedge", "hops", "hops:alarm=1.5,slope_kept=0.2",
    "histogram", "meta", "fixed",
)  # fmt: skip


class LongWay(PartitionTask):
    """The same partition without the short way."""

    def _apply_plain(self, batch: RecordBatch, begin: int) -> tuple[int, int]:
        self._apply_record(batch, begin, batch.offsets[begin])
        return begin + 1, 0

    def _apply_event(self, *args: Any) -> None:
        super()._apply_event(*args)
        self.state.contexts.apply_pending()


def the_long_way(
    log: Sequence[RecordBatch], rules: LearningConfig, restarts: int
) -> list[Checkpoint]:
    """Apply a log event by event, every context learning at once."""
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(lessons_module, "kernels", lambda: None)
        for policy in POLICIES.values():
            if isinstance(policy, IndependentPolicy):
                patching.setattr(type(policy), "columns", False)
                patching.setattr(type(policy), "course", IndependentPolicy.course)
            if isinstance(policy, HierarchicalPolicy):
                patching.setattr(type(policy), "learn_run", HierarchicalPolicy.learn_run)
        return commits(LongWay, log, rules, restarts)[0]


@pytest.mark.parametrize("policy", POLICIES_TRIED)
@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**9),
    run=st.sampled_from([1, 2, 5, 128]),
    full=st.sampled_from([0, 3, 40, 10_000]),
    restarts=st.sampled_from([0, 0, 2]),
    ending=st.sampled_from([1, 150, 1_000_000]),
    interpreted=st.booleans(),
)
def test_records_decoded_together_give_the_commits_of_the_long_way(
    compiled: Any,
    policy: str,
    seed: int,
    run: int,
    full: int,
    restarts: int,
    ending: int,
    interpreted: bool,
) -> None:
    log, rules = batches(seed, 100), rules_of(seed, policy)
    with (
        patch.object(stretches_module, "kernels", lambda: None),
        patch.object(lessons_module, "kernels", lambda: None if interpreted else compiled),
        patch.object(records_module, "RUN", run),
        patch.object(partition_module, "COMMIT_BYTES", full * 400),
        patch.object(partition_module, "WITH_NEXT_BYTES", full * 500),
        patch.object(endings_module, "ENDING_BYTES", ending),
    ):
        short, _core = commits(PartitionTask, log, rules, restarts)
        assert short == the_long_way(log, rules, restarts)


@pytest.mark.parametrize("policy", POLICIES_TRIED)
@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**9),
    most=st.sampled_from([1, 7, 4096]),
    room=st.sampled_from([0, 4_000, 2_000_000]),
    restarts=st.sampled_from([0, 0, 2]),
    ending=st.sampled_from([1, 150, 1_000_000]),
    ahead=st.booleans(),
)
def test_stretches_give_the_commits_of_the_long_way(
    compiled: Any,
    policy: str,
    seed: int,
    most: int,
    room: int,
    restarts: int,
    ending: int,
    ahead: bool,
) -> None:
    log, rules = batches(seed, 100), rules_of(seed, policy)
    with (
        stretches_of(compiled),
        patch.object(stretches_module, "MAX_EVENTS", most),
        patch.object(stretches_module, "MAX_RUN_COMMIT_BYTES", room),
        patch.object(endings_module, "ENDING_BYTES", ending),
    ):
        short, _core = commits(PartitionTask, log, rules, restarts, ahead=ahead)
        assert short == the_long_way(log, rules, restarts)


@pytest.mark.parametrize("policy", ["ema", "hops", "hedge"])
@settings(max_examples=25)
@given(seed=st.integers(0, 10**9), cached=st.sampled_from([0, 1, 5, 20]))
def test_a_full_cache_changes_no_commit(compiled: Any, policy: str, seed: int, cached: int) -> None:
    log, rules = batches(seed, 100), rules_of(seed, policy)
    with stretches_of(compiled):
        all_at_hand, _core = commits(PartitionTask, log, rules, 0)
        with patch.object(state_module, "CACHED", cached * PARTITIONS):
            few, _core = commits(PartitionTask, log, rules, 0)
    assert few == all_at_hand


@pytest.mark.parametrize("policy", ["ema", "hops", "hedge"])
def test_contexts_that_are_let_go_are_freed_without_a_collection(
    compiled: Any, policy: str
) -> None:
    def alive() -> int:
        # `type`, for `isinstance` asks a weak proxy for its object, which may be gone.
        return sum(type(each) in (Context, ContextPath) for each in gc.get_objects())

    log, rules = batches(1, 100), rules_of(1, policy)
    with stretches_of(compiled), patch.object(state_module, "CACHED", 0):
        gc.collect()
        before = alive()
        gc.disable()
        try:
            found, _core = commits(PartitionTask, log, rules, 0)
            assert any(commit.rows for commit in found)
            assert alive() == before
        finally:
            gc.enable()


def test_events_scanned_ahead_are_not_scanned_again(compiled: Any) -> None:
    class Looked:
        def __init__(self, *args: Any) -> None:
            raise AssertionError("scanned again")

    batch, rules = plain_batch(1, 0.0), LearningConfig(POLICIES["ema"])
    with stretches_of(compiled):
        core = Stretched(0, PARTITIONS, EPOCH, rules, lambda _key: None)
        prefetch_scan(core, batch)
        assert batch.prefetched is not None
        with patch.object(stretches_module, "ScannedBatch", Looked):
            core.apply(batch)
        assert batch.prefetched is None
    assert core.counted.events > 0


@pytest.mark.parametrize("taken_at_once", [True, False])
def test_evidence_of_a_confidence_changes_no_row(compiled: Any, taken_at_once: bool) -> None:
    rows = []
    for more in ({}, {"calibrated": True}, {"calibrated": True, "evidence": {"tries": 9}}):
        batch, rules = plain_batch(1, 0.1), rules_of(1, "hops")
        events = [orjson.loads(value or b"{}") for value in batch.values]
        for event in events:
            if (event.get("data") or {}).get("prediction"):
                for name in ("calibrated", "evidence"):
                    event["data"]["prediction"].pop(name, None)
                event["data"]["prediction"].update(more)
        batch.values[:] = map(orjson.dumps, events)
        with stretches_of(compiled if taken_at_once else None):
            found, core = commits(Stretched, [batch], rules)
        assert isinstance(core, Stretched)
        assert (core.counted.events > 100) == (taken_at_once and "evidence" not in more)
        rows.append([commit.rows for commit in found])
    assert rows[0] == rows[1] == rows[2]


@pytest.mark.parametrize("policy", ["ema", "hops"])
def test_however_a_log_is_cut_the_rows_are_the_same(policy: str) -> None:
    for seed in range(12):
        log, rules = batches(seed, 120), rules_of(seed, policy)
        tables = []
        for run in (1, 128):
            with patch.object(records_module, "RUN", run):
                found, _core = commits(PartitionTask, log, rules)
            tables.append({key: row for commit in found for key, row in commit.rows})
        assert tables[0] == tables[1]


def test_plain_events_are_applied_by_stretches(compiled: Any) -> None:
    plain = [[plain_batch(seed, 0.0)] for seed in range(5)]
    share, each = stretched(compiled, plain, LearningConfig(POLICIES["ema"], ("user_id",)))
    assert share > 0.3
    assert each > 10


def test_mixtures_are_applied_by_stretches(compiled: Any) -> None:
    """Or else the law of stretches tests nothing."""
    mixed = [batches(seed, 100) for seed in range(20)]
    assert stretched(compiled, mixed, LearningConfig(POLICIES["ema"], ("user_id",)))[0] > 0.2
