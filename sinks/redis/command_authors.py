"""Stores commands with author, time and reason in Redis, to restore them in a new log.

The embedded broker loses the log of commands with its process, and the hashes that executors read
do not contain these fields. Only `config list` depends on them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec
from redis.exceptions import ResponseError

from sinks.connections import redis_client
from sinks.redis.lua import script
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
_WRITE: Final = script("write_authors")


async def remember_command(redis_url: str, command: Command) -> None:
    """Store a command. Raises `RedisUnreachable`."""
    async with redis_client(redis_url) as client:
        await client.hset(AUTHORS_KEY, command_key(command), encode_command(command))


async def forget_command(redis_url: str, key: bytes) -> None:
    """Delete the command of a key. Raises `RedisUnreachable`."""
    async with redis_client(redis_url) as client:
        await client.hdel(AUTHORS_KEY, key)


class AuthorChange(NamedTuple):
    """A stored command as it was read, and as it should be; None: there is none."""

    read: bytes | None
    wanted: bytes | None


async def changed_commands(
    client: Any, commands: Iterable[Command], left: Collection[CommandTarget]
) -> dict[bytes, AuthorChange]:
    """Return the changes that make the hash hold exactly `commands`, by key.

    Targets in `left` stay as they are. If the hash cannot be used there are no changes: serving
    must not depend on it.
    """
    try:
        found = await client.hgetall(AUTHORS_KEY)
    except ResponseError:
        return {}
    wanted = {command_key(each): encode_command(each) for each in commands}
    keys = [key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key)]
    return {
        key: AuthorChange(found.get(key), wanted.get(key))
        for key in keys
        if key in wanted or _may_delete(key, left)
    }


def _may_delete(key: bytes, left: Collection[CommandTarget]) -> bool:
    try:
        return target_of(key) not in left
    except ValueError:  # not a key of this version
        return False


async def write_commands(client: Any, changes: Mapping[bytes, AuthorChange]) -> None:
    """Apply all changes, or none if one of the commands is not the one that was read."""
    if not changes:
        return
    words = [
        word
        for key, change in changes.items()
        for word in (key, _marked(change.read), _marked(change.wanted))
    ]
    with suppress(ResponseError):
        await client.eval(_WRITE, 1, AUTHORS_KEY, *words)


def _marked(value: bytes | None) -> bytes:
    return b"-" if value is None else b"=" + value


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
