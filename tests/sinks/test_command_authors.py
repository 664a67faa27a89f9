"""Author, time and reason of a command: kept in Redis for a log of commands that restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import redis

from headstart.keys import MODES, PUBLISHED, modes_key
from sinks.redis.command_authors import AUTHORS_KEY, forget_command, remember_command
from sinks.redis.commands import CommandPublisher, IsWhole, commands_in_redis
from tests.sinks.command_log import PATH, Log, override, serve
from topics.commands.log import PreviousCommands
from topics.commands.messages import Command, CommandState, ModeCommand, command_key

pytestmark = pytest.mark.integration


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(redis_url, decode_responses=True) as opened:
        yield opened


def authors(redis_url: str, tenant: str) -> dict[bytes, Command]:
    async def run() -> PreviousCommands:
        return await commands_in_redis(redis_url, 20)()

    commands = asyncio.run(run()).commands
    return {command_key(each): each for each in commands if each.tenant == tenant}


def serve_all(url: str, state: CommandState, is_whole: IsWhole | None = None, now: int = 0) -> None:
    async def run() -> None:
        async with CommandPublisher(url) as publisher:
            await publisher.serve_all(state, now, is_whole)

    asyncio.run(run())


def test_a_new_log_has_author_time_and_reason(redis_url: str, tenant: str) -> None:
    log = Log()
    mode = ModeCommand(mode="off", tenant=tenant, by="ann", reason="slow", at=7)
    other = ModeCommand(mode="off", tenant=tenant, agent="planner", by="bob", at=8)
    for command in (mode, other, override(tenant, by="ann")):
        log.add(command)
        asyncio.run(remember_command(redis_url, command))
    replaced = msgspec.structs.replace(other, mode="observe")  # by what remembers nothing
    log.add(replaced)
    serve(redis_url, log.state())

    found = authors(redis_url, tenant)
    assert found[command_key(mode)] == mode
    assert found[command_key(override(tenant))] == override(tenant, by="ann")
    assert found[command_key(other)] == msgspec.structs.replace(replaced, by="", at=20)
    asyncio.run(forget_command(redis_url, command_key(mode)))
    assert authors(redis_url, tenant)[command_key(mode)] == msgspec.structs.replace(
        mode, by="", reason="", at=20
    )


def test_a_redis_that_was_emptied_gets_the_authors_again(
    redis_url: str, client: Any, tenant: str
) -> None:
    log = Log()
    mode = ModeCommand(mode="off", tenant=tenant, by="ann", reason="slow", at=7)
    ended = override(tenant, path=PATH, by="ann", until=10)
    gone = ModeCommand(mode="off", tenant=tenant, agent="planner", by="bob", at=8)
    for command in (mode, override(tenant, by="ann"), ended, gone):
        log.add(command)
    log.add(gone, kept=False)
    asyncio.run(remember_command(redis_url, gone))  # its deletion did not reach Redis
    client.hset(AUTHORS_KEY, "of another version", "x")

    async def read_less() -> bool:
        return False

    serve_all(redis_url, log.state(), read_less, now=20)
    assert authors(redis_url, tenant)[command_key(mode)].by == ""
    serve_all(redis_url, log.state(), now=20)
    expected = {command_key(mode): mode, command_key(override(tenant)): override(tenant, by="ann")}
    assert authors(redis_url, tenant) == expected
    assert {key.encode() for key in client.hkeys(AUTHORS_KEY) if tenant in key} == set(expected)
    assert client.hdel(AUTHORS_KEY, "of another version") == 1


def test_a_command_set_meanwhile_keeps_its_author(redis_url: str, client: Any, tenant: str) -> None:
    log = Log()
    old = ModeCommand(mode="off", tenant=tenant, by="ann", at=7)
    new = msgspec.structs.replace(old, by="bob", at=8)
    log.add(old)

    async def is_whole() -> bool:
        await remember_command(redis_url, new)  # appended after the end of the log was read
        return True

    serve_all(redis_url, log.state(), is_whole)
    assert authors(redis_url, tenant) == {command_key(new): new}


def test_kept_restrictions_keep_their_author(redis_url: str, client: Any, tenant: str) -> None:
    """A restriction that no command of this log set, and what a later log published."""
    by_hand = ModeCommand(mode="off", tenant=tenant, agent="planner", by="ann", at=7)
    newer = ModeCommand(mode="off", tenant=f"{tenant}-2", by="bob", at=8)
    later, log = Log(number=2), Log()
    later.add(newer)
    log.add(msgspec.structs.replace(newer, mode="observe"))
    serve(redis_url, later.state())
    client.hset(modes_key(tenant), "agent/planner", "off")
    for each in (by_hand, newer):
        asyncio.run(remember_command(redis_url, each))
    serve_all(redis_url, log.state())
    assert authors(redis_url, tenant) == {command_key(by_hand): by_hand}
    assert authors(redis_url, newer.tenant or "") == {command_key(newer): newer}


def test_authors_that_cannot_be_kept_stop_no_command(
    redis_url: str, client: Any, tenant: str
) -> None:
    log = Log()
    log.add(ModeCommand(mode="off", tenant=tenant, at=7))
    client.delete(AUTHORS_KEY, MODES)
    client.set(AUTHORS_KEY, "no hash")
    try:
        serve_all(redis_url, log.state())
        assert client.hgetall(modes_key(tenant)) == {"*": "off"}
        assert client.hget(MODES, PUBLISHED) == client.info("server")["run_id"]
    finally:
        client.delete(AUTHORS_KEY)
