"""Purges of packed runs: nothing of the subject stays in rows, traces or episodes."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from replay.purge.run import look_up_stored
from sinks.connections import connect_postgres
from sinks.postgres.packing import unpacking
from sinks.postgres.packing.writing import train_for
from sinks.postgres.purges import remaining_rows
from tests.memory.complaints.purging import (
    CANARY,
    LATER,
    Log,
    assemble,
    dump,
    everybody,
    filled,
    found_in,
    of_user,
    purged,
    user_run,
)
from tests.memory.stored_runs import rows
from tests.sinks.packed_runs import packed, packed_events
from topics.control.messages import Purge

pytestmark = pytest.mark.integration

Event = dict[str, Any]
EPISODES = "SELECT tenant, workflow_id FROM episodes ORDER BY 1, 2"
EVENTS = "SELECT tenant, id::text FROM episodic_events ORDER BY 1, 2"
RUNS = 300
DAMAGE = "UPDATE episodes SET trace = overlay(trace PLACING '\\x00' FROM 12) WHERE workflow_id = %s"


def shared(*users: str | None, name: str = "shared") -> list[Event]:
    """Return a run of several users, one after the other; that of u1 holds the canary."""
    found = []
    for place, user in enumerate(users):
        for each in user_run("acme", user, name, CANARY if user in ("u1", None) else f"of {user}"):
            moved = {"id": str(uuid4()), "timestamp": each["timestamp"] + 100 * place}
            found.append(each | moved)
    return found


def packed_log(dsn: str, *events: Event) -> Log:
    """Store events and their episodes, and pack all of them."""
    log = filled(dsn, *events)
    assert asyncio.run(packed(dsn)).events == len(events)
    assert rows(dsn, EVENTS) == []
    return log


def traces(dsn: str) -> dict[str, Any]:
    return asyncio.run(packed_events(dsn))


def holding(dsn: str) -> list[str]:
    """Return where the canary is: tables, as text or as bytes, and unpacked traces."""
    found = found_in(dsn, CANARY) + found_in(dsn, CANARY.encode().hex())
    return found + [
        f"trace of {name}" for name, events in traces(dsn).items() if CANARY in str(events)
    ]


def ids_in(dsn: str) -> set[str]:
    """Return the ids of all events that are stored, as rows or packed."""
    stored = {row[1] for row in rows(dsn, EVENTS)}
    return stored | {each.id for events in traces(dsn).values() for each in events}


def left_of(dsn: str, purge: Purge) -> dict[str, int]:
    async def ask() -> dict[str, int]:
        async with await connect_postgres(dsn) as connection:
            return await remaining_rows(connection, purge)

    return asyncio.run(ask())


def test_a_packed_run_of_the_user_goes_with_its_episode(migrated: str) -> None:
    packed_log(migrated, *everybody())
    others = [row for row in rows(migrated) if not (row[0] == "acme" and row[4] == "u1")]
    kept = {name: each for name, each in traces(migrated).items() if CANARY not in str(each)}
    assert len(holding(migrated)) > 3
    assert left_of(migrated, of_user()) == {"episodic_events": 6, "episodes": 3}
    counts = purged(migrated, of_user())
    assert counts == {"episodic_events": 6, "episodes": 3, "episode_vectors": 3}
    assert holding(migrated) == []
    assert rows(migrated) == others
    assert traces(migrated) == kept, "runs of others are still packed"
    assert left_of(migrated, of_user()) == {}


@pytest.mark.parametrize("first", ["u1", "u2"])
def test_a_packed_run_of_two_users_keeps_the_events_of_the_other(migrated: str, first: str) -> None:
    """Afterwards it is the run that the other user alone would have had."""
    given = shared(*(("u1", "u2") if first == "u1" else ("u2", "u1")))
    theirs = [each for each in given if each["user_id"] == "u2"]
    mixed = "SELECT x::text FROM episodic_events AS x WHERE user_id = 'u2' ORDER BY 1"
    filled(migrated, *theirs)
    alone, events = rows(migrated), rows(migrated, mixed)
    with psycopg.connect(migrated) as connection:
        connection.execute("TRUNCATE episodes, episodic_events, episode_vectors, sink_offsets")
    packed_log(migrated, *given)
    assert rows(migrated, "SELECT trace_others FROM episodes") == [
        ([("u2" if first == "u1" else "u1")],)
    ]

    assert purged(migrated, of_user())["episodic_events"] == 2
    assert rows(migrated, mixed) == events
    assert holding(migrated) == []
    asyncio.run(assemble(migrated))
    assert rows(migrated) == alone
    asyncio.run(packed(migrated))
    assert ids_in(migrated) == {each["id"] for each in theirs}
    assert holding(migrated) == []
    assert left_of(migrated, of_user()) == {}


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({"session_id": "s1"}, ["elsewhere", "mine-1", "nobody", "shared"]),
        ({"workflow_id": "other"}, ["elsewhere", "mine-1", "mine-2", "nobody", "shared"]),
        ({"workflow_id": "shared"}, ["elsewhere", "mine-1", "mine-2", "nobody", "other"]),
    ],
)
def test_a_session_or_a_workflow_of_packed_runs_is_erased_alone(
    migrated: str, fields: dict[str, str], left: list[str]
) -> None:
    both = shared("u2", "u3")
    both[-1]["session_id"] = "s1"
    packed_log(migrated, *everybody(), *both)
    purge = of_user(**{"user_id": None, **fields})
    purged(migrated, purge)
    asyncio.run(assemble(migrated))
    assert [name for tenant, name in rows(migrated, EPISODES) if tenant == "acme"] == left
    assert (both[-1]["id"] in ids_in(migrated)) == (fields == {"workflow_id": "other"})
    assert left_of(migrated, purge) == {}


def test_packed_events_without_a_user_go_with_their_run(migrated: str) -> None:
    """Also where the user's own event came late, and another workflow type has the same id."""
    late = user_run("acme", "u1", "late", CANARY)
    for each in late:
        each |= {"id": str(uuid4()), "workflow_type": "order"}
    log = packed_log(
        migrated, *shared(None, "u1", "u2"), *user_run("acme", None, "late", CANARY),
        *user_run("acme", None, "nobody", "of nobody"),
    )  # fmt: skip
    again = Log()
    again.write(*late)
    asyncio.run(again.store(migrated))
    preview = look_up(migrated, of_user())
    assert preview == (("late", "shared"), 2 + 2 + 2 + 2, 1)
    purge = of_user(runs=preview[0])
    assert left_of(migrated, purge)["episodic_events"] == 8
    purged(migrated, purge)
    asyncio.run(assemble(migrated))
    assert holding(migrated) == []
    assert rows(migrated, EPISODES) == [("acme", "nobody"), ("acme", "shared")]
    assert left_of(migrated, purge) == {}
    assert len(log.partitions) > 1


