"""Policies are trained from stored runs: versions, the gate, the same bits after kills."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import psycopg
import pytest

from agents.memory import training
from agents.memory.assembling import StepTarget
from agents.memory.embedding import GuardedEmbedder
from agents.memory.training import PolicyTraining
from agents.memory.upkeep import FORGET_ROWS, MemoryUpkeep
from memory.store.importing import embed_imported, import_episodes
from memory.store.policies import KEPT, add_version, due_tenants, policy_versions
from memory.store.vectors import can_store_vectors, use_model
from sinks.connections import connect_postgres
from tests.memory.complaints.purging import of_user, purged
from tests.memory.finished_runs import finished_runs
from tests.memory.stored_runs import WordEmbedder, rows

pytestmark = pytest.mark.integration

STORED = """
    SELECT tenant, version, features, weights, accumulators, examples, trained_to, metrics, status,
        state FROM memory_policies ORDER BY 1, 2
"""


async def stored_runs(dsn: str, tenant: str, count: int, *, telling: bool = True) -> None:
    """Store finished runs of a tenant, each with its vector."""
    episodes = finished_runs(tenant, count, telling=telling)
    async with await connect_postgres(dsn) as connection:
        for begin in range(0, count, 500):
            await import_episodes(connection, episodes[begin : begin + 500])
            await embed_imported(connection, episodes[begin : begin + 500], WordEmbedder())


async def trained(dsn: str, *, kills: int = 0) -> int:
    """Train until nothing is due, begun again at some steps; return the number of steps."""
    done = 0
    async with await connect_postgres(dsn) as connection:
        await can_store_vectors(connection)
        model = await use_model(connection, WordEmbedder())
        target = StepTarget(connection, GuardedEmbedder(WordEmbedder()), model.id)
        training = PolicyTraining(settle_s=0)
        while await training.step(target):
            done += 1
            if kills and done % 37 == 0:
                await training.reset()
                kills -= 1
    return done


def test_a_policy_that_beats_similarity_becomes_active(migrated: str) -> None:
    async def steps() -> list[dict[str, Any]]:
        await stored_runs(migrated, "a", 63)
        await trained(migrated)
        assert rows(migrated, STORED) == []
        await stored_runs(migrated, "a", 192)
        await trained(migrated)
        async with await connect_postgres(migrated) as connection:
            assert await due_tenants(connection, "", 0) == ([], None)
            return await policy_versions(connection, "a", 100)

    newest, *others = asyncio.run(steps())
    assert (newest["status"], newest["version"]) == ("active", 3)
    assert {each["status"] for each in others} == {"old"}
    assert newest["metrics"]["gain"] > newest["metrics"]["standard_error"] > 0
    assert newest["metrics"]["policy"] > newest["metrics"]["similarity"]


def test_a_policy_that_does_not_beat_similarity_is_refused(migrated: str) -> None:
    async def steps() -> list[dict[str, Any]]:
        await stored_runs(migrated, "a", 200, telling=False)
        await trained(migrated)
        async with await connect_postgres(migrated) as connection:
            return await policy_versions(connection, "a", 100)

    assert {each["status"] for each in asyncio.run(steps())} == {"refused"}


def test_killed_and_begun_again_the_weights_are_the_same_to_the_bit(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(stored_runs(migrated, "a", 300))
    asyncio.run(trained(migrated))
    whole = rows(migrated, STORED)
    assert len(whole) == 4
    rows_gone = "DELETE FROM memory_policies"
    with psycopg.connect(migrated) as connection:
        connection.execute(rows_gone)
    # With runs that arrive between the versions, and a kill after nearly every step.
    monkeypatch.setattr("agents.memory.training.STEP_S", 0.0)

    async def bit_by_bit() -> None:
        async with await connect_postgres(migrated) as connection:
            await connection.execute(
                "UPDATE episodes SET outcome = NULL WHERE ended > "
                "(SELECT ended FROM episodes ORDER BY ended OFFSET 150 LIMIT 1)"
            )
            await trained(migrated, kills=3)
            await connection.execute(
                "UPDATE episodes SET outcome = 'success' WHERE outcome IS NULL"
            )
            await trained(migrated, kills=4)

    asyncio.run(bit_by_bit())
    assert rows(migrated, STORED) == whole


def test_a_step_is_short_and_several_tenants_are_trained(migrated: str) -> None:
    async def steps() -> list[float]:
        for tenant in ("a", "b"):
            await stored_runs(migrated, tenant, 130)
        took = []
        async with await connect_postgres(migrated) as connection:
            await can_store_vectors(connection)
            model = await use_model(connection, WordEmbedder())
            target = StepTarget(connection, GuardedEmbedder(WordEmbedder()), model.id)
            training = PolicyTraining(settle_s=0)
            more = True
            while more:
                begun = time.process_time()
                more = await training.step(target)
                took.append(time.process_time() - begun)
        return took

    took = asyncio.run(steps())
    assert max(took) < 2.0
    assert rows(migrated, "SELECT tenant, count(*) FROM memory_policies GROUP BY 1 ORDER BY 1") == [
        ("a", 2), ("b", 2),
    ]  # fmt: skip


def test_old_versions_are_forgotten(migrated: str) -> None:
    asyncio.run(stored_runs(migrated, "a", 130))
    asyncio.run(trained(migrated))
    with psycopg.connect(migrated) as connection:
        connection.execute("UPDATE memory_policies SET version = version + %s", [KEPT + 30])
        connection.execute(
            "INSERT INTO memory_policies (tenant, version, features, weights, metrics, status) "
            "SELECT 'a', n, '{}', '{}', '{}', 'old' FROM generate_series(1, 40) AS n"
        )
    asyncio.run(stored_runs(migrated, "a", 194))
    asyncio.run(trained(migrated))
    found = [version for (version,) in rows(migrated, "SELECT version FROM memory_policies")]
    assert sorted(found) == [*range(34, 41), KEPT + 31, KEPT + 32, KEPT + 33]


def test_two_workers_do_not_train_one_tenant(migrated: str) -> None:
    async def steps() -> None:
        await stored_runs(migrated, "a", 200)
        await asyncio.gather(*(trained(migrated) for _ in range(3)))
        await trained(migrated)

    asyncio.run(steps())
    assert rows(migrated, "SELECT version FROM memory_policies ORDER BY 1") == [(1,), (2,), (3,)]


def test_a_version_that_an_erased_tenant_taught_is_not_stored(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole tenant is purged while the version is trained."""
    everything = of_user(user_id=None, tenant="a", whole_tenant=True, at=2**42)

    async def overtaken(*given: Any) -> str | None:
        await asyncio.to_thread(purged, migrated, everything)
        return await add_version(*given)

    async def steps() -> None:
        await stored_runs(migrated, "a", 64)
        with monkeypatch.context() as patch:
            patch.setattr(training, "add_version", overtaken)
            await trained(migrated)
        assert rows(migrated, STORED) == []
        await stored_runs(migrated, "b", 64)
        await trained(migrated)

    asyncio.run(steps())
    assert [row[:2] for row in rows(migrated, STORED)] == [("b", 1)]


