"""Checks that the values in Redis can be read and match the commands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from console.inspection.doctor.findings import ERROR, WARNING, Finding
from headstart.keys import event_key
from sinks.connections import redis_client
from sinks.redis.commands import CommandPublisher
from sinks.redis.masters import scan_keys
from sinks.redis.models import served_models
from sinks.redis.queries import REMEDY, UnreadableFields, served_thresholds
from topics.catalogue import COMMANDS
from topics.commands.log import read_commands
from topics.commands.messages import CommandState
from topics.models.log import read_log_end

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
    checks = (
        _thresholds(redis), _modes(redis), _commands(kafka, redis, now), _models(kafka, redis)
    )  # fmt: skip
    for check in checks:
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
        aside = [key async for key in scan_keys(client, _SET_ASIDE)]
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


async def _models(kafka: str, redis: str) -> list[Finding]:
    """Return that shared models in Redis are later than the log, so that no worker learned them."""
    served = await served_models(redis, snapshots=False)
    end = await read_log_end(kafka)  # after the versions to compare with it
    ahead = [m for m in served if end.is_ahead(event_key(*m.names), (m.epoch, m.offset))]
    if not ahead:
        return []
    first, many = ahead[0], f"{len(ahead)} shared models" if len(ahead) > 1 else "a shared model"
    what = (
        f"Redis has {many} with a version later than the log, and executors get no other: "
        f"{first.workflow_type} of tenant {first.tenant} has {first.epoch}:{first.offset}"
    )
    remedy = "`headstart predict models` marks them, `headstart predict verify` prints what to do"
    return [Finding("served", ERROR, what, remedy)]


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
            looked = [(place, merged._replace(changes={})) for place, merged in looked]
    found = []
    for place, merged in looked:
        if newer := publisher.newer.get(place):
            what = f"Redis does not serve what commands set: {newer.what}"
            found.append(Finding("served", ERROR, what, newer.remedy))
        elif merged.changes:
            what = f"Redis does not serve what commands set at {publisher.hash_of(place)}"
            found.append(Finding("served", ERROR, what, _UNSERVED_REMEDY))
    remedy = "set it by `headstart config set`, or set it there and then unset it"
    return (
        found
        + refused_records(state)
        + [
            Finding("served", WARNING, f"no command set {what}: {publisher.hash_of(place)}", remedy)
            for place, merged in looked
            for what in merged.kept
        ]
    )


def refused_records(state: CommandState) -> list[Finding]:
    """Return that records of the log of commands are invalid, and have no effect."""
    if not state.refused:
        return []
    offset, reason = max(state.refused.items())
    what = (
        f"records of {COMMANDS.name} are refused and have no effect: {len(state.refused):,}; the "
        f"last is at offset {offset}: {reason:.200}"
    )
    remedy = "use `headstart config set` and `unset`; no other program may write to that topic"
    return [Finding("served", WARNING, what, remedy)]
