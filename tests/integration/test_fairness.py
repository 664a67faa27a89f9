"""A flood by one tenant: other partitions pass it by, and what waits of it is lag, not memory.

Nothing is timed: who went first is read afterwards, from Postgres's transactions and from the
changelog. What comes after a flood in another partition has to wait for a few steps of it, each of
four megabytes; in one queue it would wait for all of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
import psycopg
import pytest

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
FLOODS = 5
"""So often a flood may be learned before what comes after it was even sent."""
SECONDS = 300.0
SETTLED_S = 2.0
MOST_GROWTH_MB = 70.0

Record = tuple[int, bytes, bytes]


def elsewhere(tenant: str, workflow_type: str) -> str:
    """A workflow type of another partition."""
    own = owner(tenant, workflow_type, PARTITIONS)
    names = (f"quiet-{number}" for number in range(100))
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


def flood(tenant: str, judged: Callable[..., dict[str, Any]], name: str = "flood") -> list[Record]:
    """Ninety megabytes of one workflow type."""
    event = judged(tenant, name)
    event["data"]["query"] = QUERY
    ids = (f"00000000-0000-4000-8000-{number:012x}" for number in range(FLOOD))
    return framed([event | {"id": each} for each in ids], PER_FRAME)


def send(system: System, records: list[Record]) -> None:
    """Put records on the log."""
    asyncio.run(produce(system.addresses.kafka, records))


def rows(stored: Any, workflow_type: str = "%") -> int:
    """Rows of this tenant."""
    query = "SELECT count(*) FROM episodic_events WHERE tenant = %s AND workflow_type LIKE %s"
    return int(stored.query(query, stored.tenant, workflow_type)[0][0])


def wait(system: System, stored: Any, condition: Callable[[], bool]) -> None:
    """Until it holds; a worker that got no CPU for a session ends itself, and is started again."""

    def look() -> bool:
        system.check()
        return condition()

    stored.until(look, SECONDS)


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
    learned = {"workflow_type=flood": FLOOD, f"workflow_type={quiet}": VICTIMS}
    stored.until(lambda: rows(stored) == FLOOD + VICTIMS, SECONDS)
    wait(system, stored, lambda: learned.items() <= stored.counted("flood", quiet).items())
    assert system.supervisor.pids["episodes"] == worker
    after = stored.query(STORED_AFTER, tenant, tenant, quiet)[0][0]
    print(f"grown by {most - before:.0f} MB; {after} rows of the flood after the victims")
    assert most - before < MOST_GROWTH_MB
    assert after > FLOOD / 2


def settled_mb(process: int) -> float:
    """The resident set of a process once it has stopped growing."""
    most, since = resident_mb(process), time.monotonic()
    while time.monotonic() < since + SETTLED_S:
        time.sleep(0.1)
        if (now := resident_mb(process)) > most:
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
    for number in range(1, FLOODS + 1):
        found = learned(system, stored, judged, read_topic, f"flood-{number}")
        wait(system, stored, lambda: rows(stored) == number * (FLOOD + VICTIMS))  # noqa: B023
        if found.ahead > FLOOD / PER_FRAME / 2:
            break
    else:
        pytest.fail("floods are learned sooner than they are sent: make them larger")
    print(found)
    assert found.left > found.ahead / 2, found


def learned(
    system: System,
    stored: Any,
    judged: Callable[..., dict[str, Any]],
    read_topic: Callable[..., list[Any]],
    name: str,
) -> Progress:
    """Send a flood, and a few events behind it to another partition; wait until both are learned.

    The changelog tells the order: its records have the worker's own time.
    """
    kafka, tenant = system.addresses.kafka, stored.tenant
    quiet = elsewhere(tenant, name)
    flooded = flood(tenant, judged, name)
    victims = framed([judged(tenant, quiet) for _ in range(VICTIMS)], 1)
    begin = asyncio.run(topic_state(kafka, CHANGELOG.name)).end
    send(system, flooded)
    sent_at = time.time_ns() // 1_000_000
    send(system, victims)
    ends = asyncio.run(topic_state(kafka, EVENTS.name)).end
    wanted = {f"workflow_type={name}": FLOOD, f"workflow_type={quiet}": VICTIMS}
    wait(system, stored, lambda: wanted.items() <= stored.counted(name, quiet).items())
    commits = [
        (record.timestamp, record.partition, version(record.value)[1])
        for record in read_topic(CHANGELOG.name, begin)
        if record.key == PARTITION_KEY
    ]
    flooded_at, quiet_at = owner(tenant, name, PARTITIONS), owner(tenant, quiet, PARTITIONS)
    learned_at = min(
        at for at, place, offset in commits if place == quiet_at and offset >= ends[quiet_at] - 1
    )

    def left(at: int) -> int:
        reached = [offset for then, place, offset in commits if place == flooded_at and then <= at]
        return min(len(flooded), ends[flooded_at] - 1 - max(reached, default=-1))

    return Progress(left(sent_at), left(learned_at))
