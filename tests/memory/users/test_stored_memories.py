"""What users do with their memory in Postgres: list, export, set a profile, and what it changes."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from memory.episodes.hashes import episode_id, id_text
from memory.retrieval.client import Memory
from memory.retrieval.concepts import read_concepts
from memory.retrieval.request import MemoryQuery
from memory.retrieval.result import Retrieval
from memory.retrieval.service import RetrievalService
from memory.users.client import UserMemory
from memory.users.memories import NotTheirs, SharedWorkflow, WithoutEvents
from memory.users.profile import MemoryProfile
from sinks.connections import connect_postgres
from sinks.postgres.packing.sweep import PackSweep
from tests.memory.complaints.purging import (
    assemble,
    dump,
    everybody,
    filled,
    of_user,
    purged,
    refer_to,
    user_run,
)
from tests.memory.stored_runs import AT, WordEmbedder, rows, store

pytestmark = pytest.mark.integration

DAY_MS = 86_400_000


def user(dsn: str, user_id: str = "u1", tenant: str = "acme") -> UserMemory:
    return UserMemory(dsn, "127.0.0.1:1", tenant=tenant, user_id=user_id)


async def exported(memory: UserMemory) -> list[dict[str, Any]]:
    return [line async for line in memory.export()]


def of_agents(*agents: str | None, at: int = AT) -> list[dict[str, Any]]:
    """Return runs of u1, one by each agent, a minute apart, and one of u2."""
    runs: list[dict[str, Any]] = []
    for number, agent in enumerate(agents):
        more = {} if agent is None else {"agent_id": agent}
        name, begin = f"run-{number}", at + number * 60_000
        for each in user_run("acme", "u1", name, f"refund {number}", **more):
            runs.append(each | {"timestamp": each["timestamp"] - AT + begin})
    return [*runs, *user_run("acme", "u2", "other", "refund of u2")]


def found(dsn: str, **fields: Any) -> Retrieval:
    async def ask() -> Retrieval:
        async with RetrievalService(dsn, [WordEmbedder()], timeout_s=60) as service:
            given = {"mode": "lexical", "k": 100, "tenant": "acme"} | fields
            return await service.search(MemoryQuery(text="refund", **given))

    return asyncio.run(ask())


def names(retrieval: Retrieval) -> list[str]:
    return sorted(each.workflow_id for each in retrieval.episodes)


def test_a_user_lists_own_memories_only(migrated: str) -> None:
    filled(migrated, *everybody(), *user_run("acme", "u1", "late", "later", agent_id="a"))

    async def look() -> None:
        memory = user(migrated)
        listed = await memory.memories()
        assert {each.workflow_id for each in listed} == {"mine-1", "mine-2", "elsewhere", "late"}
        assert [each.ended for each in listed] == sorted((e.ended for e in listed), reverse=True)
        assert [each.workflow_id for each in await memory.memories(agent_id="a")] == ["late"]
        assert len(await memory.memories(limit=2)) == 2
        assert await memory.memories(since=AT + DAY_MS) == []
        for name in ("other", "nobody", "namesake", "no such"):
            with pytest.raises(NotTheirs, match="memory list --tenant acme --user u1"):
                await memory.show(name)
        assert (await memory.show(str(listed[0].id))).workflow_id == listed[0].workflow_id
        purge = await memory.deletion("mine-1")
        assert (purge.workflow_id, purge.user_id) == ("mine-1", None)
        assert (await memory.deletion()).user_id == "u1"

    asyncio.run(look())


def test_a_run_with_others_in_it_is_not_deleted_as_one_memory(migrated: str) -> None:
    theirs = user_run("acme", "u2", "mine-1", "theirs")
    for number, each in enumerate(theirs):
        each |= {"id": str(uuid4()), "timestamp": AT + 10_000 + number}
    filled(migrated, *everybody(), *theirs)
    with pytest.raises(SharedWorkflow, match="also that of refund of user 'u2'"):
        asyncio.run(user(migrated).deletion("mine-1"))


def test_a_memory_without_its_events_cannot_be_corrected(migrated: str) -> None:
    """An episode of fewer events never replaces one of more: the event would do nothing."""
    filled(migrated, *user_run("acme", "u1", "w1", "cancel it"))
    with psycopg.connect(migrated) as connection:
        connection.execute("DELETE FROM episodic_events WHERE event_type = 'task_complete'")
    with pytest.raises(WithoutEvents, match="made of 2 events, of which 1 are stored"):
        asyncio.run(user(migrated).correct("w1", query="return it"))


def test_an_export_has_all_that_a_purge_deletes(migrated: str) -> None:
    """Apart from vectors and the detectors' state."""
    open_run = [each | {"id": str(uuid4())} for each in user_run("acme", None, "mine-1", "open")]
    filled(migrated, *everybody(), *open_run)
    refer_to(migrated, "mine-1")
    refer_to(migrated, "other", "u2")

    async def pack() -> None:
        sweep = PackSweep(0.0, "acme")
        async with await connect_postgres(migrated) as connection:
            while await sweep.step(connection):
                pass
        assert sweep.events

    whole = asyncio.run(exported(user(migrated)))
    asyncio.run(pack())
    packed = asyncio.run(exported(user(migrated)))
    assert sorted(map(str, without_order(whole))) == sorted(map(str, without_order(packed)))
    kinds: dict[str, int] = {}
    for each in packed:
        kinds[each["kind"]] = kinds.get(each["kind"], 0) + 1
    assert kinds == {
        "profile": 1, "event": 8, "episode": 3, "retrieval": 2, "threshold": 1, "notice": 1,
    }  # fmt: skip
    events = [each for each in packed if each["kind"] == "event"]
    assert {each.get("user_id") for each in events} == {"u1", None}
    assert all("extra" not in each and "agent_id" not in each for each in events)
    assert "u2" not in str(packed)
    assert "rival" not in str(packed)
    counts = purged(migrated, of_user(runs=("mine-1",)))
    counts.pop("episode_vectors")
    assert counts.pop("context_watch") == 1
    assert sum(counts.values()) == len(packed)
    assert asyncio.run(exported(user(migrated))) == []


