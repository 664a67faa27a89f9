"""Transactions on the record path: the same records and positions as aiokafka's committed path.

Producers interleave; their transactions are committed, aborted or still open, and a marker may be
the last thing in a fetch, or the only one.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.consumer.fetcher import READ_COMMITTED, FetchResult, PartitionRecords
from aiokafka.consumer.subscription_state import Assignment
from aiokafka.structs import TopicPartition
from hypothesis import event, given, settings
from hypothesis import strategies as st

from agents.consumer import fetch_to_batch as drain_module
from agents.consumer.fetch_to_batch import to_record_batch
from processing.records.batch import RecordBatch
from tests.agents.record_batches import ABORT, COMMIT, NO_PRODUCER, Batch, Log, write
from topics.kafka.fetch_patch import RetainedRecords

TP = TopicPartition("source", 3)
PRODUCERS = (7, 8, 9)


@pytest.fixture(scope="module", params=["python", "compiled"], autouse=True)
def unpacking(request: pytest.FixtureRequest, compiled: Any) -> Any:
    """Every test here is of both ways to unpack a fetch."""
    how = None if request.param == "python" else compiled
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(drain_module, "kernels", lambda: how)
        patching.setattr(drain_module, "MIN_COMPILED_BYTES", 0)
        yield request.param


def data(producer: int, count: int, codec: int = 0, gap: int = 0) -> Batch:
    records = tuple((n, 1_000 + n, b"k", b"%d-%d" % (producer, n)) for n in range(count))
    return Batch(records, max(0, count - 1), gap, codec=codec if count else 0, producer=producer)


def marker(producer: int, key: bytes) -> Batch:
    return Batch(((0, 1, key, b"\0" * 6),), 0, gap=0, producer=producer, control=True)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Batch], set[int]]:
    """Batches in the order of the log, and the producers whose transactions are open at its end."""
    batches, opened = [], set[int]()
    for _ in range(draw(st.integers(1, 12))):
        producer = draw(st.sampled_from([NO_PRODUCER, *PRODUCERS]))
        if producer in opened and draw(st.booleans()):
            batches.append(marker(producer, draw(st.sampled_from([ABORT, COMMIT]))))
            opened.discard(producer)
            continue
        # None: compaction has emptied the batch.
        count, gap = draw(st.integers(0, 4)), draw(st.sampled_from([0, 0, 3]))
        batches.append(data(producer, count, draw(st.sampled_from([0, 0, 1, 4])), gap))
        if producer != NO_PRODUCER:
            opened.add(producer)
    ending = draw(st.sampled_from(["as it is", "all ended", "marker last"]))
    if ending != "as it is":
        for producer in sorted(opened):
            batches.append(marker(producer, draw(st.sampled_from([ABORT, COMMIT]))))
        opened.clear()
    if ending == "all ended":
        batches.append(data(NO_PRODUCER, 1))
    return batches, opened


def stable(log: Log, batches: list[Batch], opened: set[int]) -> Log:
    """Return what a broker sends of a log: whole batches before the first open transaction."""
    begun: dict[int, int] = {}
    for batch, (base, _end, _raw) in zip(batches, log.batches, strict=True):
        if batch.control:
            begun.pop(batch.producer, None)
        elif batch.producer != NO_PRODUCER:
            begun.setdefault(batch.producer, base)
    end = min((begun[each] for each in opened), default=log.end)
    return log._replace(batches=[each for each in log.batches if each[1] <= end])


def fetched(log: Log, position: int, size: int) -> tuple[FetchResult, Any]:
    """Return a fetch of `size` batches at the most, and the state of its partition."""
    assignment = Assignment([TP])
    state = assignment.state_value(TP)
    state.await_reset(-2)
    state.reset_to(position)
    state.highwater = state.lso = log.end
    raw = b"".join([raw for _base, end, raw in log.batches if end > position][:size])
    records = PartitionRecords(
        TP, RetainedRecords(raw), log.aborted(position), position, None, None, True, READ_COMMITTED
    )
    return FetchResult(TP, assignment=assignment, partition_records=records, backoff=0), state


Seen = tuple[list[tuple[int, bytes | None]], int]


def stock(log: Log, begin: int, size: int) -> Seen:
    """Read to the end with aiokafka's own code, fetch by fetch."""
    found, position = list[tuple[int, bytes | None]](), begin
    while position < log.end:
        result, state = fetched(log, position, size)
        found += [(record.offset, record.value) for record in result.getall()]
        if state.position == position:
            break
        position = state.position
    return found, position


def ours(log: Log, begin: int, size: int) -> tuple[Seen, list[RecordBatch]]:
    """Read to the end on the record path; what it returns must be without a gap."""
    found, batches, position = list[tuple[int, bytes | None]](), list[RecordBatch](), begin
    while position < log.end:
        result, state = fetched(log, position, size)
        batch = to_record_batch(result)
        if batch is None:
            assert state.position == position, "the position moved without a notification"
            break
        assert (batch.begin, batch.end) == (position, state.position)
        assert batch.lag == log.end - batch.end
        found += zip(batch.offsets, batch.values, strict=True)
        batches.append(batch)
        position = state.position
    return (found, position), batches


@settings(max_examples=500, deadline=None)
@given(history=histories(), first=st.integers(0, 2**40), into=st.integers(0, 20),
       size=st.integers(1, 6))  # fmt: skip
def test_equal_to_the_stock_path_fetch_by_fetch(
    history: tuple[list[Batch], set[int]], first: int, into: int, size: int
) -> None:
    async def body() -> None:
        written = write(history[0], first)
        log = stable(written, *history)
        begin = min(first + into, log.end)
        seen, batches = ours(log, begin, size)
        assert seen == stock(log, begin, size)
        assert seen[1] == max(begin, log.end), "what is behind a marker is reached"
        event(f"fetches without records: {min(2, sum(not len(each) for each in batches))}")
        event(f"open: {bool(history[1])}, aborted: {bool(log.transactions)}")

    asyncio.run(body())


@pytest.mark.parametrize("key", [ABORT, COMMIT])
def test_a_marker_alone_is_a_batch_without_records(key: bytes) -> None:
    async def body() -> None:
        log = write([data(7, 2), marker(7, key)], first=0)
        result, state = fetched(log, 2, 1)
        batch = to_record_batch(result)
        assert batch is not None
        assert (batch.begin, batch.end, len(batch), batch.offset) == (2, 3, 0, 2)
        assert state.position == 3
        assert not result.has_more()

    asyncio.run(body())


def test_a_batch_that_compaction_emptied_is_a_batch_without_records() -> None:
    async def body() -> None:
        result, state = fetched(write([Batch((), 4, 0)], first=10), 10, 1)
        batch = to_record_batch(result)
        assert batch is not None
        assert (batch.begin, batch.end, len(batch)) == (10, 15, 0)
        assert state.position == 15

    asyncio.run(body())


def test_records_held_back_by_a_transaction_are_not_lag() -> None:
    async def body() -> None:
        result, state = fetched(write([data(NO_PRODUCER, 1)], first=0), 0, 1)
        state.highwater, state.lso = 500, 1
        batch = to_record_batch(result)
        assert batch is not None
        assert batch.lag == 0

    asyncio.run(body())
