"""Follows notices on the broker, and derives those about overrides from the log of commands.

Notices are stored in Postgres before they are sent (`agents.storage.notice_outbox`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from headstart.kafka_producer import BrokerUnreachable
from topics.catalogue import COMMANDS, NOTICES
from topics.kafka.reader import read_records, reading, topic_state
from topics.notices.messages import Notice, OverrideNotices, decode_notice


async def notices_end(kafka: str) -> Mapping[int, int]:
    """Return the topic's end offsets. Raises `BrokerUnreachable` and `TopicsMissing`."""
    return (await topic_state(kafka, NOTICES.name)).end


async def follow_notices(kafka: str, begin: Mapping[int, int]) -> AsyncGenerator[Notice, None]:
    """Yield notices from `begin` on, without end; a resent one may occur twice.

    Raises `BrokerUnreachable`.
    """
    async for record in read_records(kafka, NOTICES.name, begin):
        try:
            yield decode_notice(record.value or b"")
        except ValueError:
            continue  # any client may write to the topic


async def follow_overrides(
    kafka: str, now: Callable[[], int], idle_ms: int
) -> AsyncGenerator[list[Notice], None]:
    """Yield all notices about overrides once the log is read, then again every `idle_ms`.

    `now` returns Unix ms. Retries while the broker is away for a short time. Raises
    `BrokerUnreachable` and `TopicsMissing`.
    """
    log, notices = await topic_state(kafka, COMMANDS.name), OverrideNotices()
    tp, earliest = TopicPartition(COMMANDS.name, 0), {"auto_offset_reset": "earliest"}
    async with reading(kafka, COMMANDS.name, {0: log.begin[0]}, **earliest) as consumer:
        try:
            while True:
                for records in (await consumer.getmany(tp, timeout_ms=idle_ms)).values():
                    for each in records:
                        notices.apply(each.key, each.value, each.offset, each.timestamp)
                if await consumer.position(tp) >= log.end[0]:
                    yield notices.due(now())
        except (KafkaError, OSError) as error:
            raise BrokerUnreachable(kafka, error) from error
