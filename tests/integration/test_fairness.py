"""A flood by one tenant: other partitions pass it by, and what waits of it is lag, not memory.

Nothing is timed: who went first is read afterwards, from Postgres's transactions and from the
changelog. What comes after a flood in another partition has to wait for a few steps of it, each of
four megabytes; in one queue it would wait for all of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import orjson
import psycopg
import pytest
from redis import Redis

from bench.measuring import produce, resident_mb
from deploy.system import System
from headstart.contexts import event_key
from headstart.frames import encode_frame
from processing.placement import owner
from processing.rows import PARTITION_KEY, version
from topics.catalogue import CHANGELOG, EVENTS
from topics.reading import topic_state

pytestmark = pytest.mark.integration

PARTITIONS = 4
FLOOD = 60_000
PER_FRAME = 100
QUERY = "q" * 1_150
"""Makes an event 1.5 kB long, and the flood ninety megabytes: what may wait is a quarter of it."""
VICTIMS = 20
LEARNED = range(2 * FLOOD, 5 * FLOOD, FLOOD)
"""How long floods are that are learned: the next one where too much of one was learned before what
comes after it was even sent. A worker takes in a third of the first while it waits for Redis."""
SECONDS = 300.0
SETTLED_S = 2.0
TAKEN_IN_S = 0.5
"""Shorter: with each commit that has waited for Redis a part of the flood goes."""
PAUSED_MS = 60_000
BROKEN = b"no event"
"""What is refused has its commit at once; else the victims' rows would follow some time after what
they teach is published, and a flood is learned in that time."""
MOST_GROWTH_MB = 90.0
"""The flood itself. Without a bound it is more: records, and what they are unpacked to."""

Record = tuple[int, bytes, bytes]


def elsewhere(tenant: str, workflow_type: str) -> str:
    """A workflow type of another partition, for this one alone."""
    own = owner(tenant, workflow_type, PARTITIONS)
    names = (f"{workflow_type}-quiet-{number}" for number in range(100))
    return next(name for name in names if owner(tenant, name, PARTITIONS) != own)


def framed(events: Sequence[Mapping[str, Any]], per_frame: int) -> list[Record]:
    """Records of events of one workflow type."""
    tenant, name = events[0]["tenant"], events[0]["workflow_type"]
    place, key = owner(tenant, name, PARTITIONS), event_key(tenant, name)
    values = [orjson.dumps(event) for event in events]
    return [
        (place, key, encode_frame(values[at : at + per_frame]))
        for at in range(0, len(values), per_frame)
    ]


def flood(
    tenant: str, judged: Callable[..., dict[str, Any]], name: str = "flood", events: int = FLOOD
) -> list[Record]:
    """Ninety megabytes of one workflow type, or more."""
    event = judged(tenant, name)
    event["data"]["query"] = QUERY
    ids = (f"00000000-0000-4000-8000-{number:012x}" for number in range(events))
    return framed([event | {"id": each} for each in ids], PER_FRAME)


def send(system: System, records: list[Record]) -> None:
    """Put records on the log."""
    asyncio.run(produce(system.addresses.kafka, records))


def rows(stored: Any, workflow_type: str = "%") -> int:
    """Rows of this tenant."""
    query = "SELECT count(*) FROM episodic_events WHERE tenant = %s AND workflow_type LIKE %s"
    return int(stored.query(query, stored.tenant, workflow_type)[0][0])


def until_learned(system: System, stored: Any, outcomes: dict[str, int], *types: str) -> None:
    """Wait; a worker that got no CPU for a session ends itself, and is started again."""

    def learned() -> bool:
        system.check()
        return bool(outcomes.items() <= stored.counted(*types).items())

    stored.until(learned, SECONDS)


STORED_AFTER = """
SELECT count(*) FROM episodic_events
WHERE tenant = %s AND workflow_type = 'flood' AND xmin::text::bigint > (
    SELECT max(xmin::text::bigint) FROM episodic_events WHERE tenant = %s AND workflow_type = %s
)
"""
"""Rows of the flood whose transaction came after that of the last victim."""


def test_a_slow_postgres_makes_lag_not_memory_and_a_flood_does_not_go_first(
    system: System, tenant: str, stored: Any, judged: Callable[..., dict[str, Any]]
) -> None:
    assert system.supervisor is not None
    quiet = elsewhere(tenant, "flood")
    flooded = flood(tenant, judged)
    worker = system.supervisor.pids["episodes"]
    before = resident_mb(worker)
    with psycopg.connect(system.addresses.postgres) as connection:
        connection.execute("LOCK TABLE episodic_events IN EXCLUSIVE MODE")
        send(system, flooded)
        most = settled_mb(worker)
        send(system, framed([judged(tenant, quiet) for _ in range(VICTIMS)], 1))
    wanted = {"workflow_type=flood": FLOOD, f"workflow_type={quiet}": VICTIMS}
    stored.until(lambda: system.check() or rows(stored) == FLOOD + VICTIMS, SECONDS)
    until_learned(system, stored, wanted, "flood", quiet)
    assert system.supervisor.pids["episodes"] == worker
    after = stored.query(STORED_AFTER, tenant, tenant, quiet)[0][0]
    assert after > FLOOD / 2
    assert most - before < MOST_GROWTH_MB


def settled_mb(process: int, seconds: float = SETTLED_S) -> float:
    """The resident set of a process once it has not grown for so long."""
    most, since = resident_mb(process), time.monotonic()
    while time.monotonic() < since + seconds:
        time.sleep(0.1)
        if (now := resident_mb(process)) > most + 1.0:  # less comes and goes with each commit
            most, since = now, time.monotonic()
    return most


class Progress(NamedTuple):
    """How far the flooded partition was when its victims were sent, and when they took effect."""

    ahead: int
    """Records of the flood that were not yet learned."""
    left: int


def test_learning_passes_a_flood_by(
    system: System,
    tenant: str,
    stored: Any,
    judged: Callable[..., dict[str, Any]],
    read_topic: Callable[..., list[Any]],
) -> None:
    total = 0
    for events in LEARNED:
        name = f"flood-{events}"
        quiet = elsewhere(tenant, name)
        begin = ends(system, CHANGELOG.name)
        flooded = flood(tenant, judged, name, events)
        sent_at = pile_up(system, flooded)
        victims = framed([judged(tenant, quiet) for _ in range(VICTIMS)], 1)
        place, key, _value = victims[-1]
        send(system, [*victims, (place, key, BROKEN)])
        go_on(system)
        end = ends(system, EVENTS.name)
        wanted = {f"workflow_type={name}": events, f"workflow_type={quiet}": VICTIMS}
        until_learned(system, stored, wanted, name, quiet)
        total += events + VICTIMS
        stored.until(lambda: system.check() or rows(stored) == total, SECONDS)  # noqa: B023
        found = progress(read_topic(CHANGELOG.name, begin), end, flooded, place, sent_at)
        if found.ahead > len(flooded) / 2:
            break
    else:
        pytest.fail("floods are learned sooner than they are sent: make them larger")
    assert found.left > found.ahead / 2, found


def ends(system: System, topic: str) -> Mapping[int, int]:
    """The ends of a topic's partitions."""
    return asyncio.run(topic_state(system.addresses.kafka, topic)).end


