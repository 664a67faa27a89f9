"""The marker by which readers know that Redis has all modes: set only where nothing was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

from headstart.keys import MODES, PUBLISHED, modes_key
from sinks.redis.commands import CommandPublisher, commands_in_redis, version_key
from sinks.redis.modes_marker import ModesMarker
from sinks.redis.served_modes import every_mode, served_modes
from topics.commands.messages import (
    Begin,
    CommandState,
    CommandTarget,
    ModeCommand,
    command_key,
    encode_command,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(redis_url, decode_responses=True) as opened:
        opened.delete(MODES, version_key(MODES), f"headstart:served:{{{MODES}}}")
        yield opened
        opened.delete(MODES, version_key(MODES), f"headstart:served:{{{MODES}}}")


def marking(url: str, work: Callable[[ModesMarker], Awaitable[None]]) -> None:
    async def run() -> None:
        async with redis.asyncio.Redis.from_url(url) as opened:
            await work(ModesMarker(opened))

    asyncio.run(run())


def state_of(*commands: ModeCommand) -> CommandState:
    state = CommandState()
    for offset, each in enumerate((Begin(number=1), *commands)):
        state.apply(command_key(each), encode_command(each), offset)
    return state


def test_it_is_set_and_announced_once_all_is_published(redis_url: str, client: Any) -> None:
    with client.pubsub(ignore_subscribe_messages=True) as subscription:
        subscription.subscribe(MODES)
        subscription.get_message(timeout=60)

        async def work(marker: ModesMarker) -> None:
            token = await marker.begin()
            assert token is not None
            assert not await marker.is_set()
            assert subscription.get_message(timeout=0) is None
            assert await marker.finish(token)
            assert await marker.is_set()
            assert await marker.begin() is None, "what is published stays so"

        marking(redis_url, work)
        assert subscription.get_message(timeout=60)["data"] == '{"published":true}'
    assert client.hgetall(MODES) == {PUBLISHED: client.info("server")["run_id"]}


def test_it_is_not_set_where_redis_was_emptied_meanwhile(redis_url: str, client: Any) -> None:
    async def work(marker: ModesMarker) -> None:
        token = await marker.begin()
        assert token is not None
        client.delete(MODES)
        assert not await marker.finish(token)
        assert not client.exists(MODES)
        later = await marker.begin()
        assert later is not None
        assert not await marker.finish(token), "what was published before is gone"
        assert not await marker.is_set()
        assert await marker.finish(later)

    marking(redis_url, work)


def test_concurrent_publishers_share_the_token(redis_url: str, client: Any) -> None:
    async def work(marker: ModesMarker) -> None:
        tokens = [await marker.begin() for _ in range(3)]
        assert len(set(tokens)) == 1
        assert tokens[0] is not None
        assert [await marker.finish(tokens[0]) for _ in tokens] == [True] * 3

    marking(redis_url, work)


def test_modes_in_a_key_of_another_type_have_no_marker(redis_url: str, client: Any) -> None:
    client.set(MODES, "off")

    async def work(marker: ModesMarker) -> None:
        assert await marker.is_set(), "readers take it for off, and nothing can be added"
        assert await marker.begin() is None
        assert not await marker.finish(b"begun x")

    marking(redis_url, work)
    assert client.get(MODES) == "off"


@pytest.mark.parametrize("marker", ["a run id", "begun 0123", "off"])
def test_the_marker_is_not_a_mode(redis_url: str, client: Any, tenant: str, marker: str) -> None:
    client.hset(MODES, PUBLISHED, marker)
    assert [each for each in asyncio.run(every_mode(redis_url)) if each.tenant is None] == []
    assert asyncio.run(served_modes(redis_url, tenant)) == []
    commands = asyncio.run(commands_in_redis(redis_url, 20)()).commands
    assert not [e for e in commands if isinstance(e, ModeCommand) and e.tenant is None]
    state = state_of(ModeCommand(mode="act", tenant=tenant, at=1))

    async def run() -> None:
        async with CommandPublisher(redis_url) as publisher:
            for _ in range(2):
                await publisher.serve_all(state, 0)
                assert CommandTarget("mode", "") not in publisher.kept
            looked = await publisher.look(state, 0)
            assert CommandTarget("mode", "") not in [place for place, _said in looked]

    asyncio.run(run())
    assert client.hgetall(MODES) == {PUBLISHED: client.info("server")["run_id"]}
    assert client.hgetall(modes_key(tenant)) == {"*": "act"}


def test_it_is_not_set_where_commands_were_not_read_yet(redis_url: str, client: Any) -> None:
    state = state_of(ModeCommand(mode="observe", at=1))
    asked = []

    async def run() -> None:
        async with CommandPublisher(redis_url) as publisher:
            for whole in (False, True):

                async def is_whole(whole: bool = whole) -> bool:
                    asked.append(client.hget(MODES, "*"))
                    return whole

                await publisher.serve_all(state, 0, is_whole)
                assert await publisher.has_all_modes() is whole
            await publisher.serve_all(state, 0, is_whole)

    asyncio.run(run())
    assert asked == ["observe"] * 2, "once all is served, and not where the marker is set"


def test_one_place_alone_does_not_set_it(redis_url: str, client: Any) -> None:
    state = state_of(ModeCommand(mode="off", at=1))

    async def run() -> None:
        async with CommandPublisher(redis_url) as publisher:
            await publisher.serve(state, state.targets, 0)

    asyncio.run(run())
    assert client.hgetall(MODES) == {"*": "off"}