def look_up(dsn: str, purge: Purge) -> tuple[tuple[str, ...], int, int]:
    """Return what `look_up_purge` finds in Postgres: runs, events and episodes."""

    async def ask() -> tuple[tuple[str, ...], int, int]:
        async with await connect_postgres(dsn) as connection:
            found, events, episodes, _asked = await look_up_stored(connection, purge)
            return found.runs, events, episodes

    return asyncio.run(ask())


def test_a_preview_counts_packed_events_and_changes_nothing(migrated: str) -> None:
    packed_log(migrated, *everybody(), *shared("u2", "u1"))
    before = dump(migrated)
    assert look_up(migrated, of_user()) == ((), 6 + 2, 3)
    assert dump(migrated) == before, "the runs are still packed"
    assert rows(migrated, EVENTS) == []


@pytest.mark.parametrize("how", ["command", "sink"])
def test_runs_of_which_nothing_stays_are_not_unpacked(
    migrated: str, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Events of several sessions and of no user too; only a run with another's events is."""
    two = [
        each | {"id": str(uuid4()), "session_id": f"s{place}"}
        for place, each in enumerate(user_run("acme", "u1", "two-sessions", CANARY))
    ]
    log = packed_log(migrated, *everybody(), *two, *shared("u1", None, name="open"))
    purge = of_user(runs=("open",))
    monkeypatch.setattr(unpacking, "SQL", {**unpacking.SQL, "insert_rows": b"SELECT 1 / 0"})
    assert look_up(migrated, of_user()) == (("open",), 6 + 2 + 4, 5)
    if how == "command":
        assert purged(migrated, purge)["episodic_events"] == 6 + 2 + 4
    else:
        log.write(purge)
        asyncio.run(log.store(migrated))
    assert holding(migrated) == []
    assert left_of(migrated, purge) == {}


def test_packed_events_that_name_no_user_stay_where_the_run_is_not_named(migrated: str) -> None:
    given = shared("u1", None)
    packed_log(migrated, *given)
    assert purged(migrated, of_user())["episodic_events"] == 2
    assert ids_in(migrated) == {each["id"] for each in given if each.get("user_id") is None}


def test_packed_events_after_a_purge_stay(migrated: str) -> None:
    after = [each | {"id": str(uuid4())} for each in
             user_run("acme", "u1", "both", "hello", timestamp=LATER + 1)]  # fmt: skip
    packed_log(migrated, *user_run("acme", "u1", "both", CANARY), *after)
    assert look_up(migrated, of_user())[1] == 2
    assert purged(migrated, of_user())["episodic_events"] == 2
    assert ids_in(migrated) == {each["id"] for each in after}


@pytest.mark.parametrize("how", ["command", "sink"])
def test_a_damaged_trace_does_not_stop_a_purge(migrated: str, how: str) -> None:
    """What cannot be read goes with its episode, which was made of it."""
    order = {"workflow_type": "order"}
    both = [each | order for each in shared("u2", "u1")]
    log = packed_log(migrated, *everybody(), *both, *shared("u2", "u3", name="kept"))
    with psycopg.connect(migrated) as connection:
        connection.execute(
            "UPDATE episodes SET response = %s WHERE workflow_id = 'shared'", [CANARY]
        )
        for name in ("mine-1", "shared", "kept"):
            connection.execute(DAMAGE, [name])
    assert left_of(migrated, of_user()) == {"episodic_events": 4 + 1 + 1, "episodes": 3}
    if how == "command":
        purged(migrated, of_user())
    else:
        log.write(of_user())
        asyncio.run(log.store(migrated))
    asyncio.run(assemble(migrated))
    assert found_in(migrated, CANARY) == []
    assert [name for tenant, name in rows(migrated, EPISODES) if tenant == "acme"] == [
        "kept", "nobody", "other",
    ]  # fmt: skip
    assert left_of(migrated, of_user()) == {}
    with psycopg.connect(migrated) as connection:  # damaged, not of the user: it is not dropped
        kept = connection.execute("DELETE FROM episodes WHERE workflow_id = 'kept' RETURNING trace")
        assert kept.fetchone() != (None,)
    assert holding(migrated) == []


def alike(tenant: str, canary: str = "") -> list[Event]:
    """Return runs of five users that have enough in common for a dictionary."""
    words = f"a refund of the order that never came {canary}"
    return [
        each for n in range(RUNS) for each in user_run(tenant, f"u{n % 5}", f"{tenant}-{n}", words)
    ]


def test_a_dictionary_that_is_trained_meanwhile_goes_with_its_tenant(migrated: str) -> None:
    filled(migrated, *alike("acme", CANARY))

    async def steps() -> None:
        async with await connect_postgres(migrated) as connection:
            async with connection.transaction():
                assert await train_for(connection, "acme", 0)
                everything = of_user(user_id=None, whole_tenant=True)
                purge = asyncio.create_task(asyncio.to_thread(purged, migrated, everything))
                done, _ = await asyncio.wait([purge], timeout=1)
                assert not done, "it waits for the dictionary"
            await purge

    asyncio.run(steps())
    assert rows(migrated, "SELECT FROM trace_dictionaries") == []


def test_a_whole_tenant_takes_its_dictionaries(migrated: str) -> None:
    filled(migrated, *alike("acme", CANARY), *alike("rival"))

    async def train() -> None:
        async with await connect_postgres(migrated) as connection:
            for tenant in ("acme", "rival"):
                assert await train_for(connection, tenant, 0)

    asyncio.run(train())
    asyncio.run(packed(migrated))
    assert "trace_dictionaries" in holding(migrated), "text that many users share"
    purged(migrated, of_user("u1"))
    tenants = "SELECT tenant FROM trace_dictionaries ORDER BY 1"
    assert rows(migrated, tenants) == [("acme",), ("rival",)]
    everything = of_user(user_id=None, whole_tenant=True, id="p2")
    assert left_of(migrated, everything)["episodes"] == RUNS - RUNS // 5
    purged(migrated, everything)
    assert set(found_in(migrated, "acme")) == {"memory_purges", "memory_audit"}
    assert rows(migrated, tenants) == [("rival",)]
    assert holding(migrated) == []
    assert len(traces(migrated)) == RUNS
    assert left_of(migrated, everything) == {}


@pytest.mark.parametrize("role", [None, "headstart_sink"])
def test_the_sink_purges_packed_runs_of_all_workflow_types(migrated: str, role: str | None) -> None:
    """Each partition takes those of its own types, with the rights of the sink."""
    order = {"workflow_type": "order"}
    both = [each | order for each in shared("u2", "u1")]
    given = [*everybody(), *both, *shared(None, "u1", "u2", name="open")]
    log = packed_log(migrated, *given)
    log.write(of_user(runs=("open",)), *user_run("acme", "u1", "new", "hello", timestamp=LATER + 1))
    sink = make_conninfo(migrated, user=role) if role else migrated
    asyncio.run(log.store(sink))
    assert holding(migrated) == []
    asyncio.run(assemble(migrated))
    assert holding(migrated) == []
    assert [name for tenant, name in rows(migrated, EPISODES) if tenant == "acme"] == [
        "new", "nobody", "open", "other", "shared",
    ]  # fmt: skip
    assert left_of(migrated, of_user(runs=("open",))) == {}
    theirs = {each["id"] for each in given if "u1" not in str(each.get("user_id"))}
    theirs -= {
        each["id"] for each in given if "user_id" not in each and each["workflow_id"] == "open"
    }
    theirs |= {each["id"] for each in given if each["tenant"] == "rival"}
    assert theirs < ids_in(migrated)


def test_the_log_that_is_read_again_revives_nothing_of_packed_runs(migrated: str) -> None:
    log = packed_log(migrated, *everybody(), *shared("u1", "u2"))
    log.write(of_user())
    purged(migrated, of_user())
    asyncio.run(log.store(migrated))
    asyncio.run(assemble(migrated))
    asyncio.run(packed(migrated))
    once, ids = rows(migrated), ids_in(migrated)
    assert rows(migrated, EVENTS) == []
    asyncio.run(log.store(migrated))  # a sink that begins again
    assert rows(migrated, EVENTS) == []
    with psycopg.connect(migrated) as connection:
        connection.execute("DELETE FROM sink_offsets")
    asyncio.run(log.store(migrated))
    asyncio.run(assemble(migrated))
    asyncio.run(packed(migrated))
    assert (rows(migrated), ids_in(migrated)) == (once, ids)
    assert holding(migrated) == []


def test_events_after_a_purge_are_not_what_is_left_of_it(migrated: str) -> None:
    """The user goes on in a shared run that began before the purge, and the run is packed."""
    log = packed_log(migrated, *shared("u2", "u1"))
    purged(migrated, of_user())
    hello = [each | {"id": str(uuid4())} for each in
             user_run("acme", "u1", "shared", "hello", timestamp=LATER + 1)]  # fmt: skip
    log = Log()
    log.write(*hello)
    asyncio.run(log.store(migrated))
    asyncio.run(assemble(migrated))
    asyncio.run(packed(migrated))
    assert rows(migrated, "SELECT trace_others FROM episodes") == [(["u1"],)]
    assert left_of(migrated, of_user()) == {}
    assert {each["id"] for each in hello} < ids_in(migrated)
