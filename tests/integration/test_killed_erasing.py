"""kill -9 of the event sink in the middle of a purge: after a restart the end is the same.

The sink carries out a purge alone, as it does if the command ends right after it has sent the
record. A lock on a table that the purge is about to write stops it at that point.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from deploy.supervisor import Supervisor
from headstart.events.schema import new_id
from replay.purge.run import PurgeServices, look_up_purge
from tests.integration.agent_runs import agent_run
from tests.integration.hosts import Site
from tests.memory.complaints.purging import dump, found_in, refer_to
from tests.processes import wait_gone
from topics.control.log import send_control
from topics.control.messages import Purge

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CANARY = "canary-0d3f"
COLD_MS = 9 * 86_400_000
KEPT = ("both", "cold-both", "other", "unnamed")
TENANT = "its tenant"
POINTS = (
    TENANT, "episodic_events", "episodes", "episode_vectors", "memory_retrievals",
    "memory_profiles", "memory_purges", "memory_audit", "sink_offsets",
)  # fmt: skip
"""What the purge is kept from, in the order in which it comes to them; packed runs are unpacked at
the second, and the last ends the transaction."""
TENANT_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('headstart memory ' || %s, 0))"
WAITS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE %s = ANY (pg_blocking_pids(pid)) AND backend_type = 'client backend'
"""
END_WAITING = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))
"""
"""Ends the transaction of a client that was killed: Postgres itself notices it after the lock."""
RUNS = "SELECT workflow_id FROM episodes WHERE tenant = %s AND state = 'live' ORDER BY 1"
OFFSETS = "SELECT offsets FROM memory_purges WHERE tenant = %s AND user_id = 'u1'"
DELETED = """
    SELECT key, value::bigint FROM memory_audit, jsonb_each_text(counts -> 'rows')
    WHERE tenant = %s AND action = 'purge'
"""
ROWS_PACKED = {"HEADSTART_PACK_AFTER_DAYS": "0"}
"""Settings of workers that pack nothing by themselves."""


def runs_of(tenant: str) -> list[dict[str, Any]]:
    """Runs of u1 and of others, of which some are cold, and some are of both."""
    cold = {"timestamp": time.time_ns() // 1_000_000 - COLD_MS}
    return [
        *agent_run(tenant, "u1", "mine", CANARY),
        *agent_run(tenant, None, "mine", f"names no user {CANARY}"),
        *agent_run(tenant, "u1", "ordered", CANARY, workflow_type="order"),
        *agent_run(tenant, "u1", "cold", CANARY, **cold),
        *agent_run(tenant, "u1", "cold-both", CANARY, **cold),
        *agent_run(tenant, "u2", "cold-both", "of the other", **cold),
        *agent_run(tenant, "u1", "both", CANARY),
        *agent_run(tenant, "u2", "both", "of the other"),
        *agent_run(tenant, "u2", "other", "something else"),
        *agent_run(tenant, None, "unnamed", "no user"),
    ]


class Killed:
    """The event sink of a site, which is killed while something waits for a lock."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._worker: Supervisor | None = None

    def start(self) -> None:
        self._worker = self._site.start("a", "episodes")

    def kill(self) -> None:
        """End the worker without a warning."""
        assert self._worker is not None
        pids = self._worker.pids
        os.kill(pids["episodes"], signal.SIGKILL)
        wait_gone(pids)
        self._site.end(self._worker)


def hold(dsn: str, what: str, tenant: str) -> psycopg.Connection:
    """Keep others from writing a table, or the tenant, until the connection is closed."""
    owner = psycopg.connect(dsn)
    if what != TENANT:
        owner.execute(f"LOCK TABLE {what} IN SHARE MODE".encode())
    else:
        owner.execute(TENANT_LOCK, [tenant])
    return owner


def points(stored: Any) -> list[str]:
    """Return those that the database has: without pgvector there is no table of vectors."""
    there = stored.query("SELECT relname FROM pg_class WHERE relname = ANY (%s)", list(POINTS))
    return [each for each in POINTS if each == TENANT or (each,) in there]


def rows_of(dsn: str, tenant: str) -> dict[str, list[str]]:
    """Return every row of a tenant, as text; not what the memory worker has still to do."""
    return {
        table: [row for row in rows if tenant in row]
        for table, rows in dump(dsn).items()
        if table != "episode_outbox"
    }


