"""Retrieve, reuse, evaluate and retain are logged under one id, with the reference cases."""

from __future__ import annotations

import asyncio
from uuid import UUID

import psycopg
import pytest

from memory.episodes.hashes import episode_id
from memory.retrieval.client import Memory
from memory.retrieval.journal import apply_judgements
from sinks.connections import connect_postgres
from tests.memory.stored_episodes import StoredEpisodes

pytestmark = pytest.mark.integration

TEXT = "please cancel my flight"
PATIENT_S = 60


def memory_of(dsn: str, tenant: str = "tenant-1", *, journal: bool = True) -> Memory:
    return Memory(dsn, tenant=tenant, timeout_s=PATIENT_S, journal=journal)


def test_the_stages_of_a_retrieval_are_logged_in_order(stored: StoredEpisodes) -> None:
    with memory_of(stored.dsn) as memory:
        found = memory.search(TEXT, k=3, mode="lexical")
        ids = [str(each.id) for each in found.episodes]
        assert memory.reused(found) == ""
        assert memory.evaluated(found, [found.episodes[0].id], reward=0.5, accepted=True) == ""
        assert memory.retained(found, "refund", "run-x") == ""
        stages = memory.stages(found)
        other = memory.search(TEXT, k=1)
        assert [each.stage for each in memory.stages(other)] == ["retrieve"]
    UUID(found.id)
    assert [each.stage for each in stages] == ["retrieve", "reuse", "evaluate", "retain"]
    assert [each.data["episodes"] for each in stages] == [ids, ids, ids[:1], ids]
    assert stages[0].data["mode"] == "lexical"
    assert TEXT not in str(stages)
    assert (stages[2].data["reward"], stages[2].data["accepted"]) == (0.5, True)
    assert stages[3].data["episode"] == str(episode_id("tenant-1", "refund", "run-x"))


def test_another_tenant_sees_no_stage(stored: StoredEpisodes) -> None:
    with memory_of(stored.dsn) as memory, memory_of(stored.dsn, "tenant-2") as neighbour:
        found = memory.search(TEXT)
        assert memory.stages(found)
        assert neighbour.stages(found) == []


def test_without_a_journal_nothing_is_logged(stored: StoredEpisodes) -> None:
    with memory_of(stored.dsn, journal=False) as memory:
        found = memory.search(TEXT)
        assert memory.stages(found) == []
        assert memory.reused(found) != ""


def test_a_judgement_must_be_one(stored: StoredEpisodes) -> None:
    with memory_of(stored.dsn) as memory:
        found = memory.search(TEXT)
        with pytest.raises(ValueError, match="accepted"):
            memory.evaluated(found)
        with pytest.raises(ValueError, match="from 0 to 1"):
            memory.evaluated(found, reward=2)


def test_what_cannot_be_logged_is_found_nevertheless(stored: StoredEpisodes) -> None:
    revoke = "REVOKE INSERT ON memory_retrievals FROM headstart_reader"
    with psycopg.connect(stored.owner_dsn, autocommit=True) as owner:
        owner.execute(revoke)
        try:
            with memory_of(stored.dsn) as memory:
                found = memory.search(TEXT)
                assert "permission denied" in memory.reused(found)
        finally:
            owner.execute(revoke.replace("REVOKE", "GRANT").replace("FROM", "TO"))
    assert found.episodes
    (why,) = found.degraded
    assert "not logged: permission denied" in why


def test_without_a_database_logging_says_so(closed: str) -> None:
    host, _, port = closed.partition(":")
    with Memory(f"host={host} port={port} dbname=x user=y", timeout_s=0.5) as memory:
        found = memory.search(TEXT)
        assert f"{host}:{port}" in memory.reused(found)
        assert memory.stages(found) == []


def test_the_last_judgement_of_each_retrieval_makes_an_episode_useful(
    stored: StoredEpisodes,
) -> None:
    with memory_of(stored.dsn, "tenant-2") as memory:
        query = next(each.query for each in stored.made if each.tenant == "tenant-2")
        for judgements in ([True], [False, True], [False]):
            found = memory.search(query, mode="exact", workflow_type=None)
            for accepted in judgements:
                memory.evaluated(found, accepted=accepted)

        async def apply() -> list[int]:
            async with await connect_postgres(stored.owner_dsn) as owner:
                return [await apply_judgements(owner, "tenant-2") for _ in range(2)]

        assert asyncio.run(apply()) == [1, 0]
        (useful,) = memory.search(query, mode="exact").episodes
    assert useful.usefulness == pytest.approx(1 / 3)
