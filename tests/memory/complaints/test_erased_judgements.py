"""A purge deletes the retrievals that the user asked for, with what they judged."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest

from memory.retrieval.client import Memory
from memory.retrieval.journal import apply_judgements
from memory.retrieval.result import Retrieval
from memory.store.policies import judged_tenants
from sinks.connections import connect_postgres
from sinks.postgres.purges import preview_purge, remaining_rows
from tests.memory.complaints.purging import everybody, filled, of_user, purged
from tests.memory.stored_runs import rows
from topics.control.messages import Purge

pytestmark = pytest.mark.integration


def test_a_purge_deletes_what_the_user_asked_for_until_then(migrated: str) -> None:
    filled(migrated, *everybody())
    with Memory(migrated, tenant="acme", timeout_s=60) as memory:

        def ask(user: str | None, *, accepted: bool = False) -> Retrieval:
            found = memory.search("somebody else", mode="lexical", user_id=user)
            assert [each.workflow_id for each in found.episodes] == ["other"]
            assert memory.evaluated(found, accepted=accepted) == ""
            return found

        own, became, unlogged = ask("u1"), ask(None), ask("u1")
        memory.retained(became, "refund", "mine-1")
        with psycopg.connect(migrated) as connection:
            logged = "DELETE FROM memory_retrievals WHERE id = %s AND stage = 'retrieve'"
            connection.execute(logged, [unlogged.id])
        kept = [ask("u2", accepted=True)]
        assert judged_in(migrated) == pytest.approx(2 / 3 - 1)
        asked_until = int(time.time() * 1000)
        time.sleep(0.002)
        kept.append(ask("u1", accepted=True))
        purge = of_user(at=asked_until)
        assert previewed(migrated, purge)[2] == 2
        assert remaining(migrated, purge)["memory_retrievals"] == 3
        purged(migrated, purge)
        assert "memory_retrievals" not in remaining(migrated, purge)
        stages = [len(memory.stages(each)) for each in (own, became, unlogged, *kept)]
    assert stages == [0, 0, 0, 2, 2]
    assert usefulness_of_other(migrated) == 0, "until the memory worker has judged it again"
    assert judged_in(migrated) == 1, "by u2, and later by u1"


def usefulness_of_other(dsn: str) -> float:
    return float(rows(dsn, "SELECT usefulness FROM episodes WHERE workflow_id = 'other'")[0][0])


def judged_in(dsn: str) -> float:
    """Judge as the memory worker does, if it has a reason; return what the run of u2 is worth."""

    async def judge() -> None:
        async with await connect_postgres(dsn) as connection:
            for tenant in await judged_tenants(connection, 60):
                await apply_judgements(connection, tenant)

    asyncio.run(judge())
    return usefulness_of_other(dsn)


def test_what_was_judged_by_purged_users_alone_is_not_judged_any_more(migrated: str) -> None:
    filled(migrated, *everybody())
    with Memory(migrated, tenant="acme", timeout_s=60) as memory:
        found = memory.search("somebody else", mode="lexical", user_id="u1")
        memory.evaluated(found, accepted=False)
    assert judged_in(migrated) == -1
    purged(migrated, of_user(at=int(time.time() * 1000)))
    assert judged_in(migrated) == 0


def previewed(dsn: str, purge: Purge) -> tuple[int, int, int]:
    async def ask() -> tuple[int, int, int]:
        async with await connect_postgres(dsn) as connection:
            return await preview_purge(connection, purge)

    return asyncio.run(ask())


def remaining(dsn: str, purge: Purge) -> dict[str, int]:
    async def ask() -> dict[str, int]:
        async with await connect_postgres(dsn) as connection:
            return await remaining_rows(connection, purge)

    return asyncio.run(ask())
