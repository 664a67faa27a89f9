"""Who set what is served, when and why: kept in Redis for a log of commands that begins again.

The embedded broker loses its log with its process, and what Redis serves to executors does not say
this. Nothing but `config list` depends on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
from redis.exceptions import ResponseError, WatchError

from sinks.connections import redis_client
from topics.commands.messages import (
    Begin,
    Command,
    CommandTarget,
    command_key,
    decode_command,
    encode_command,
    target_of,
)

AUTHORS_KEY: Final = "headstart:commands"
"""A hash: the key of a command's record, and the command."""


async def remember_command(redis_url: str, command: Command) -> None:
    """Keep a command that was set. Raises `RedisUnreachable`."""
    async with redis_client(redis_url) as client:
        await client.hset(AUTHORS_KEY, command_key(command), encode_command(command))


async def forget_command(redis_url: str, key: bytes) -> None:
    """Forget what was set under a key. Raises `RedisUnreachable`."""
    async with redis_client(redis_url) as client:
        await client.hdel(AUTHORS_KEY, key)


async def watch_commands(
    pipeline: Any, commands: Iterable[Command], left: Collection[CommandTarget]
) -> dict[bytes, bytes | None]:
    """Return what the hash lacks to hold exactly `commands`, by key; None: to be deleted.

    Targets in `left` stay as they are. The pipeline watches the hash from here on. A hash that
    cannot be used lacks nothing: what is served must not depend on it.
    """
    try:
        await pipeline.watch(AUTHORS_KEY)
        found = await pipeline.hgetall(AUTHORS_KEY)
    except ResponseError:
        return {}
    wanted = {command_key(each): encode_command(each) for each in commands}
    keys = [key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key)]
    return {key: wanted.get(key) for key in keys if key in wanted or _may_delete(key, left)}


def _may_delete(key: bytes, left: Collection[CommandTarget]) -> bool:
    try:
        return target_of(key) not in left
    except ValueError:  # no key that this version writes
        return False


async def write_commands(pipeline: Any, changes: Mapping[bytes, bytes | None]) -> None:
    """Make the changes, unless the hash was written to since `watch_commands`."""
    if not changes:
        return
    pipeline.multi()
    for key, command in changes.items():
        if command is None:
            pipeline.hdel(AUTHORS_KEY, key)
        else:
            pipeline.hset(AUTHORS_KEY, key, command)
    with suppress(WatchError, ResponseError):
        await pipeline.execute()


async def with_authors(client: Any, commands: Iterable[Command]) -> list[Command]:
    """Return commands with `at`, `by` and `reason` where the same was set by a command kept."""
    told = await client.hgetall(AUTHORS_KEY)
    return [_with_author(each, told.get(command_key(each))) for each in commands]


def _with_author(served: Command, raw: bytes | None) -> Command:
    if raw is None:
        return served
    try:
        told = decode_command(raw)
    except ValueError:
        return served
    if isinstance(told, Begin):
        return served
    words = {"at": served.at, "by": served.by, "reason": served.reason}
    return told if msgspec.structs.replace(told, **words) == served else served
