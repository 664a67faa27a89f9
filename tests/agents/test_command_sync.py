"""The sync of what people set: through a Redis that is away, one that forgot, and the clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
import redis

from agents.thresholds.command_sync import CommandSync
from headstart.keys import MODES, PUBLISHED, modes_key, redis_key
from tests.sinks.command_log import log_of
from topics.catalogue import Topic
from topics.commands import log as command_log
from topics.commands.log import PreviousCommands, begin_commands, send_commands
from topics.commands.messages import (
    Command,
    CommandState,
    CommandTarget,
    ModeCommand,
    ThresholdOverride,
)
from topics.kafka.admin import create_topics

pytestmark = pytest.mark.integration


def state_of(*commands: Command) -> CommandState:
    return log_of(*((each, True) for each in commands)).state()


@pytest.fixture
def state(tenant: str) -> CommandState:
    return state_of(
        ThresholdOverride(tenant=tenant, workflow_type="refund", speculate=0.9, until=50, at=1),
        ModeCommand(mode="off", tenant=tenant, at=1),
    )


@pytest.fixture
def served(redis_url: str, tenant: str) -> Iterator[Callable[[], tuple[list[Any], dict[str, str]]]]:
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield lambda: (
            json.loads(client.hget(redis_key(tenant, "refund"), "!overrides") or "[]"),
            client.hgetall(modes_key(tenant)),
        )


def keeping(redis_url: str, name: str, work: Callable[[CommandSync], Awaitable[None]]) -> None:
    async def run() -> None:
        sync = CommandSync(redis_url, name)
        try:
            await work(sync)
        finally:
            await sync.close()

    asyncio.run(run())


def test_expired_commands_are_removed(
    redis_url: str, tenant: str, state: CommandState, served: Any
) -> None:
    async def work(sync: CommandSync) -> None:
        await sync.serve(state, set(state.targets), 40)
        ((override,), modes) = served()
        assert (override["speculate"], modes) == (0.9, {"*": "off"})
        await sync.serve(state, set(), 49)
        assert len(served()[0]) == 1
        await sync.serve(state, set(), 50)
        assert served() == ([], {"*": "off"})

    keeping(redis_url, tenant, work)


def test_a_redis_that_forgot_gets_all_of_it(
    redis_url: str, tenant: str, state: CommandState, served: Any
) -> None:
    async def work(sync: CommandSync) -> None:
        await sync.serve(state, set(state.targets), 40)
        with redis.Redis.from_url(redis_url) as client:
            client.delete(redis_key(tenant, "refund"), modes_key(tenant))
            await sync.serve(state, set(), 41)
            assert served() == ([], {}), "one hash is not watched"
            client.hdel("headstart:published", f"commands {tenant}")
            await sync.serve(state, set(), 42)
        assert len(served()[0]) == 1
        assert served()[1] == {"*": "off"}

    keeping(redis_url, tenant, work)


def test_commands_that_could_not_be_served_wait(
    redis_url: str, tenant: str, state: CommandState, served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(sync: CommandSync) -> None:
        there = CommandSync(redis_url, tenant)
        await there.serve(state_of(), set(), 39)  # so that this Redis has forgotten nothing
        await sync.serve(state, set(state.targets), 40)
        assert served() == ([], {})
        monkeypatch.setattr(sync, "_publisher", there._publisher)
        monkeypatch.setattr(sync, "_published", there._published)
        await sync.serve(state, set(), 41)
        assert served()[1] == {"*": "off"}
        await sync.serve(state, {CommandTarget("mode", tenant)}, 42)
        assert len(served()[0]) == 1

    keeping("redis://127.0.0.1:1/0", tenant, work)


def test_readers_are_notified_that_all_modes_are_there(
    redis_url: str, tenant: str, state: CommandState
) -> None:
    """At the start, and where the modes alone were lost: no field of ours is missing then."""
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        client.delete(MODES)

        async def work(sync: CommandSync) -> None:
            for loss in ((), (MODES, modes_key(tenant)), (MODES,)):
                if loss:
                    client.delete(*loss)
                await sync.serve(state, set(), 1)
                assert client.hget(MODES, PUBLISHED) == client.info("server")["run_id"]
                assert client.hget(modes_key(tenant), "*") == "off"
            assert CommandTarget("mode", "") not in sync._publisher.kept

        keeping(redis_url, f"{tenant} marker", work)


def test_a_look_asks_for_the_run_id_once(
    redis_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(sync: CommandSync) -> None:
        await sync.serve(state_of(), set(), 1)
        monkeypatch.setattr(sync._publisher._marker, "_run_id", None)
        await sync.serve(state_of(), set(), 2)

    keeping(redis_url, f"{tenant} once", work)


def test_readers_are_not_notified_before_every_command_is_read(
    kafka: str, redis_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that came behind what is read may have been served, and lost, before."""
    topic = Topic(f"test.{uuid4().hex}", "", "", partitioned=False, cleanup="compact")
    monkeypatch.setattr(command_log, "COMMANDS", topic)
    seen = []

    async def remembered() -> PreviousCommands:
        return PreviousCommands((), 0)

    with redis.Redis.from_url(redis_url, decode_responses=True) as client:

        async def work(sync: CommandSync) -> None:
            await create_topics(kafka, 1, topics=[topic])
            await begin_commands(kafka, remembered)
            serve, unpublished = sync.serve, sync._published.unpublished

            async def late(names: list[str]) -> Any:
                if not seen:
                    await send_commands(kafka, [ModeCommand(mode="off", tenant=tenant, at=1)])
                    client.delete(MODES)
                return await unpublished(names)

            async def looked(*arguments: Any) -> None:
                await serve(*arguments)
                there = client.hget(MODES, PUBLISHED) == client.info("server")["run_id"]
                seen.append((there, client.hget(modes_key(tenant), "*")))
                if len(seen) > 1 and there:
                    raise EOFError

            monkeypatch.setattr(sync._published, "unpublished", late)
            monkeypatch.setattr(sync, "serve", looked)
            with pytest.raises(EOFError):
                async with asyncio.timeout(60):
                    await sync.follow(kafka)
            assert seen[0] == (False, None)
            assert seen[-1] == (True, "off")

        keeping(redis_url, f"{tenant} unread", work)


def test_a_snapshot_of_another_server_has_no_valid_marker(
    redis_url: str, tenant: str, state: CommandState
) -> None:
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        client.hset(MODES, PUBLISHED, "the run id of another server")

        async def work(sync: CommandSync) -> None:
            assert not await sync._publisher.has_all_modes()
            await sync.serve(state, set(), 1)
            assert client.hget(MODES, PUBLISHED) == client.info("server")["run_id"]

        keeping(redis_url, f"{tenant} snapshot", work)
