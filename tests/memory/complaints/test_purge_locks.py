"""A purge beside the memory worker, which takes rows of the outbox before it locks their tenants.

And beside an import, which embeds texts between two transactions.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from psycopg import errors
from psycopg.conninfo import make_conninfo

from agents.memory import assembling
from memory.embedding.interface import Vectors
from memory.store.importing import embed_imported, import_episodes
from memory.store.outbox import take_runs
from replay.purge import run as purge_run
from sinks.connections import connect_postgres
from sinks.postgres.purges import erase
from sinks.postgres.tenant_locks import lock_tenants
from tests.memory.complaints.assembling import worker
from tests.memory.complaints.purging import CANARY, Log, WordEmbedder, everybody, found_in, of_user
from tests.memory.finished_runs import finished_run
from tests.memory.stored_runs import rows

pytestmark = pytest.mark.integration

OUTBOX = "SELECT tenant, workflow_id FROM episode_outbox ORDER BY 1, 2"
USERS = "SELECT count(*) FROM episodes WHERE tenant = 'acme' AND user_id = 'u1'"


async def erased(dsn: str) -> dict[str, int]:
    """Carry out the purge of a user as sink and command do."""
    async with await connect_postgres(dsn) as connection, connection.transaction():
        await lock_tenants(connection, (), ["acme"])
        return await erase(connection, of_user())


@pytest.mark.parametrize("role", [None, "headstart_sink"])
def test_a_purge_does_not_wait_for_a_worker_that_waits_for_it(
    migrated: str, role: str | None
) -> None:
    """The worker has taken the rows of the runs; it finds out of the purge when it has the lock."""
    log = Log()
    log.write(*everybody())

    async def steps() -> Any:
        await log.store(migrated)
        async with worker(migrated, WordEmbedder()) as target:
            async with target.connection.transaction():
                runs, count = await take_runs(target.connection, 500, 0, ())
                assert count
                purge = asyncio.create_task(
                    erased(make_conninfo(migrated, user=role) if role else migrated)
                )
                done, _ = await asyncio.wait([purge], timeout=5)
                assembled, _ = await assembling._assemble(target, runs, count)
                await purge
            return assembled, bool(done)

    assembled, free = asyncio.run(steps())
    assert free, "the purge waited for the worker"
    assert assembled.episodes
    assert rows(migrated, USERS) == [(0,)]
    assert found_in(migrated, CANARY) == []
    assert rows(migrated, OUTBOX) == []


def test_rows_that_a_worker_gives_back_bring_nothing_of_the_user(migrated: str) -> None:
    log = Log()
    log.write(*everybody())

    async def steps() -> None:
        await log.store(migrated)
        async with worker(migrated, WordEmbedder()) as target:
            async with target.connection.transaction(force_rollback=True):
                await take_runs(target.connection, 500, 0, ())
                async with asyncio.timeout(30):
                    await erased(migrated)
            assert rows(migrated, OUTBOX)
            while (await assembling.assemble_next(target, 500, 0)).rows:
                pass

    asyncio.run(steps())
    assert rows(migrated, USERS) == [(0,)]
    assert found_in(migrated, CANARY) == []


def test_a_purge_that_a_deadlock_ended_begins_again(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    log.write(*everybody())
    asyncio.run(log.store(migrated))
    failures = [errors.DeadlockDetected(), errors.DeadlockDetected()]

    async def sometimes(*given: Any, **more: Any) -> dict[str, int]:
        counts = await erase(*given, **more)
        if failures:
            raise failures.pop()
        return counts

    monkeypatch.setattr(purge_run, "erase", sometimes)

    async def steps() -> dict[str, int]:
        async with await connect_postgres(migrated) as connection:
            return await purge_run._erase(connection, of_user())

    assert asyncio.run(steps())["episodic_events"] == 6
    assert not failures
    assert found_in(migrated, CANARY) == []


class Overtaken(WordEmbedder):
    """A purge is carried out while it embeds."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self._dsn = dsn

    def embed(self, texts: Any) -> Vectors:
        asyncio.run(erased(self._dsn))
        return super().embed(texts)


def test_an_import_that_a_purge_overtakes_stores_no_vector_of_the_user(migrated: str) -> None:
    episodes = [
        finished_run("acme", number, CANARY, ("find",), user=user)
        for number, user in enumerate(("u1", "u2", "u1"))
    ]

    async def steps() -> None:
        async with await connect_postgres(migrated) as connection:
            stored = await import_episodes(connection, episodes)
            assert len(stored.written) == 3
            assert await embed_imported(connection, stored.written, Overtaken(migrated)) == 0

    asyncio.run(steps())
    kept = [(episodes[1].id,)]
    assert rows(migrated, "SELECT id FROM episodes") == kept
    assert rows(migrated, "SELECT episode FROM episode_vectors") == kept