def test_judgements_are_applied_and_old_retrievals_go(migrated: str) -> None:
    async def steps() -> tuple[int, int, int]:
        await stored_runs(migrated, "a", 3)
        ids = [row[0] for row in rows(migrated, "SELECT id FROM episodes ORDER BY ended")]
        async with await connect_postgres(migrated) as connection:
            for name, number, accepted in (("a", 0, True), ("a", 1, False), ("b", 2, True)):
                await connection.execute(
                    "INSERT INTO memory_retrievals (id, tenant, stage, data) VALUES "
                    "(gen_random_uuid(), %s, 'evaluate', jsonb_build_object("
                    "'episodes', ARRAY[%s::text], 'accepted', %s::boolean))",
                    [name, ids[number], accepted],
                )
            await connection.execute(
                "INSERT INTO memory_retrievals (id, tenant, at, stage, data) SELECT "
                "gen_random_uuid(), 'a', now() - n * interval '1 hour', 'retrieve', '{}' "
                "FROM generate_series(1, %s) AS n", [2 * FORGET_ROWS],
            )  # fmt: skip
            upkeep = MemoryUpkeep(retrievals_days=2, clock=lambda: 1.0)
            rounds = 1
            while await upkeep.step(connection):
                rounds += 1
            await upkeep.step(connection)
        return upkeep.judged, upkeep.forgotten, rounds

    judged, forgotten, rounds = asyncio.run(steps())
    assert (judged, forgotten) == (2, 2 * FORGET_ROWS - 47)
    assert rounds > 2
    assert rows(migrated, "SELECT usefulness FROM episodes ORDER BY ended") == [(1,), (-1,), (0,)]


def test_a_reward_alone_is_a_judgement_too(migrated: str) -> None:
    """Also where no use of the tenant was accepted or rejected."""

    async def steps() -> int:
        await stored_runs(migrated, "a", 1)
        ((id,),) = rows(migrated, "SELECT id FROM episodes")
        async with await connect_postgres(migrated) as connection:
            await connection.execute(
                "INSERT INTO memory_retrievals (id, tenant, stage, data) VALUES (gen_random_uuid(),"
                " 'a', 'evaluate', jsonb_build_object('episodes', ARRAY[%s::text], 'reward', .75))",
                [id],
            )
            upkeep = MemoryUpkeep(clock=lambda: 1.0)
            while await upkeep.step(connection):
                pass
        return upkeep.judged

    assert asyncio.run(steps()) == 1
    assert rows(migrated, "SELECT usefulness FROM episodes") == [(0.5,)]