def without_order(lines: list[dict[str, Any]]) -> list[list[tuple[str, Any]]]:
    return [sorted(each.items()) for each in lines]


def test_a_stage_of_a_retrieval_names_no_episode_of_others(migrated: str) -> None:
    filled(migrated, *everybody())
    with Memory(migrated, tenant="acme", embedders=[WordEmbedder()], timeout_s=60) as memory:
        both = memory.search("refund", mode="lexical", k=10)
        memory.evaluated(both, accepted=True)
        others = [each for each in both.episodes if each.user_id != "u1"]
        assert len(others) == 2
        memory.reused(memory.search("somebody else", mode="lexical"), [others[0].id])
    lines = [each for each in asyncio.run(exported(user(migrated))) if each["kind"] == "retrieval"]
    assert [each["stage"] for each in lines] == ["retrieve", "evaluate"]
    (mine,) = lines[0]["data"]["episodes"]
    assert len(lines[0]["data"]["scores"]) == 1
    assert lines[1]["data"]["episodes"] == [mine]
    assert lines[1]["data"]["accepted"] is True


def test_an_export_has_what_the_user_asked_for_and_no_run_of_others(migrated: str) -> None:
    filled(migrated, *everybody())
    with Memory(migrated, tenant="acme", embedders=[WordEmbedder()], timeout_s=60) as memory:
        mine = memory.search("somebody else", mode="lexical", user_id="u1")
        assert [each.user_id for each in mine.episodes] == ["u2"]
        memory.evaluated(mine, accepted=False)
        theirs = memory.search("invoice", mode="lexical", user_id="u2")
        assert [each.user_id for each in theirs.episodes] == ["u1"]
        memory.retained(theirs, "refund", "run-of-u2")
    lines = [each for each in asyncio.run(exported(user(migrated))) if each["kind"] == "retrieval"]
    stages = [(each["id"] == mine.id, each["stage"]) for each in lines]
    assert stages == [
        (True, "retrieve"), (True, "evaluate"), (False, "retrieve"), (False, "retain"),
    ]  # fmt: skip
    assert (lines[0]["data"]["episodes"], lines[0]["data"]["writer"]) == ([], mine.writer)
    assert {"writer", "query_hash"}.isdisjoint(lines[2]["data"])
    assert "run-of-u2" not in str(lines)
    assert theirs.writer not in str(lines)


def test_rows_of_a_reader_that_are_no_stage_do_not_end_an_export(migrated: str) -> None:
    filled(migrated, *everybody())
    mine = episode_id("acme", "refund", "mine-1")
    foreign = {"episodes": [str(mine), {}, None, 7, "x"], "episode": str(mine), "workflow_id": "w"}
    retrieval = uuid4()
    written = [7, [], [str(mine)], {"episodes": "x"}, foreign]
    with psycopg.connect(migrated) as connection:
        for data in written:
            add = "INSERT INTO memory_retrievals (id, tenant, stage, data) VALUES (%s, %s, %s, %s)"
            connection.execute(add, [str(retrieval), "acme", "retain", Jsonb(data)])
    lines = [each for each in asyncio.run(exported(user(migrated))) if each["kind"] == "retrieval"]
    assert sorted((each["data"] for each in lines), key=len) == [
        {"episodes": "x"}, {"episodes": [id_text(mine)], "episode": str(mine), "workflow_id": "w"},
    ]  # fmt: skip
    purged(migrated, of_user())
    assert rows(migrated, "SELECT FROM memory_retrievals") == []


