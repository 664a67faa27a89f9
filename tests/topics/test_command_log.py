"""The log of commands on a real broker: begun once, in order, followed, and begun again."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaProducer

from headstart.kafka_producer import start_producer
from topics.catalogue import COMMANDS, Topic
from topics.commands import log as module
from topics.commands.log import (
    CommandFollower,
    PreviousCommands,
    begin_commands,
    is_whole,
    read_commands,
    send_commands,
    unset_commands,
)
from topics.commands.messages import (
    Command,
    CommandTarget,
    ModeCommand,
    command_key,
    encode_command,
)
from topics.kafka.admin import TopicsMissing, create_topics

pytestmark = pytest.mark.integration

OFF, ACT = ModeCommand(mode="off", at=1), ModeCommand(mode="act", at=2)
OBSERVE = ModeCommand(mode="observe", tenant="acme", at=3)


@pytest.fixture
def own(kafka: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A log of this test's own in the place of the catalogue's, which the session shares."""
    topic = Topic(f"test.{uuid4().hex}", "", "", partitioned=False, cleanup="compact")
    monkeypatch.setattr(module, "COMMANDS", topic)
    asyncio.run(create_topics(kafka, 1, topics=[topic]))
    return topic.name


def remembering(*commands: Command, number: int = 0) -> module.Callable[..., object]:
    async def remembered() -> PreviousCommands:
        return PreviousCommands(commands, number)

    return remembered


async def modes(kafka: str) -> list[tuple[str | None, str]]:
    commands = (await read_commands(kafka)).commands
    return [(each.tenant, each.mode) for each in commands if isinstance(each, ModeCommand)]


def test_the_last_one_counts_until_it_is_taken_back(kafka: str, own: str) -> None:
    async def run() -> None:
        assert await begin_commands(kafka, remembering())
        await send_commands(kafka, [OFF, OBSERVE])
        await send_commands(kafka, [ACT])
        assert sorted(await modes(kafka), key=str) == [("acme", "observe"), (None, "act")]
        await unset_commands(kafka, [command_key(ACT)], "ann", "over")
        assert await modes(kafka) == [("acme", "observe")]

    asyncio.run(run())


def test_a_new_log_begins_once_with_earlier_commands(kafka: str, own: str) -> None:
    async def run() -> None:
        with pytest.raises(TopicsMissing, match="headstart topics create"):
            await read_commands(kafka)
        later = 4_000_000_000
        assert await begin_commands(kafka, remembering(OBSERVE, number=later)) == later + 1
        assert await begin_commands(kafka, remembering(OFF)) is None
        state = await read_commands(kafka)
        assert (state.number, state.commands) == (later + 1, [OBSERVE])

    asyncio.run(run())


def test_a_beginning_that_was_cut_off_is_repeated(kafka: str, own: str) -> None:
    async def run() -> None:
        producer = await start_producer(kafka)
        await producer.send_and_wait(own, encode_command(OBSERVE), key=command_key(OBSERVE))
        await producer.stop()
        assert await begin_commands(kafka, remembering(OBSERVE, OFF))
        assert sorted(await modes(kafka), key=str) == [("acme", "observe"), (None, "off")]

    asyncio.run(run())


def test_invalid_commands_are_skipped(kafka: str, own: str) -> None:
    async def run() -> None:
        await begin_commands(kafka, remembering())
        producer = await start_producer(kafka)
        await producer.send_and_wait(own, b"rubbish", key=command_key(OFF))
        await producer.send_and_wait(own, b"{}", key=b"rubbish")  # Kafka takes none without a key
        await producer.stop()
        await send_commands(kafka, [ACT])
        assert await modes(kafka) == [(None, "act")]
        refused: list[int] = []
        follower = CommandFollower(kafka)
        changes = follower.changes(lambda offset, _why: refused.append(offset), 100)
        async with contextlib.aclosing(changes), asyncio.timeout(60):
            assert await anext(changes) == {CommandTarget("mode", "")}
        assert refused == [1, 2]

    asyncio.run(run())


def test_a_state_is_whole_until_something_is_appended(kafka: str, own: str) -> None:
    async def run() -> None:
        await begin_commands(kafka, remembering())
        state, follower = await read_commands(kafka), CommandFollower(kafka)
        changes = follower.changes(lambda *_: None, 100)
        async with contextlib.aclosing(changes), asyncio.timeout(60):
            await anext(changes)
            for each in (state, follower.state):
                assert await is_whole(kafka, each)
                assert not await is_whole("127.0.0.1:1", each), "the broker does not answer"
            await send_commands(kafka, [ACT])
            assert not await is_whole(kafka, state)
            assert not await is_whole(kafka, follower.state)
            while not await anext(changes):
                pass
            assert await is_whole(kafka, follower.state)

    asyncio.run(run())


