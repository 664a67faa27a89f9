"""Producers: events go where every Kafka client would send them, and a stop ends in time."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st

from headstart.kafka_producer import _partition, end_producer


@given(st.none() | st.binary(), st.integers(1, 64))
def test_a_key_is_placed_as_the_client_library_places_it(key: bytes | None, count: int) -> None:
    partitions = list(range(count))
    if key is None:
        assert _partition(key, partitions, partitions[-1:]) == count - 1
    else:
        assert _partition(key, partitions, []) == DefaultPartitioner()(key, partitions, [])


class StillBroker:
    """aiokafka's client of a broker that stands still: a TLS connection is not closed for 30 s."""

    def __init__(self) -> None:
        self.closed = asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        await asyncio.gather(self.closed)


@pytest.mark.parametrize("batches_wait", [True, False])
def test_a_broker_that_stands_still_keeps_no_producer_from_ending(batches_wait: bool) -> None:
    async def nothing() -> None: ...

    async def ended() -> Any:
        client = StillBroker()
        stop = asyncio.Event().wait if batches_wait else client.close
        producer = SimpleNamespace(stop=stop, client=client, _sender=SimpleNamespace(close=nothing))
        task = asyncio.ensure_future(end_producer(producer, 0.05))  # type: ignore[arg-type]
        await asyncio.wait([task], timeout=10.0)
        return task

    begun = time.monotonic()
    task = asyncio.run(ended())
    assert time.monotonic() - begun < 8.0
    assert task.done()
    assert not task.cancelled(), "as if its caller were to end"
    assert task.exception() is None
