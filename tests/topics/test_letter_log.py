"""The dead letters on a real broker: read in order, noted, and hidden by what was noted of them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from uuid import uuid4

import pytest

from headstart.kafka_producer import start_producer
from topics.catalogue import Topic
from topics.dead_letters import log as module
from topics.dead_letters.log import DeadLetterLog, DeadLetterSender, Handling, _note_in
from topics.dead_letters.messages import (
    GROUP_HEADER,
    DeadLetterFilter,
    DeadLetterRecord,
    OutgoingRecord,
)
from topics.kafka.admin import TopicsMissing, create_topics

pytestmark = pytest.mark.integration

Topics = dict[str, Topic]


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Topics:
    """Topics of this test's own in the place of the catalogue's, which the session shares."""
    made = {}
    for name in ("EVENTS", "DEAD_LETTERS", "HANDLED"):
        made[name] = Topic(
            f"test.{uuid4().hex}.{name}", "", "", partitioned=False, cleanup="delete"
        )
        monkeypatch.setattr(module, name, made[name])
    return made


async def refuse(kafka: str, own: Topics, *groups: str, timestamp_ms: int | None = None) -> None:
    producer = await start_producer(kafka)
    try:
        for group in groups:
            await producer.send_and_wait(
                own["DEAD_LETTERS"].name,
                b"x",
                headers=[(GROUP_HEADER, group.encode())],
                timestamp_ms=timestamp_ms,
            )
    finally:
        await producer.stop()


async def found(
    kafka: str, wanted: DeadLetterFilter | None = None, *, handled: bool = False
) -> list[str]:
    log = await DeadLetterLog.open(kafka)
    return [each.at async for each in log.letters(wanted or DeadLetterFilter(), handled=handled)]


def test_handled_dead_letters_are_hidden_not_deleted(kafka: str, own: Topics) -> None:
    async def run() -> None:
        await create_topics(kafka, 1, topics=own.values())
        assert await found(kafka) == []
        await refuse(kafka, own, "a", "b", "a")
        assert await found(kafka) == ["0:0", "0:1", "0:2"]
        assert await found(kafka, DeadLetterFilter(group="a")) == ["0:0", "0:2"]
        log = await DeadLetterLog.open(kafka)
        letters = [await log.letter(0, offset) for offset in range(3)]
        async with DeadLetterSender(kafka) as sender:
            await sender.drop(letters[:1], at=5)
            await sender.replay([(letters[2], OutgoingRecord(0, b"k", b"again", ()))], at=6)
        assert await found(kafka) == ["0:1"]
        assert await found(kafka, handled=True) == ["0:0", "0:1", "0:2"]
        log = await DeadLetterLog.open(kafka)
        assert [log.handling(each) for each in letters] == [
            Handling("dropped", 5),
            None,
            Handling("replayed", 6),
        ]

    asyncio.run(run())


def test_an_invalid_record_hides_no_dead_letter(
    kafka: str, own: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        await create_topics(kafka, 1, topics=own.values())
        await refuse(kafka, own, "a", "b")
        letter = await (await DeadLetterLog.open(kafka)).letter(0, 0)
        producer = await start_producer(kafka)
        try:
            for key, value in (
                (b"k", b"{"), (None, b"{}"), (b"k", None), (b"\xff", b"{}"),
                (None, b'{"did":"dropped","at":1}'), (b"\xff", b'{"did":"dropped","at":1}'),
            ):  # fmt: skip
                await producer.send_and_wait(own["HANDLED"].name, value, key=key)
        finally:
            await producer.stop()
        async with DeadLetterSender(kafka) as sender:
            await sender.drop([letter], at=5)
        caplog.clear()
        assert await found(kafka) == ["0:1"]
        (warning,) = [each for each in caplog.messages if own["HANDLED"].name in each]
        assert warning.endswith("skipped 6 invalid records, the first at offset 0")
        # aiokafka's producer sends none without key and value; others do
        assert _note_in(SimpleNamespace(key=None, value=None, offset=3)) is None

    asyncio.run(run())


def test_a_note_does_not_apply_to_a_later_log(kafka: str, own: Topics) -> None:
    """The topic recreated: its offsets begin again, what was noted of the old ones remains."""

    async def run() -> None:
        await create_topics(kafka, 1, topics=own.values())
        await refuse(kafka, own, "a", timestamp_ms=2_000)
        old = DeadLetterRecord(0, 0, 1_000, None, b"x", "", "a", None, None, None)
        async with DeadLetterSender(kafka) as sender:
            await sender.drop([old], at=5)
        assert await found(kafka) == ["0:0"]

    asyncio.run(run())


def test_a_replay_that_fails_is_not_noted(kafka: str, own: Topics) -> None:
    async def run() -> None:
        await create_topics(kafka, 1, topics=own.values())
        await refuse(kafka, own, "a")
        letter = await (await DeadLetterLog.open(kafka)).letter(0, 0)
        async with DeadLetterSender(kafka) as sender:
            too_large = OutgoingRecord(0, b"k", b"x" * 2_000_000, ())
            with pytest.raises(RuntimeError, match="MessageSizeTooLarge"):
                await sender.replay([(letter, too_large)], at=5)
        assert await found(kafka) == ["0:0"]

    asyncio.run(run())


def test_a_letter_that_is_not_there_names_those_that_are(kafka: str, own: Topics) -> None:
    async def run() -> None:
        await create_topics(kafka, 1, topics=own.values())
        empty = await DeadLetterLog.open(kafka)
        with pytest.raises(LookupError, match="holds none"):
            await empty.letter(0, 0)
        await refuse(kafka, own, "a", "b")
        log = await DeadLetterLog.open(kafka)
        for partition, offset in ((0, 2), (1, 0)):
            with pytest.raises(LookupError, match="0:0 to 0:1"):
                await log.letter(partition, offset)

    asyncio.run(run())


def test_without_the_topics_the_remedy_is_named(kafka: str, own: Topics) -> None:
    with pytest.raises(TopicsMissing, match="headstart topics create"):
        asyncio.run(DeadLetterLog.open(kafka))
