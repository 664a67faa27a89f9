"""The fetch loop, on aiokafka's own fetcher and subscription; only the network is left out."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.fetcher import Fetcher, FetchError, FetchResult, PartitionRecords
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import CorruptRecordException, TopicAuthorizationFailedError
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import ConsumerRecord, TopicPartition

from agents.consumer.fetch_loop import fetched_records
from processing.records.batch import RecordBatch

SOURCE, OTHER = TopicPartition("source", 0), TopicPartition("changelog", 0)
SECOND = TopicPartition("source", 1)
SOURCES: Final = frozenset({"source"})
SOON_S: Final = 60.0

Body = Callable[[Any], Awaitable[None]]


@asynccontextmanager
async def offline() -> AsyncIterator[Any]:
    """A fetcher of three assigned partitions at offset 0 that fetches only on request."""
    client = AIOKafkaClient(bootstrap_servers="127.0.0.1:1")
    subscriptions = SubscriptionState()
    subscriptions.assign_from_user({SOURCE, SECOND, OTHER})
    for tp in (SOURCE, SECOND, OTHER):
        subscriptions._assigned_state(tp).await_reset(-2)
        subscriptions._assigned_state(tp).reset_to(0)
    fetcher = Fetcher(client, subscriptions)
    fetcher._fetch_task.cancel()
    with suppress(asyncio.CancelledError):
        await fetcher._fetch_task
    try:
        yield fetcher
    finally:
        await client.close()


def put(fetcher: Any, tp: TopicPartition, values: list[bytes], *, corrupt: bool = False) -> None:
    """Let the answer to a fetch of `tp` arrive."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=0,
        base_sequence=0, batch_size=1 << 20,
    )  # fmt: skip
    for offset, value in enumerate(values):
        builder.append(offset, 7, None, value, [])
    raw = bytearray(builder.build())
    if corrupt:
        raw[-1] ^= 0xFF
    records = PartitionRecords(tp, MemoryRecords(bytes(raw)), [], 0, None, None, True, 0)
    assignment = fetcher._subscriptions.subscription.assignment
    fetcher._records[tp] = FetchResult(
        tp, assignment=assignment, partition_records=records, backoff=0
    )
    for waiter in list(fetcher._fetch_waiters):
        fetcher._notify(waiter)


async def waits(fetcher: Any) -> None:
    while not fetcher._fetch_waiters:  # noqa: ASYNC110 - aiokafka sets no event
        await asyncio.sleep(0)


def with_fetcher(body: Body) -> None:
    async def run() -> None:
        async with offline() as fetcher, asyncio.timeout(SOON_S):
            await body(fetcher)

    asyncio.run(run())


async def fetch(
    fetcher: Any,
    active: set[TopicPartition] | None = None,
    wait_s: float = 0.0,
    limit: int | None = None,
) -> dict[Any, list[Any]]:
    return await fetched_records(fetcher, active, SOURCES, wait_s, limit)


def test_a_source_comes_as_one_batch_and_any_other_topic_as_records() -> None:
    async def body(fetcher: Any) -> None:
        put(fetcher, SOURCE, [b"a", b"b"])
        put(fetcher, OTHER, [b"c", b"d", b"e"])
        found = await fetch(fetcher, limit=2)
        (batch,) = found[SOURCE]
        assert type(batch) is RecordBatch
        assert batch.values == [b"a", b"b"]
        assert [type(record) for record in found[OTHER]] == [ConsumerRecord] * 2
        rest = await fetch(fetcher)
        assert [record.value for record in rest[OTHER]] == [b"e"]
        assert not fetcher._records, "a partition left there is never fetched from again"

    with_fetcher(body)


def test_nothing_comes_in_time() -> None:
    async def body(fetcher: Any) -> None:
        assert await fetch(fetcher, wait_s=0.05) == {}
        await asyncio.sleep(0)
        assert not fetcher._fetch_waiters

    with_fetcher(body)