def pile_up(system: System, flooded: list[Record]) -> int:
    """Send a flood while commits wait for Redis, two seconds each; the time in ms after that."""
    assert system.supervisor is not None
    with Redis.from_url(system.addresses.redis) as redis:
        redis.client_pause(PAUSED_MS, all=False)
    send(system, flooded)
    with suppress(OSError):  # a worker that got no CPU for a session ends itself
        settled_mb(system.supervisor.pids["thresholds"], TAKEN_IN_S)
    return time.time_ns() // 1_000_000


def go_on(system: System) -> None:
    """Have Redis take writes again."""
    with Redis.from_url(system.addresses.redis) as redis:
        redis.client_unpause()


def progress(
    changelog: Sequence[Any], end: Mapping[int, int], flooded: list[Record], quiet_at: int, at: int
) -> Progress:
    """How the learning of a flood stood at `at`, and when its victims at `quiet_at` were learned.

    From the changelog, whose records have the worker's own time.
    """
    commits = [
        (record.timestamp, record.partition, version(record.value)[1])
        for record in changelog
        if record.key == PARTITION_KEY
    ]
    flooded_at = flooded[0][0]

    def left(at: int) -> int:
        reached = [offset for then, place, offset in commits if place == flooded_at and then <= at]
        return min(len(flooded), end[flooded_at] - 1 - max(reached, default=-1))

    last = end[quiet_at] - 1
    learned_at = [then for then, place, offset in commits if place == quiet_at and offset >= last]
    return Progress(left(at), left(min(learned_at)))
