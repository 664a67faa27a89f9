"""A flood by one tenant: other partitions pass it by, and what waits of it is lag, not memory.

Nothing is timed: the order is read from Postgres's transactions and from the changelog, and
each flood is held up until what comes after it has been sent. In another partition that has to wait
for a few steps of the flood, each of four megabytes; in one queue it would wait for all of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import orjson
import psycopg
import pytest
from redis import Redis

from bench.support.measuring import produce, resident_mb
from deploy.system import System
from headstart.events.frames import encode_frame
from headstart.keys import event_key
from processing.records.partitioner import partition_for
from processing.state.rows import PARTITION_KEY, version
from topics.catalogue import CHANGELOG, EVENTS
from topics.kafka.reader import topic_state

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

PARTITIONS = 4
FLOOD = 60_000
PER_FRAME = 100
QUERY = "q" * 1_150
"""Makes an event 1.5 kB long, and the flood ninety megabytes: what may wait is a quarter of it."""
VICTIMS = 20
LEARNED = 2 * FLOOD
"""Of these a worker takes in a third at the most before it waits for Redis, and then one in twenty
with each commit."""
SECONDS = 300.0
SETTLED_S = 2.0
TAKEN_IN_S = 0.5
"""Shorter: with each commit that has waited for Redis a part of the flood goes."""
PAUSED_MS = int(1_000 * SECONDS)
MOST_GROWTH_MB = 90.0
"""The flood itself. Without a bound it is more: records, and what they are unpacked to."""

Record = tuple[int, bytes, bytes]


def elsewhere(tenant: str, workflow_type: str) -> str:
    """A workflow type of another partition, for this one alone."""
    own = partition_for(tenant, workflow_type, PARTITIONS)
    names = (f"{workflow_type}-quiet-{number}" for number in range(100))
    return next(name for name in names if partition_for(tenant, name, PARTITIONS) != own)


def framed(events: Sequence[Mapping[str, Any]], per_frame: int) -> list[Record]:
    """Records of events of one workflow type."""
    tenant, name = events[0]["tenant"], events[0]["workflow_type"]
    place, key = partition_for(tenant, name, PARTITIONS), event_key(tenant, name)
    values = [orjson.dumps(event) for event in events]
    return [
        (place, key, encode_frame(values[at : at + per_frame]))
        for at in range(0, len(values), per_frame)
    ]


def flood(tenant: str, judged: Callable[..., dict[str, Any]], events: int = FLOOD) -> list[Record]:
    """Ninety megabytes of one workflow type, or more."""
    event = judged(tenant, "flood")
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


def until_learned(stored: Any, outcomes: dict[str, int], *types: str) -> None:
    """Wait for the outcomes of these contexts in Redis."""
    stored.until(lambda: outcomes.items() <= stored.counted(*types).items(), SECONDS)


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
    stored.until(lambda: rows(stored) == FLOOD + VICTIMS, SECONDS)
    until_learned(stored, wanted, "flood", quiet)
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


@pytest.mark.plain_only(reason="no user of the secured Redis may pause it")
def test_learning_passes_a_flood_by(
    system: System,
    tenant: str,
    stored: Any,
    judged: Callable[..., dict[str, Any]],
    read_topic: Callable[..., list[Any]],
) -> None:
    quiet = elsewhere(tenant, "flood")
    begin = ends(system, CHANGELOG.name)
    flooded = flood(tenant, judged, LEARNED)
    victims = framed([judged(tenant, quiet) for _ in range(VICTIMS)], 1)
    flooded_at, quiet_at = flooded[0][0], victims[0][0]

    def left(partition: int) -> int:
        learned = reached(read_topic(CHANGELOG.name, begin), partition)
        return ends(system, EVENTS.name)[partition] - 1 - learned

    with commits_waiting_for_redis(system):
        send(system, flooded)
        settle(system)
        ahead = left(flooded_at)
        send(system, victims)
        stored.until(lambda: left(quiet_at) == 0, SECONDS)
        found = left(flooded_at)
    wanted = {"workflow_type=flood": LEARNED, f"workflow_type={quiet}": VICTIMS}
    until_learned(stored, wanted, "flood", quiet)
    stored.until(lambda: rows(stored) == LEARNED + VICTIMS, SECONDS)
    assert found > ahead / 2, (found, ahead)


def ends(system: System, topic: str) -> Mapping[int, int]:
    """The ends of a topic's partitions."""
    return asyncio.run(topic_state(system.addresses.kafka, topic)).end


@contextmanager
def commits_waiting_for_redis(system: System) -> Iterator[None]:
    """Each commit of the threshold worker is in the changelog, then waits for two seconds."""
    with Redis.from_url(system.addresses.redis) as redis:
        redis.client_pause(PAUSED_MS, all=False)
        try:
            yield
        finally:
            redis.client_unpause()


def settle(system: System) -> None:
    """Return once the threshold worker has taken in what it takes."""
    assert system.supervisor is not None
    with suppress(OSError):  # one that got no CPU for a session ends itself
        settled_mb(system.supervisor.pids["thresholds"], TAKEN_IN_S)


def reached(changelog: Sequence[Any], partition: int) -> int:
    """The offset up to which a partition is learned, by its rows; -1 for nothing."""
    rows = (record for record in changelog if record.partition == partition)
    return max((version(each.value)[1] for each in rows if each.key == PARTITION_KEY), default=-1)