def test_an_off_memory_finds_nothing_and_says_so(migrated: str) -> None:
    filled(migrated, *of_agents("a", "b"))
    assert names(found(migrated)) == ["other", "run-0", "run-1"]
    asyncio.run(user(migrated).set_profile(enabled=False))
    off = found(migrated, user_id="u1", agent_id="a")
    assert (off.episodes, off.degraded) == (
        (), ("the memory of user 'u1' is off (`headstart memory profile show`)",),
    )  # fmt: skip
    assert names(found(migrated, user_id="u2")) == ["other"], "nobody is given the cases of u1"
    assert names(found(migrated)) == ["other"]
    assert found(migrated, tenant="rival", user_id="u1").degraded == ()
    with Memory(migrated, tenant="acme", embedders=[WordEmbedder()], timeout_s=60) as memory:
        context = memory.context("refund", user_id="u1")
        assert (context.text, context.reason) == ("", off.degraded[0])
        answer = memory.answer("refund 0", workflow_type="refund", context={}, user_id="u1")
        assert (answer.response, answer.degraded) == (None, off.degraded)
        assert memory.context("refund", user_id="u2").reason == ""
        profiles, why = memory.profiles()
        assert (profiles, why) == ({"u1": [MemoryProfile(enabled=False)]}, "")
    asyncio.run(user(migrated).set_profile(enabled=True))
    assert names(found(migrated, user_id="u1", agent_id="a")) == ["other", "run-0"]


def test_a_concept_graph_leaves_out_users_whose_memory_is_off(migrated: str) -> None:
    filled(migrated, *of_agents("a", "b"))
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute("UPDATE episodes SET concepts = ARRAY['x', 'of ' || user_id]")

    async def counts() -> dict[str, int]:
        async with await connect_postgres(migrated) as connection:
            graph = await read_concepts(connection, MemoryQuery(text="concepts", tenant="acme"))
            return {each.concept: each.episodes for each in graph.concepts}

    assert asyncio.run(counts()) == {"x": 3, "of u1": 2, "of u2": 1}
    asyncio.run(user(migrated).set_profile("a", enabled=False))
    assert asyncio.run(counts()) == {"x": 2, "of u1": 1, "of u2": 1}
    asyncio.run(user(migrated).set_profile(enabled=False))
    assert asyncio.run(counts()) == {"x": 1, "of u2": 1}


def test_off_for_one_agent_is_off_for_that_agent(migrated: str) -> None:
    filled(migrated, *of_agents("a", "b", None))
    asyncio.run(user(migrated).set_profile("a", enabled=False))
    assert found(migrated, user_id="u1", agent_id="a").degraded != ()
    assert names(found(migrated, user_id="u1", agent_id="b")) == ["other", "run-1"]
    assert names(found(migrated, user_id="u2")) == ["other", "run-1", "run-2"]
    asyncio.run(user(migrated).set_profile(enabled=False))
    assert found(migrated, user_id="u1", agent_id="b").degraded != ()
    asyncio.run(user(migrated).set_profile("b", enabled=True))
    assert found(migrated, user_id="u1", agent_id="b").degraded != (), "off for all is off"


@pytest.mark.parametrize("mode", ["lexical", "vector", "hybrid", "exact", "fuzzy"])
def test_cases_of_other_agents_are_used_only_if_shared(migrated: str, mode: str) -> None:
    filled(migrated, *of_agents("a", "b", "a", None))
    more: dict[str, Any] = {"mode": mode, "user_id": "u1"}
    if mode in ("exact", "fuzzy"):
        more |= {"context": {"domain": "retail"}, "workflow_type": "refund"}
    if mode == "exact":
        more["keys"] = ("domain",)

    def ask(**fields: Any) -> list[str]:
        async def run() -> Retrieval:
            async with RetrievalService(migrated, [WordEmbedder()], timeout_s=60) as service:
                text = "" if mode in ("exact", "fuzzy") else "refund"
                given = {"k": 100, "tenant": "acme", **more, **fields}
                return await service.search(MemoryQuery(text=text, **given))

        return names(asyncio.run(run()))

    assert ask(agent_id="a") == ["other", "run-0", "run-2"]
    assert ask(agent_id="b") == ["other", "run-1"]
    assert ask() == ["other", "run-3"], "a run that names no agent is no other one's"
    asyncio.run(user(migrated).set_profile("a", shared=True))
    assert ask(agent_id="a") == ["other", "run-0", "run-1", "run-2", "run-3"]
    assert ask(agent_id="b") == ["other", "run-1"]
    theirs = ask(user_id="u2", agent_id="x")
    assert theirs == ["run-0", "run-1", "run-2", "run-3"], "cases of another user are not limited"


