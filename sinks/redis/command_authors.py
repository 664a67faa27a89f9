"""Stores commands with author, time and reason in Redis, to restore them in a new log.

The embedded broker loses the log of commands with its process, and the hashes that executors read
do not contain these fields. Only `config list` depends on them.
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
"""A hash: the key of a command's record to the command."""


async def remember_command(redis_url: str, command: Command) -> None:
    """Store a command. Raises `RedisUnreachable`."""
    async with redis_client(redis_url) as client:
        await client.hset(AUTHORS_KEY, command_key(command), encode_command(command))


async def forget_command(redis_url: str, key: bytes) -> None:
    """Delete the command of a key. Raises `RedisUnreachable`."""
    async with redis_client(redis_url) as client:
        await client.hdel(AUTHORS_KEY, key)


async def watch_commands(
    pipeline: Any, commands: Iterable[Command], left: Collection[CommandTarget]
) -> dict[bytes, bytes | None]:
    """Return the changes that make the hash hold exactly `commands`, by key; None deletes.

    Targets in `left` stay as they are. The pipeline watches the hash from here on. If the hash
    cannot be used there are no changes: serving must not depend on it.
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
    except ValueError:  # not a key of this version
        return False


async def write_commands(pipeline: Any, changes: Mapping[bytes, bytes | None]) -> None:
    """Apply the changes, unless the hash was written to since `watch_commands`."""
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
    """Return commands, with `at`, `by` and `reason` of the equal stored command if there is one."""
    stored = await client.hgetall(AUTHORS_KEY)
    return [_with_author(each, stored.get(command_key(each))) for each in commands]


def _with_author(served: Command, raw: bytes | None) -> Command:
    if raw is None:
        return served
    try:
        stored = decode_command(raw)
    except ValueError:
        return served
    if isinstance(stored, Begin):
        return served
    authorship = {"at": served.at, "by": served.by, "reason": served.reason}
    return stored if msgspec.structs.replace(stored, **authorship) == served else served