def filled(site: Site, stored: Any, tenants: Sequence[str]) -> None:
    """Store the runs of the tenants, with all that refers to them; pack the cold ones."""
    workers = site.start("a", "episodes", "memory")
    for tenant in tenants:
        site.emit(runs_of(tenant))
        site.until(lambda tenant=tenant: len(live(stored, tenant)) == 7)
    site.end(workers)
    packed = site.run("memory", "pack", host="a")
    assert packed.returncode == 0, packed.stderr
    for tenant in tenants:
        refer_to(site.addresses.postgres, "mine", tenant=tenant)
        assert stored.query("SELECT FROM episodes WHERE tenant = %s AND trace IS NOT NULL", tenant)


def send_purge(site: Site, tenant: str) -> None:
    """Send the record of a purge as the command does, and delete nothing."""
    services = PurgeServices(site.addresses.kafka, site.addresses.postgres)
    wanted = Purge(new_id(), time.time_ns() // 1_000_000, tenant, "u1")
    purge, _preview = asyncio.run(look_up_purge(services, wanted))
    assert purge.runs == ("mine",)
    asyncio.run(send_control(services.kafka, purge))


def live(stored: Any, tenant: str) -> list[str]:
    """Return the runs that have an episode; empty while some are to be assembled."""
    if stored.query("SELECT FROM episode_outbox WHERE tenant = %s", tenant):
        return []
    return [row[0] for row in stored.query(RUNS, tenant)]


def deleted(stored: Any, tenant: str) -> Counter[str]:
    """Return how many rows of each table the purge has deleted, by its audit rows."""
    found: Counter[str] = Counter()
    for table, count in stored.query(DELETED, tenant):
        found[table] += count
    return found


def test_killed_at_any_point_of_its_own_erasing_the_sink_ends_the_same(
    site: Site, stored_at: Any, tenant: str
) -> None:
    dsn, twin = site.addresses.postgres, tenant.replace("tenant", "twin")
    site.of_host = dict.fromkeys("ab", ROWS_PACKED)
    at = {"postgres": dsn, "redis": site.addresses.redis}
    stored, sink = stored_at(at, tenant), Killed(site)
    filled(site, stored, (tenant, twin))

    def applied(of: str) -> int:
        """In how many partitions the purge is noted as carried out."""
        return len((stored.query(OFFSETS, of) or [({},)])[0][0])

    sink.start()
    send_purge(site, twin)
    site.until(lambda: applied(twin) == site.epoch.partitions)
    unharmed = deleted(stored, twin)
    before = rows_of(dsn, tenant)
    with ExitStack() as locks:
        first, *others = points(stored)
        owner = locks.enter_context(hold(dsn, first, tenant))
        send_purge(site, tenant)
        for after in (*others, None):
            pid = owner.info.backend_pid
            site.until(lambda pid=pid: stored.query(WAITS, pid) == [(1,)])
            sink.kill()
            stored.query(END_WAITING, pid)
            site.until(lambda pid=pid: stored.query(WAITS, pid) == [(0,)])
            assert rows_of(dsn, tenant) == before, "all of it or nothing"
            ended = owner
            if after is not None:
                owner = locks.enter_context(hold(dsn, after, tenant))
            ended.close()
            sink.start()
    site.until(lambda: applied(tenant) > 0)
    sink.kill()  # in or between the transactions of two partitions
    sink.start()
    site.until(lambda: applied(tenant) == site.epoch.partitions)
    assert deleted(stored, tenant) == unharmed
    assert unharmed["episodic_events"] == 6 * 3
    foreign = {row for row in before["episodic_events"] if CANARY not in row}
    assert foreign
    assert foreign <= set(rows_of(dsn, tenant)["episodic_events"]), "of others nothing is gone"

    site.start("b", "memory")
    for each in (tenant, twin):
        site.until(lambda each=each: live(stored, each) == [*KEPT])
    assert found_in(dsn, CANARY) == []
    left, right = (
        {table: len(rows) for table, rows in rows_of(dsn, each).items() if table != "memory_audit"}
        for each in (tenant, twin)
    )
    assert left == right
