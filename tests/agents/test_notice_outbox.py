"""Sending notices, on a real Postgres: after a crash, after a missed wake-up, and unsent ones.

The producer stands in for the real one, which could not be made to fail between two sends.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError

from agents.config import WorkerConfig
from agents.storage import notice_outbox as telling
from agents.storage.notice_outbox import NoticeOutbox
from learners.registry import policy
from processing.config import LearningConfig
from sinks.connections import connect_postgres
from sinks.postgres.notices import add_notices, unsent_notices
from tests.processing.notice_streams import notice
from topics.catalogue import EVENTS, NOTICES
from topics.control.messages import decode_control
from topics.dead_letters.messages import OutgoingRecord
from topics.epoch import Epoch
from topics.notices.messages import Notice, decode_notice

pytestmark = pytest.mark.integration

FLOOD = {"what": "user", "user": "ann", "until": 1_760_000_000_000}
DOWN = notice("down", kind="anomaly", at=8, evidence={**FLOOD, "every": 9})
FREE = notice("free", kind="anomaly", at=9, evidence={**FLOOD, "every": 1})
DRIFT = notice("drift")


class Producer:
    """Notes what it is given; where it is to fail, it has taken nothing."""

    def __init__(self, fails: int = 0) -> None:
        self.sent: list[tuple[str, int, str]] = []
        self.fails = fails

    async def send_records(self, topic: str, records: Iterable[OutgoingRecord]) -> None:
        if topic == NOTICES.name and self.fails:
            self.fails -= 1
            raise KafkaConnectionError
        decode: Any = decode_control if topic == EVENTS.name else decode_notice
        self.sent += [(topic, each.partition, decode(each.value).id) for each in records]


@pytest.fixture
def config(migrated: str, tmp_path: Path) -> WorkerConfig:
    rules = LearningConfig(policy("td"))
    return WorkerConfig("127.0.0.1:1", migrated, "redis://127.0.0.1:1/0", tmp_path, rules, "0")


def teller(config: WorkerConfig, producer: Producer, owned: Iterable[int] = (2,)) -> NoticeOutbox:
    made = NoticeOutbox(config, Epoch(1, 4), producer)  # type: ignore[arg-type]
    made.set_partitions(owned)
    return made


async def keep(config: WorkerConfig, *notices: Notice, partition: int = 2) -> None:
    async with await connect_postgres(config.postgres) as connection:
        for each in notices:  # one by one: they are sent in the order in which they were found
            await add_notices(connection, [(partition, each)])


async def unsent(config: WorkerConfig) -> list[str]:
    async with await connect_postgres(config.postgres) as connection:
        return [each.id for _, each in await unsent_notices(connection, range(4), 99)]


def test_notices_unsent_at_a_crash_are_sent_with_their_id_and_control_record_first(
    config: WorkerConfig,
) -> None:
    async def go() -> None:
        await keep(config, DRIFT, DOWN)
        producer = Producer(fails=1)
        with pytest.raises(KafkaConnectionError):
            await teller(config, producer).send()
        assert await unsent(config) == ["drift", "down"]
        await teller(config, producer).send()  # by the worker after it
        control, one, other = (EVENTS.name, 2, "down"), *(
            (NOTICES.name, 2, name) for name in ("drift", "down")
        )  # fmt: skip
        assert producer.sent == [control, control, one, other]
        assert await unsent(config) == []

    asyncio.run(go())


def test_only_notices_of_own_partitions_are_sent(config: WorkerConfig) -> None:
    async def go() -> None:
        await keep(config, DRIFT)
        await keep(config, DOWN, partition=1)
        producer = Producer()
        await teller(config, producer).send()
        assert [each[2] for each in producer.sent] == ["drift"]
        assert await unsent(config) == ["down"]

    asyncio.run(go())


def test_a_flood_without_downweighting_is_notified_and_may_end(
    config: WorkerConfig,
) -> None:
    async def go() -> None:
        await keep(config, DOWN, FREE)
        producer = Producer()
        await teller(dataclasses.replace(config, weigh_floods=False), producer).send()
        assert producer.sent == [
            (EVENTS.name, 2, "free"), (NOTICES.name, 2, "down"), (NOTICES.name, 2, "free"),
        ]  # fmt: skip

    asyncio.run(go())


def test_notices_without_a_wake_up_are_still_sent(
    config: WorkerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "POLL_S", 0.01)

    async def go() -> None:
        producer = Producer()
        sending = teller(config, producer)
        await sending._send_when_woken()  # as it took up its partitions: there was nothing yet
        await keep(config, DRIFT)  # by the worker before it, whose transaction was under way
        await sending._send_when_woken()
        assert [each[2] for each in producer.sent] == ["drift"]

    asyncio.run(go())
