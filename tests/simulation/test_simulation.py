"""The promise, over schedules of faults (CI runs ten thousand more); and that a run replays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from agents.storage import agent as sink
from agents.storage import batches
from agents.storage.batches import BatchCommitter
from processing.records import batch as records
from processing.records.dlq_limits import Slice
from sinks.postgres.batch_writer import TooManyRejectedRows
from tests.simulation import databases, faults
from tests.simulation.many import CHUNK, Tally, run_chunks
from tests.simulation.run import run, schedule_of
from tests.simulation.wiring import simulated

SCHEDULES = 1_000


def test_nothing_is_lost_double_or_different_over_a_thousand_schedules() -> None:
    total = Tally()
    for tally in run_chunks(range(0, SCHEDULES, CHUNK)):
        total.add(tally)
    failures = [
        f"{schedule_of(seed)}\n{wrong[0]}\nreplay: python -m tests.simulation --seed {seed}"
        for seed, wrong in sorted(total.failed.items())
    ]
    assert not failures, "\n\n".join(failures)
    assert total.schedules == SCHEDULES


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_seed_replays_step_by_step(seed: int) -> None:
    with simulated():
        first, second = (run(schedule_of(seed), trace=True) for _ in range(2))
    assert first.trace
    assert first.trace == second.trace


def test_a_schedule_without_faults_keeps_the_promise_on_both_brokers() -> None:
    with simulated():
        for kafka in (True, False):
            plan = replace(schedule_of(5), kafka=kafka, faults=())
            assert run(plan).wrong == []


def test_where_much_is_refused_a_step_of_the_sink_is_stored_in_parts() -> None:
    inside = 0

    real = BatchCommitter.commit

    async def commit(self: BatchCommitter, parts: Sequence[Slice], *rest: Any) -> None:
        nonlocal inside
        await real(self, parts, *rest)
        inside += parts[-1].end < len(parts[-1].batch)

    letters, stored = (
        patch.object(sink, "MAX_DEAD_LETTERS", 0),
        patch.object(BatchCommitter, "commit", commit),
    )
    with simulated(), letters, stored, patch.object(records, "RUN", 1):
        assert not any(run(schedule_of(seed)).wrong for seed in range(100))
    assert inside > 10


def test_where_postgres_refuses_some_of_much_it_is_stored_in_pieces() -> None:
    """Here it reports this of all that is more than one row."""
    real, refused = databases.Sink.store, set[bytes]()

    async def store(self: databases.Sink, lines: Sequence[bytes], *rest: Any, **more: Any) -> int:
        block = b"".join(lines)
        if len(lines) > 1 and block not in refused:
            refused.add(block)
            raise TooManyRejectedRows
        return await real(self, lines, *rest, **more)

    piece, stored = patch.object(batches, "PIECE", 1), patch.object(databases.Sink, "store", store)
    with simulated(), piece, stored:
        assert not any(run(schedule_of(seed)).wrong for seed in range(100))
    assert len(refused) > 100


def test_every_kind_of_fault_is_drawn() -> None:
    drawn = {type(fault) for seed in range(400) for fault in schedule_of(seed).faults}
    assert drawn == set(faults.Fault.__args__)


def test_every_port_that_may_fail_is_one_that_is_called() -> None:
    with simulated():
        called = {port for seed in range(60) for port in run(schedule_of(seed)).world.counted}
    assert set(faults.PORTS) <= called
