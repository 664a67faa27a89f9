"""Checks that the values in Redis can be read and match the commands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from console.inspection.doctor.findings import ERROR, WARNING, Finding
from sinks.connections import redis_client
from sinks.redis.commands import CommandPublisher, redis_hash
from sinks.redis.queries import REMEDY, UnreadableFields, served_thresholds
from topics.commands.log import read_commands

_SET_ASIDE = "headstart:set-aside:*"
_SERVED_WITHIN_S = 3.0
_UNSERVED_REMEDY = (
    "`headstart thresholds republish` serves it at once; a running threshold worker within a minute"
)


async def check_served(kafka: str, redis: str, now: Callable[[], float]) -> list[Finding]:
    """Return problems of served values. `now`: Unix seconds.

    If broker or Redis does not answer, other checks report it and this one returns nothing.
    """
    found: list[Finding] = []
    for check in (_thresholds(redis), _modes(redis), _commands(kafka, redis, now)):
        try:
            found += await check
        except Exception:
            continue
    return found


async def _thresholds(redis: str) -> list[Finding]:
    unreadable: list[UnreadableFields] = []
    async for _each in served_thresholds(redis, unreadable=unreadable):
        pass
    found = []
    if unreadable:
        what = f"{len(unreadable)} values of thresholds cannot be read, the first: {unreadable[0]}"
        found.append(Finding("served", ERROR, what, REMEDY))
    async with redis_client(redis) as client:
        aside = [key async for key in client.scan_iter(_SET_ASIDE, count=500)]
    if aside:
        first = aside[0].decode(errors="backslashreplace")
        what = f"{len(aside)} keys of another type were set aside, such as {first}"
        found.append(
            Finding(
                "served",
                WARNING,
                what,
                "they expire after a week; find the process that wrote them",
            )
        )
    return found


async def _modes(redis: str) -> list[Finding]:
    async with CommandPublisher(redis) as publisher:
        if await publisher.has_all_modes():
            return []
    what = "no worker has published modes: executors start nothing until one has"
    remedy = "start the service: `headstart up` or `headstart worker thresholds`"
    return [Finding("served", WARNING, what, remedy)]


async def _commands(kafka: str, redis: str, now: Callable[[], float]) -> list[Finding]:
    if not (found := await _not_served(kafka, redis, now)):
        return []
    if any(each.level == ERROR for each in found):
        await asyncio.sleep(_SERVED_WITHIN_S)  # a worker or a command may be about to publish it
        found = await _not_served(kafka, redis, now)
    return found


async def _not_served(kafka: str, redis: str, now: Callable[[], float]) -> list[Finding]:
    """Return where Redis differs from the commands."""
    state = await read_commands(kafka)
    async with CommandPublisher(redis) as publisher:
        looked = await publisher.look(state, int(now() * 1000))
        if not await publisher.has_all_modes():  # reported by `_modes`: executors start nothing
            looked = [(place, said._replace(changes={})) for place, said in looked]
    found = []
    for place, said in looked:
        if newer := publisher.newer.get(place):
            what = f"Redis does not serve what commands set: {newer.what}"
            found.append(Finding("served", ERROR, what, newer.remedy))
        elif said.changes:
            what = f"Redis does not serve what commands set at {redis_hash(place)}"
            found.append(Finding("served", ERROR, what, _UNSERVED_REMEDY))
    remedy = "set it by `headstart config set`, or set it there and then unset it"
    return found + [
        Finding("served", WARNING, f"no command set {what}: {redis_hash(place)}", remedy)
        for place, said in looked
        for what in said.kept
    ]
