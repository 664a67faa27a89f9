"""Has producers and workers wait while the log is recreated, and makes sure that they do.

From the record of the recreation on, a shipper that connects waits. One that is connected asks for
the topic's partitions again within `METADATA_S`, and connects again if their number has changed: so
the topics get one more, which nothing uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from headstart.shipping.producer_connection import METADATA_S
from replay.backup.restored_log import WorkersRun
from topics.catalogue import DECISIONS, EVENTS
from topics.kafka.groups import describe_groups
from topics.kafka.topic_copies import add_partition
from topics.kafka.topic_states import describe_topics

HOLD_S: Final = METADATA_S + 10.0
"""How long producers get: one that has just asked asks again after `METADATA_S`."""
QUIET_S: Final = 2.0
"""For so long the log must not grow then."""
MEMBERS_S: Final = 20.0
"""Longer than the group session of an ended worker (agents/health/stall_guard.py)."""

Ends = Mapping[str, Mapping[int, int]]


class StillWritten(RuntimeError):
    """Something writes to a topic that is about to be deleted."""

    def __init__(self, topics: Iterable[str]) -> None:
        super().__init__(
            f"something still writes to {', '.join(topics)}, which would be lost: stop it "
            "(executors with a client of an earlier version, or that may not read "
            "headstart.epochs, other Kafka clients), and run this again. No topic was deleted"
        )


class GroupsUnreadable(RuntimeError):
    """The broker does not say whether groups have members; nothing was changed."""

    def __init__(self, groups: Iterable[str]) -> None:
        super().__init__(
            f"the broker does not say whether workers of {', '.join(sorted(groups))} run: the "
            "login may lack Describe on these groups (`headstart topics acl` prints what it "
            "needs), or they are rebalancing: then run this again. Nothing was changed"
        )


async def hold_producers(kafka: str, partitions: int, hold_s: float) -> None:
    """Wait until producers wait, for `hold_s` seconds. Raises `StillWritten`, `BrokerUnreachable`.

    The record of the recreation must be written. `partitions`: those that the log epoch uses.
    """
    await add_partition(kafka, (EVENTS.name, DECISIONS.name))
    await asyncio.sleep(hold_s)
    before = await log_ends(kafka, partitions)
    await asyncio.sleep(QUIET_S)
    require_same_ends(before, await log_ends(kafka, partitions))


async def log_ends(kafka: str, partitions: int) -> dict[str, dict[int, int]]:
    """Return where the topics that producers write to end, by name and partition."""
    states = await describe_topics(kafka, (EVENTS.name, DECISIONS.name))
    return {
        name: {n: max(end, state.high.get(n, 0)) for n, end in state.end.items() if n < partitions}
        for name, state in states.items()
    }


def require_same_ends(before: Ends, after: Ends) -> None:
    """Raise `StillWritten` if a topic has grown."""
    if grown := [name for name, ends in after.items() if ends != before.get(name, ends)]:
        raise StillWritten(grown)


async def require_no_members(
    kafka: str, groups: Iterable[str], patience_s: float = MEMBERS_S
) -> None:
    """Raise `WorkersRun` if a group has members after `patience_s` seconds.

    The broker keeps a worker that ended as a member until its session times out. Raises
    `GroupsUnreadable` if it does not describe a group, as one that rebalances.
    """
    deadline = asyncio.get_running_loop().time() + patience_s
    while True:
        found = await describe_groups(kafka, groups)
        running = [group for group, state in found.items() if state.members]
        if not running and found.keys() >= {*groups}:
            return
        if asyncio.get_running_loop().time() > deadline:
            if running:
                raise WorkersRun(running[0])
            raise GroupsUnreadable({*groups} - found.keys())
        await asyncio.sleep(0.5)
