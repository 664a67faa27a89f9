"""What the consumer makes of a fetch: one message, for the agent to take apart."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from faust.types import TP

from agents.consumer.faust_transport import Consumer
from processing.records.batch import RecordBatch

FIRST, SECOND, PAUSED = (TP("t", number) for number in range(3))


def batch(tp: TP, offset: int) -> RecordBatch:
    return RecordBatch(tp.topic, tp.partition, offset, offset + 1, [offset], [7_000], [None], [b""])


class Fetching:
    """A consumer that has fetched one record of each partition."""

    should_stop, flow_active = False, True
    others: Mapping[TP, list[Any]] = {}
    _message = Consumer._message

    def __init__(self, generation_then: int = 1) -> None:
        self.app = SimpleNamespace(consumer_generation_id=1, source_topics={"t"})
        self._generation_then = generation_then
        self._read_offset = {FIRST: 90, SECOND: 90}

    async def _wait_next_records(self, _timeout: float) -> tuple[Any, Any]:
        self.app.consumer_generation_id = self._generation_then
        found = {tp: [batch(tp, 5)] for tp in (FIRST, SECOND, PAUSED)}
        return self.others | found, {*self.others, FIRST, SECOND}

    def _to_message(self, _tp: TP, record: str) -> str:
        return f"Faust's of {record}"


def messages(consumer: Any) -> list[tuple[TP, Any]]:
    async def taken() -> list[tuple[TP, Any]]:
        return [each async for each in Consumer.getmany(consumer, 1.0)]

    return asyncio.run(taken())


def test_a_fetch_is_one_message_of_all_partitions_that_are_active() -> None:
    ((tp, message),) = messages(Fetching())
    assert (tp, message.tp, message.timestamp) == (FIRST, FIRST, 7.0)
    assert [(place, found.begin) for place, found in message.value] == [(FIRST, 5), (SECOND, 5)]


def test_records_of_other_topics_stay_messages_of_their_own() -> None:
    consumer, other = Fetching(), TP("changelog", 0)
    consumer.others = {other: ["a", "b"]}
    *before, (tp, message) = messages(consumer)
    assert before == [(other, "Faust's of a"), (other, "Faust's of b")]
    assert (tp, len(message.value)) == (FIRST, 2)


def test_refetched_records_are_not_dropped_as_read() -> None:
    consumer = Fetching()
    messages(consumer)
    assert FIRST not in consumer._read_offset  # of the others Faust does not ask


def test_records_fetched_during_a_revocation_are_dropped() -> None:
    assert messages(Fetching(generation_then=2)) == []


def test_nothing_flows_while_the_consumer_is_held() -> None:
    consumer = Fetching()
    consumer.flow_active = False
    assert messages(consumer) == []
