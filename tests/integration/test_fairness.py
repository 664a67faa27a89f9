"""A flood by one tenant: other partitions pass it by, and what waits of it is lag, not memory.

Nothing is timed: while the flood is not yet through, what came after it in another partition is.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from bench.measuring import produce, resident_mb
from deploy.system import System
from headstart.contexts import event_key
from headstart.frames import encode_frame
from processing.placement import owner

pytestmark = pytest.mark.integration

PARTITIONS = 4
FLOOD = 120_000
PER_FRAME = 100
VICTIMS = 20
SECONDS = 240.0
HELD_S = 6.0
"""For how long the flood meets a table that takes no rows."""
MOST_GROWTH_MB = 120.0
"""The flood is more than twice as large; what may wait of one partition is a fifth of this."""


def elsewhere(tenant: str, workflow_type: str) -> str:
    """A workflow type of another partition."""
    own = owner(tenant, workflow_type, PARTITIONS)
    names = (f"quiet-{number}" for number in range(100))
    return next(name for name in names if owner(tenant, name, PARTITIONS) != own)


def send(system: System, tenant: str, events: list[dict[str, Any]], per_frame: int) -> None:
    """Put events of one workflow type on the log, in frames."""
    name = events[0]["workflow_type"]
    key, place = event_key(tenant, name), owner(tenant, name, PARTITIONS)
    values = [json.dumps(event).encode() for event in events]
    frames = (
        (place, key, encode_frame(values[at : at + per_frame]))
        for at in range(0, len(values), per_frame)
    )
    asyncio.run(produce(system.addresses.kafka, frames))


def flood(tenant: str, judged: Callable[..., dict[str, Any]]) -> list[dict[str, Any]]:
    """Ninety megabytes of one workflow type."""
    data = judged(tenant)["data"] | {"query": "q" * 400}
    event = judged(tenant, "flood", data=data)
    return [event | {"id": f"00000000-0000-4000-8000-{number:012x}"} for number in range(FLOOD)]


def rows(stored: Any, workflow_type: str = "%") -> int:
    """Rows of this tenant."""
    query = "SELECT count(*) FROM episodic_events WHERE tenant = %s AND workflow_type LIKE %s"
    return int(stored.query(query, stored.tenant, workflow_type)[0][0])


def test_a_slow_postgres_makes_lag_not_memory_and_a_flood_does_not_go_first(
    system: System, tenant: str, stored: Any, judged: Callable[..., dict[str, Any]]
) -> None:
    assert system.supervisor is not None
    quiet = elsewhere(tenant, "flood")
    worker = system.supervisor.pids["episodes"]
    before = resident_mb(worker)
    with psycopg.connect(system.addresses.postgres) as connection:
        connection.execute("LOCK TABLE episodic_events IN EXCLUSIVE MODE")
        send(system, tenant, flood(tenant, judged), PER_FRAME)
        send(system, tenant, [judged(tenant, quiet) for _ in range(VICTIMS)], 1)
        most = before
        held_until = time.monotonic() + HELD_S
        while time.monotonic() < held_until:
            most = max(most, resident_mb(worker))
            time.sleep(0.1)
    stored.until(lambda: rows(stored, quiet) == VICTIMS, SECONDS)
    assert rows(stored, "flood") < FLOOD
    stored.until(lambda: rows(stored) == FLOOD + VICTIMS, SECONDS)
    assert system.supervisor.pids["episodes"] == worker
    assert most - before < MOST_GROWTH_MB


def test_learning_passes_a_flood_by(
    system: System, tenant: str, stored: Any, judged: Callable[..., dict[str, Any]]
) -> None:
    quiet = elsewhere(tenant, "flood")
    send(system, tenant, flood(tenant, judged), PER_FRAME)
    send(system, tenant, [judged(tenant, quiet) for _ in range(VICTIMS)], 1)
    path, flooded = f"workflow_type={quiet}", "workflow_type=flood"
    stored.until(lambda: stored.counted(quiet).get(path) == VICTIMS, SECONDS)
    assert stored.counted("flood").get(flooded, 0) < FLOOD
    stored.until(lambda: stored.counted("flood").get(flooded) == FLOOD, SECONDS)
    stored.until(lambda: rows(stored) == FLOOD + VICTIMS, SECONDS)