def test_the_window_is_of_the_own_cases(migrated: str) -> None:
    now = time.time_ns() // 1_000_000
    asyncio.run(store(migrated, of_agents("a", "a", "a", "b", at=now - 3 * DAY_MS)))
    asyncio.run(assemble(migrated))
    asyncio.run(user(migrated).set_profile(window_size=2))
    assert names(found(migrated, user_id="u1", agent_id="a")) == ["other", "run-1", "run-2"]
    assert names(found(migrated, user_id="u1", agent_id="b")) == ["other", "run-3"]
    asyncio.run(user(migrated).set_profile(window_days=2, window_size=200))
    assert names(found(migrated, user_id="u1", agent_id="a")) == ["other"]
    asyncio.run(user(migrated).set_profile(window_days=4))
    assert len(names(found(migrated, user_id="u1", agent_id="a"))) == 4


@pytest.mark.parametrize("state", ["merged", "pruned", "quarantined"])
def test_what_is_no_case_takes_no_place_in_the_window(migrated: str, state: str) -> None:
    asyncio.run(store(migrated, of_agents("a", "a", "a", "a")))
    asyncio.run(assemble(migrated))
    asyncio.run(user(migrated).set_profile(window_size=2))
    with psycopg.connect(migrated) as connection:
        newest = "UPDATE episodes SET state = %s WHERE workflow_id IN ('run-2', 'run-3')"
        connection.execute(newest, [state])
    assert names(found(migrated, user_id="u1", agent_id="a")) == ["other", "run-0", "run-1"]


def test_a_pruned_run_that_is_listed_is_found_by_its_id(migrated: str) -> None:
    """Its packed events are left, so its user sees and deletes them."""
    filled(migrated, *user_run("acme", "u1", "w1", "cancel it"))
    with psycopg.connect(migrated) as connection:
        connection.execute("UPDATE episodes SET state = 'pruned'")

    async def steps() -> None:
        memory = user(migrated)
        (listed,) = await memory.memories()
        assert (await memory.show(id_text(listed.id))).workflow_id == "w1"

    asyncio.run(steps())


def test_a_profile_keeps_what_is_not_changed_and_is_audited(migrated: str) -> None:
    async def steps() -> None:
        memory = user(migrated)
        assert await memory.profiles() == []
        general = await memory.set_profile(window_size=50)
        assert general._replace(changed=None) == MemoryProfile(window_size=50)
        own = await memory.set_profile("a", shared=True)
        assert own._replace(changed=None) == MemoryProfile("a", window_size=50, shared=True)
        await memory.set_profile(enabled=False, window_days=7)
        again = [each._replace(changed=None) for each in await memory.profiles()]
        assert again == [MemoryProfile("", False, 50, 7), own._replace(changed=None)]
        for wrong in ({"window_size": 0}, {"window_days": 0}, {"window_size": True}):
            with pytest.raises(ValueError, match="must be a whole number from 1"):
                await memory.set_profile(**wrong)

    asyncio.run(steps())
    audited = rows(migrated, "SELECT action, user_id, counts FROM memory_audit ORDER BY id")
    assert [row[:2] for row in audited] == [("profile", "u1")] * 3
    assert audited[1][2] == {"changed": ["shared"], "of": "one agent"}


def test_a_stored_correction_changes_the_episode_also_when_it_is_made_anew(migrated: str) -> None:
    filled(migrated, *user_run("acme", "u1", "w1", "cancel it"))

    async def steps() -> None:
        memory = user(migrated)
        from memory.users.corrections import correction_event

        event = correction_event(await memory.show("w1"), {"query": "return it", "insights": ["x"]})
        await store(migrated, [event])
        await assemble(migrated)
        assert (await memory.show("w1")).query == "return it"

    asyncio.run(steps())
    once = dump(migrated)["episodes"]
    assert "cancel it" not in str(rows(migrated, "SELECT query, words FROM episodes"))
    with psycopg.connect(migrated) as connection:
        connection.execute("DELETE FROM episodes")
        connection.execute(
            "INSERT INTO episode_outbox SELECT DISTINCT tenant, workflow_id, "
            "timestamptz 'epoch', now() FROM episodic_events"
        )
    asyncio.run(assemble(migrated))
    assert dump(migrated)["episodes"] == once
