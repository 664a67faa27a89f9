"""Who set what is served, when and why: kept in Redis for a log of commands that begins again.

The embedded broker loses its log with its process, and what Redis serves to executors does not say
this. Nothing but `config list` depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from sinks.connections import asking_redis
from topics.commands.messages import Begin, Command, command_key, decode_command, encode_command

TOLD: Final = "headstart:commands"
"""A hash: the key of a command's record, and the command."""


async def remember_command(redis_url: str, command: Command) -> None:
    """Keep a command that was set. Raises `RedisUnreachable`."""
    async with asking_redis(redis_url) as client:
        await client.hset(TOLD, command_key(command), encode_command(command))


async def forget_command(redis_url: str, key: bytes) -> None:
    """Forget what was set under a key. Raises `RedisUnreachable`."""
    async with asking_redis(redis_url) as client:
        await client.hdel(TOLD, key)


async def as_told(client: Any, commands: Iterable[Command]) -> list[Command]:
    """Return commands with `at`, `by` and `reason` where the same was set by a command kept."""
    told = await client.hgetall(TOLD)
    return [_as_told(each, told.get(command_key(each))) for each in commands]


def _as_told(served: Command, raw: bytes | None) -> Command:
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
