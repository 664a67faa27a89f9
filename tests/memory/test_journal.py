"""Retrieve, reuse, evaluate and retain are logged under one id, with the reference cases."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import orjson
import psycopg
import pytest
from psycopg.types.json import Jsonb

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
        for wrong in (2, True, "1", 10**400, float("nan")):
            with pytest.raises(ValueError, match="from 0 to 1"):
                memory.evaluated(found, reward=wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="True or False"):
            memory.evaluated(found, accepted="sure")  # type: ignore[arg-type]
        for episode in ("abc", 2**63, True, 1.5):
            with pytest.raises(ValueError, match="ids of episodes"):
                memory.evaluated(found, [episode], accepted=True)  # type: ignore[list-item]


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


def applied(stored: StoredEpisodes, tenant: str) -> int:
    async def apply() -> int:
        async with await connect_postgres(stored.owner_dsn) as owner:
            return await apply_judgements(owner, tenant)

    return asyncio.run(apply())


def test_each_writer_has_one_vote_however_often_it_judges(stored: StoredEpisodes) -> None:
    voters: list[tuple[dict[str, str], bool, int]] = [
        ({"user_id": "flood"}, False, 20), ({"user_id": "a"}, True, 1),
        ({"user_id": "b", "agent_id": "x"}, True, 1), ({"agent_id": "x"}, True, 2), ({}, False, 3),
    ]  # fmt: skip
    with memory_of(stored.dsn, "tenant-2") as memory:
        *_, query = (each.query for each in stored.made if each.tenant == "tenant-2")
        writers = []
        for names, accepted, times in voters:
            for _ in range(times):
                found = memory.search(query, mode="exact", workflow_type=None, **names)
                assert memory.evaluated(found, accepted=accepted) == ""
            writers.append(found.writer)
            assert {each.data.get("writer", "") for each in memory.stages(found)} == {found.writer}
        assert len(set(writers)) == 5
        assert applied(stored, "tenant-2") == 1
        (useful,) = memory.search(query, mode="exact").episodes
    assert useful.usefulness == pytest.approx(2 * 3 / 5 - 1)
    assert not any(name in str(writers) for name in ("flood", "a:", "x"))


def test_each_episode_of_a_retrieval_has_its_own_judgement(stored: StoredEpisodes) -> None:
    with memory_of(stored.dsn, "tenant-1") as memory:
        found = memory.search(TEXT, mode="lexical", k=3)
        good, bad, fair = (each.id for each in found.episodes)
        memory.evaluated(found, [good], accepted=True)
        memory.evaluated(found, [bad], accepted=False)
        memory.evaluated(found, [fair], reward=0.75)
        assert applied(stored, "tenant-1") == 3
        again = memory.search(TEXT, mode="lexical", k=100).episodes
        judged = {each.id: each.usefulness for each in again if each.usefulness}
        assert judged == {good: 1, bad: -1, fair: 0.5}


@pytest.mark.parametrize(
    "data",
    [
        {"episodes": ["1"], "accepted": "sure"},
        {"episodes": ["abc", "9" * 19, "9" * 400, None, {}], "accepted": True},
        {"episodes": "1", "accepted": True},
        {"episodes": {"a": 1}, "reward": "high"},
        {"episodes": ["ONE"], "reward": "1", "accepted": 1},
        {"accepted": True},
        [],
        7,
    ],
    ids=str,
)
def test_what_a_reader_writes_that_is_no_judgement_changes_nothing(
    stored: StoredEpisodes, data: object
) -> None:
    before = judged(stored)
    one = b"%d" % unjudged(stored)
    log_judgement(stored, orjson.loads(orjson.dumps(data).replace(b"ONE", one)))
    applied(stored, "tenant-1")
    assert judged(stored) == before


def log_judgement(stored: StoredEpisodes, data: object, id: UUID | None = None) -> None:
    """Add a row as a reader may."""
    add = "INSERT INTO memory_retrievals (id, tenant, stage, data) VALUES (%s, %s, %s, %s)"
    with psycopg.connect(stored.owner_dsn, autocommit=True) as owner:
        owner.execute(add, (str(id or uuid4()), "tenant-1", "evaluate", Jsonb(data)))


def judged(stored: StoredEpisodes) -> dict[int, float]:
    """Return the usefulness of the judged episodes of tenant-1."""
    found = "SELECT id, usefulness FROM episodes WHERE tenant = 'tenant-1' AND usefulness <> 0"
    with psycopg.connect(stored.owner_dsn) as owner:
        return dict(owner.execute(found).fetchall())


def unjudged(stored: StoredEpisodes) -> int:
    """Return an episode of tenant-1 that has no vote."""
    return next(each for each in sorted(stored.of("tenant-1")) if each not in judged(stored))


def test_what_is_no_hash_of_a_writer_is_one_of_those_without_a_name(stored: StoredEpisodes) -> None:
    found = unjudged(stored)
    own, shared = {"episodes": [str(found)], "accepted": True}, uuid4()
    log_judgement(stored, own | {"writer": "a" * 32}, shared)
    for writer in (7, {}, "b" * 31, "B" * 32, None):
        log_judgement(stored, own | {"accepted": False, "writer": writer})
    log_judgement(stored, own | {"accepted": False}, shared)  # takes no vote away
    applied(stored, "tenant-1")
    assert found not in judged(stored), "one for, one against"
    log_judgement(stored, {"episodes": [str(found)], "reward": 0.5, "writer": "c" * 32})
    log_judgement(stored, {"episodes": [str(found)], "writer": "d" * 32, "accepted": True})
    applied(stored, "tenant-1")
    assert judged(stored)[found] == pytest.approx(2 * (1 + 0 + 0.5 + 1) / 4 - 1)


def test_a_mean_that_no_real_can_hold_is_rounded(stored: StoredEpisodes) -> None:
    found = unjudged(stored)
    row = f'{{"episodes": ["{found}"], "reward": 0.5{"0" * 100}1}}'
    add = "INSERT INTO memory_retrievals (id, tenant, stage, data) VALUES (%s, %s, %s, %s)"
    with psycopg.connect(stored.owner_dsn, autocommit=True) as owner:
        owner.execute(add, (str(uuid4()), "tenant-1", "evaluate", row))
    applied(stored, "tenant-1")
    assert found not in judged(stored)