@pytest.mark.parametrize("number", [-1, 0, 1, 2**63 - 1, 2**80])
def test_a_number_that_the_log_cannot_have_is_passed_over(
    kafka: str, own: str, number: int
) -> None:
    async def run() -> None:
        begun = await begin_commands(kafka, remembering())
        producer = await start_producer(kafka)
        await producer.send_and_wait(own, b'{"set":"log","number":%d}' % number, key=b"log")
        await producer.stop()
        await send_commands(kafka, [OFF])
        assert (await read_commands(kafka)).number == begun

    asyncio.run(run())


def test_a_follower_begins_with_all_of_it(kafka: str, own: str) -> None:
    async def run() -> None:
        await begin_commands(kafka, remembering())
        await send_commands(kafka, [OFF, OBSERVE])
        follower = CommandFollower(kafka)
        changes = follower.changes(lambda *_: None, 100)
        async with contextlib.aclosing(changes), asyncio.timeout(60):
            assert await anext(changes) == {
                CommandTarget("mode", ""),
                CommandTarget("mode", "acme"),
            }
            await send_commands(kafka, [ACT])
            while not (changed := await anext(changes)):
                pass
            assert changed == {CommandTarget("mode", "")}
            assert follower.state.modes(CommandTarget("mode", "")) == {"*": "act"}

    asyncio.run(run())


needs_transactions = pytest.mark.skipif(
    os.environ.get("TEST_KAFKA", "embedded") == "embedded", reason="needs Apache Kafka"
)


@contextlib.asynccontextmanager
async def transaction(kafka: str, topic: str, *commands: Command) -> AsyncIterator[Any]:
    """A transaction of commands that were sent; how it ends is the caller's."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=uuid4().hex)
    await producer.start()
    try:
        await producer.begin_transaction()
        for each in commands:
            value, key = encode_command(each), command_key(each)
            await producer.send_and_wait(topic, value, key=key, partition=0)
        yield producer
    finally:
        await producer.stop()


@needs_transactions
@pytest.mark.parametrize("committed", [True, False])
def test_an_open_transaction_holds_no_command_back(kafka: str, own: str, committed: bool) -> None:
    inside = ModeCommand(mode="act", tenant="inside", at=4)
    after = [("inside", "act")] if committed else []

    async def run() -> None:
        await begin_commands(kafka, remembering())
        await send_commands(kafka, [ACT, OBSERVE])
        async with transaction(kafka, own, inside, OBSERVE) as producer:
            offset = await send_commands(kafka, [OFF])
            assert sorted(await modes(kafka), key=str) == [("acme", "observe"), (None, "off")]
            state = await read_commands(kafka)
            assert state.version(CommandTarget("mode", "")).offset == offset
            assert await is_whole(kafka, state)
            await unset_commands(kafka, [command_key(OBSERVE)], "ann", "over")
            assert await modes(kafka) == [(None, "off")]
            await (producer.commit_transaction() if committed else producer.abort_transaction())
        assert sorted(await modes(kafka), key=str) == sorted([*after, (None, "off")], key=str)

    asyncio.run(run())


@needs_transactions
@pytest.mark.parametrize("committed", [True, False])
def test_a_follower_passes_an_open_transaction(kafka: str, own: str, committed: bool) -> None:
    inside = ModeCommand(mode="act", tenant="inside", at=4)
    all_, ours, theirs = (
        CommandTarget("mode", ""),
        CommandTarget("mode", "acme"),
        CommandTarget("mode", "inside"),
    )

    async def until(changes: Any, place: CommandTarget) -> None:
        while place not in await anext(changes):
            pass

    async def run() -> None:
        await begin_commands(kafka, remembering())
        await send_commands(kafka, [ACT])
        async with transaction(kafka, own, inside) as producer:
            await send_commands(kafka, [OFF])
            follower = CommandFollower(kafka)
            changes = follower.changes(lambda *_: None, 100)
            async with contextlib.aclosing(changes), asyncio.timeout(60):
                assert await anext(changes) == {all_}
                assert follower.state.modes(all_) == {"*": "off"}
                assert await is_whole(kafka, follower.state)
                assert not await anext(changes)
                await send_commands(kafka, [OBSERVE])
                await until(changes, ours)
                assert follower.state.modes(ours) == {"*": "observe"}
                assert theirs not in follower.state.targets
                await (producer.commit_transaction() if committed else producer.abort_transaction())
                await until(changes, theirs if committed else all_)
                assert follower.state.modes(all_) == {"*": "off"}
                assert follower.state.modes(theirs) == ({"*": "act"} if committed else {})

    asyncio.run(run())


def test_the_catalogue_keeps_them_in_one_order() -> None:
    assert not COMMANDS.partitioned