def test_it_wakes_up_when_something_arrives() -> None:
    async def body(fetcher: Any) -> None:
        task = asyncio.create_task(fetch(fetcher, wait_s=60))
        await waits(fetcher)
        put(fetcher, SOURCE, [b"a"])
        assert list(await task) == [SOURCE]

    with_fetcher(body)


def test_a_partition_under_pressure_is_kept_and_asked_again() -> None:
    async def body(fetcher: Any) -> None:
        put(fetcher, SOURCE, [b"a"])
        put(fetcher, SECOND, [b"b"])
        active = {SECOND}
        assert list(await fetch(fetcher, active)) == [SECOND]
        assert list(fetcher._records) == [SOURCE]
        task = asyncio.create_task(fetch(fetcher, active, wait_s=60))
        await waits(fetcher)
        active.add(SOURCE)  # the pressure is over; no answer arrives that would wake it
        # Its wait is cut to `HELD_BACK_S`, so that the caller asks again.
        assert await task == {}
        assert list(await fetch(fetcher, active)) == [SOURCE]

    with_fetcher(body)


def test_of_a_held_partition_nothing_is_taken_until_it_is_let_go() -> None:
    async def body(fetcher: Any) -> None:
        put(fetcher, SOURCE, [b"a"])
        put(fetcher, SECOND, [b"b"])
        held = {SOURCE}
        active = {SOURCE, SECOND}
        got = await fetched_records(fetcher, active, SOURCES, 0.0, None, held)
        assert list(got) == [SECOND]
        assert await fetched_records(fetcher, active, SOURCES, 0.05, None, held) == {}
        held.clear()
        assert list(await fetched_records(fetcher, active, SOURCES, 0.0, None, held)) == [SOURCE]

    with_fetcher(body)


def test_a_partition_that_was_lost_is_dropped() -> None:
    async def body(fetcher: Any) -> None:
        put(fetcher, SOURCE, [b"a"])
        lost = TopicPartition("source", 9)
        fetcher._records[lost] = fetcher._records[SOURCE]
        assert list(await fetch(fetcher, {SECOND})) == []
        assert list(fetcher._records) == [SOURCE]

    with_fetcher(body)


def test_an_error_is_raised_after_what_was_fetched() -> None:
    async def body(fetcher: Any) -> None:
        put(fetcher, SOURCE, [b"a"])
        error = TopicAuthorizationFailedError("source")
        fetcher._records[SECOND] = FetchError(error=error, backoff=0)
        assert list(await fetch(fetcher)) == [SOURCE]
        with pytest.raises(TopicAuthorizationFailedError):
            await fetch(fetcher)
        assert not fetcher._records

    with_fetcher(body)


def test_a_corrupt_batch_is_fetched_again() -> None:
    async def body(fetcher: Any) -> None:
        put(fetcher, SOURCE, [b"a"], corrupt=True)
        with pytest.raises(CorruptRecordException):
            await fetch(fetcher)
        assert not fetcher._records
        assert fetcher._subscriptions._assigned_state(SOURCE).position == 0
        put(fetcher, SOURCE, [b"a"])
        ((batch,),) = (await fetch(fetcher)).values()
        assert batch.values == [b"a"]

    with_fetcher(body)


def test_a_fetcher_that_closes_ends_the_wait() -> None:
    async def body(fetcher: Any) -> None:
        task = asyncio.create_task(fetch(fetcher, wait_s=60))
        await waits(fetcher)
        await fetcher.close()
        assert await task == {}

    with_fetcher(body)


@pytest.mark.parametrize("gone", [False, True])
def test_drained_records_are_freed_at_once(*, gone: bool) -> None:
    """An answer of megabytes must not wait for a collection of everything that there is."""

    async def body(fetcher: Any) -> None:
        put(fetcher, SOURCE, [b"one"])
        answer = weakref.ref(fetcher._records[SOURCE]._partition_records)
        if gone:
            fetcher._subscriptions.assign_from_user({SECOND, OTHER})
        gc.collect()
        gc.disable()
        try:
            await fetched_records(fetcher, None, SOURCES, 0.0, None)
            assert answer() is None
        finally:
            gc.enable()

    with_fetcher(body)
