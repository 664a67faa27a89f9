"""Erasure: what users of other memories complain of, each report with the test that answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from memory.retrieval.request import MemoryQuery
from memory.retrieval.service import RetrievalService
from memory.store.reading import find_episodes
from sinks.connections import connect_postgres
from sinks.postgres import purges
from sinks.postgres.purges import RULES, erase, read_purges, remaining_rows
from sinks.postgres.reclaiming import reclaim
from sinks.postgres.tenant_locks import lock_tenants
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
    refer_to,
    user_run,
)
from tests.memory.stored_runs import WordEmbedder, rows, store
from tests.patience import until

pytestmark = pytest.mark.integration

EPISODES = "SELECT tenant, workflow_id FROM episodes ORDER BY 1, 2"
EVERYTHING = """
    SELECT c.relname FROM pg_class AS c
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
        AND c.relnamespace = 'public'::regnamespace
"""
DEAD = "SELECT FROM pg_stat_user_tables WHERE relname = 'episodes' AND n_dead_tup > 0"
WITHOUT_TENANT = {
    "schema_migrations": "applied migrations",
    "sink_offsets": "offsets of partitions",
    "memory_models": "embedding models",
    "memory_maintenance": "when the maintenance ended, and how many rows it changed",
}


def of_others(found: dict[str, list[str]], keep: Callable[[str], bool]) -> dict[str, list[str]]:
    left_out = {"memory_purges", "memory_audit", "sink_offsets", "episode_outbox"}
    return {
        table: [row for row in rows if keep(row)]
        for table, rows in found.items()
        if table not in left_out
    }


def test_purging_one_user_leaves_every_row_of_all_others(migrated: str) -> None:
    """mem0 #3928 and #3746: delete_all(user) erased everybody's memories."""
    filled(migrated, *everybody())
    refer_to(migrated, "mine-1")
    refer_to(migrated, "other", "u2")
    with psycopg.connect(migrated) as connection:
        mine = {
            str(row[0])
            for row in connection.execute(
                "SELECT id FROM episodes WHERE tenant = 'acme' AND user_id = 'u1'"
            )
        }

    def others(row: str) -> bool:
        if "rival" in row:
            return True
        return "u1" not in row and CANARY not in row and not any(id in row for id in mine)

    before = of_others(dump(migrated), others)
    counts = purged(migrated, of_user())
    assert of_others(dump(migrated), others) == before
    assert of_others(dump(migrated), lambda _row: True) == before, "and nothing else is left"
    assert counts == {
        "episodic_events": 6, "episodes": 3, "episode_vectors": 3, "memory_retrievals": 2,
        "memory_profiles": 1, "threshold_history": 1, "notices": 1, "context_watch": 1,
    }  # fmt: skip


def test_after_a_purge_no_read_path_finds_the_text(migrated: str) -> None:
    """mem0 #3695: deleted memories were still found."""
    filled(migrated, *everybody())
    given: list[dict[str, Any]] = [
        {"mode": "vector"}, {"mode": "lexical"}, {"mode": "hybrid"}, {"mode": "exact"},
    ]  # fmt: skip
    queries = [
        *(MemoryQuery(text=f"{CANARY} refund", tenant="acme", k=500, **each) for each in given),
        MemoryQuery(mode="fuzzy", tenant="acme", context={"note": f"{CANARY} refund"}, k=500),
    ]

    def finds() -> list[int]:
        async def ask() -> list[int]:
            async with RetrievalService(migrated, [WordEmbedder()], timeout_s=60) as service:
                found = [await service.search(query) for query in queries]
            async with await connect_postgres(migrated) as connection:
                shown = await find_episodes(connection, "acme", "mine-1")
            return [sum(CANARY in str(each) for each in one.episodes) for one in found] + [
                len(shown)
            ]

        return asyncio.run(ask())

    assert all(finds()), "each read path finds it before"
    purged(migrated, of_user())
    assert not any(finds())
    assert found_in(migrated, CANARY) == []


def test_a_run_of_two_users_keeps_the_other_ones_events(migrated: str) -> None:
    """cognee #2732: deleting one owner's data took what others shared."""
    mine, theirs = (user_run("acme", user, "shared", text) for user, text in (
        ("u1", CANARY), ("u2", "theirs"),
    ))  # fmt: skip
    for number, each in enumerate(theirs):
        each["id"] = str(uuid4())
        each["timestamp"] += 10 + number
    filled(migrated, *mine, *theirs)
    kept = rows(migrated, "SELECT x::text FROM episodic_events AS x WHERE user_id = 'u2'")
    purged(migrated, of_user())
    assert rows(migrated, "SELECT x::text FROM episodic_events AS x") == kept
    assert rows(migrated, EPISODES) == []
    asyncio.run(assemble(migrated))
    (episode,) = rows(migrated, "SELECT user_id, query, events FROM episodes")
    assert episode == ("u2", "theirs", 2)
    assert found_in(migrated, CANARY) == []


def test_events_without_a_user_go_with_the_run_they_belong_to(migrated: str) -> None:
    """The same rule in the log and the database: the purge names such runs."""
    open_run = user_run("acme", None, "mine-1", f"{CANARY} of nobody")
    for each in open_run:
        each["id"] = str(uuid4())
    filled(migrated, *everybody(), *open_run)

    async def find() -> list[str]:
        async with await connect_postgres(migrated) as connection:
            return await purges.open_runs(connection, "acme", "u1")

    runs = asyncio.run(find())
    assert runs == ["mine-1"]
    purged(migrated, of_user(runs=tuple(runs)))
    assert found_in(migrated, CANARY) == []
    assert ("acme", "nobody") in rows(migrated, EPISODES)


def test_a_purged_user_can_be_remembered_again(migrated: str) -> None:
    """cognee #3895: a name could not be used any more once it was forgotten."""
    log = filled(migrated, *everybody())
    log.write(of_user(), *user_run("acme", "u1", "new", "hello", timestamp=LATER + 1))

    async def steps() -> None:
        await log.store(migrated)
        await assemble(migrated)

    asyncio.run(steps())
    assert ("acme", "new") in rows(migrated, EPISODES)
    assert found_in(migrated, CANARY) == []


def test_every_table_with_tenants_has_a_rule_for_purges(migrated: str) -> None:
    """graphiti PR 1688: rows of a new kind were never erased."""
    with psycopg.connect(migrated) as connection:
        tables = {row[0] for row in connection.execute(EVERYTHING)}
        of_tenants = {
            row[0]
            for row in connection.execute(
                "SELECT table_name FROM information_schema.columns WHERE column_name = 'tenant' "
                "AND table_schema = 'public'"
            )
        } & tables
    assert of_tenants == RULES.keys(), "say in sinks/postgres/purges.py what a purge does to it"
    assert tables - of_tenants == WITHOUT_TENANT.keys(), "has it data of tenants?"
    deleted = {table for table, rule in RULES.items() if rule.startswith("deleted")}
    assert deleted == set(purges._ALWAYS + purges._ONCE) - {
        "episodes_of_runs", "count_lists", "uncount_merged", "assemble_again",
    }  # fmt: skip


def test_purging_a_tenant_empties_every_table_that_is_not_kept(migrated: str) -> None:
    """The rules do what they say: only what is marked as kept names the tenant afterwards."""
    filled(migrated, *everybody())
    refer_to(migrated, "mine-1")
    with psycopg.connect(migrated) as connection:
        connection.execute(
            "INSERT INTO memory_policies (tenant, version, features, weights, metrics, status) "
            "VALUES ('acme', 1, '{}', '{}', '{}', 'active')"
        )
        connection.execute(
            "INSERT INTO episode_outbox VALUES ('acme', 'mine-1', now(), now(), now())"
        )
    everything = of_user(user_id=None, whole_tenant=True)
    purged(migrated, everything)
    assert set(found_in(migrated, "acme")) == {"memory_purges", "memory_audit"}
    assert rows(migrated, EPISODES) == [("rival", "namesake")]
    assert found_in(migrated, CANARY) == []


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({"session_id": "s1"}, ["elsewhere", "mine-1", "nobody"]),
        ({"workflow_id": "other"}, ["elsewhere", "mine-1", "mine-2", "nobody"]),
    ],
)
def test_a_session_or_a_workflow_is_erased_alone(
    migrated: str, fields: dict[str, str], left: list[str]
) -> None:
    filled(migrated, *everybody())
    purged(migrated, of_user(**{"user_id": None, **fields}))
    assert [name for tenant, name in rows(migrated, EPISODES) if tenant == "acme"] == left


def test_a_late_writer_does_not_revive_what_was_purged(migrated: str) -> None:
    """Redis AMS PR 184: a late task brought a deleted row back."""
    log = filled(migrated, *everybody())
    log.write(of_user(), *user_run("acme", "u1", "late", CANARY))
    again = Log()
    again.write(*user_run("acme", "u1", "mine-1", f"{CANARY} refund"))

    async def steps() -> None:
        await log.store(migrated)  # with an event that a spool still had
        await again.store(migrated)  # a worker that begins again, without the purge in sight
        await store(
            migrated, user_run("acme", "u1", "mine-2", CANARY)
        )  # a writer that does not ask
        await assemble(migrated)  # the memory worker asks

    asyncio.run(steps())
    assert [name for tenant, name in rows(migrated, EPISODES) if tenant == "acme"] == [
        "nobody", "other",
    ]  # fmt: skip
    assert found_in(migrated, CANARY) == ["episodic_events"], "only of the writer that did not ask"


def test_a_log_replayed_into_an_empty_database_revives_nothing(migrated: str) -> None:
    """AutoGPT PR 12720, pensyve #283: erasure did not reach the log."""
    log = Log()
    ahead = user_run("acme", "u1", "ahead", CANARY, timestamp=LATER + 50)  # of a fast clock
    log.write(*everybody(), *ahead, of_user(),
              *user_run("acme", "u1", "after", "hello", timestamp=LATER + 100))  # fmt: skip

    async def steps() -> None:
        await log.store(migrated)
        await assemble(migrated)

    asyncio.run(steps())
    once = dump(migrated)
    assert found_in(migrated, CANARY) == []
    assert [name for tenant, name in rows(migrated, EPISODES) if tenant == "acme"] == [
        "after", "nobody", "other",
    ]  # fmt: skip
    asyncio.run(steps())
    again = dump(migrated)
    assert {table: once[table] for table in ("episodic_events", "episodes")} == {
        table: again[table] for table in ("episodic_events", "episodes")
    }


def test_interrupted_after_any_statement_and_repeated_it_ends_the_same(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A purge is one transaction, so a process killed anywhere in it has done nothing."""
    filled(migrated, *everybody())
    before = dump(migrated)
    right = purges._SQL
    steps = [*purges._ALWAYS, *purges._ONCE, "memory_purges", "memory_audit"]
    for step in steps:
        monkeypatch.setattr(purges, "_SQL", {**right, step: b"SELECT 1 / 0"})
        with pytest.raises(psycopg.errors.DivisionByZero):
            purged(migrated, of_user())
        assert dump(migrated) == before, step
    monkeypatch.setattr(purges, "_SQL", right)
    purged(migrated, of_user())
    assert found_in(migrated, CANARY) == []
    assert not purged(migrated, of_user(id="p2", at=LATER + 1)), "nothing is left for another"


def test_a_purge_waits_for_writers_and_they_for_it(migrated: str) -> None:
    """A batch under way is stored before the purge, and deleted by it."""
    log = Log()
    log.write(*everybody())

    async def steps() -> None:
        async with (
            await connect_postgres(migrated) as writer,
            await connect_postgres(migrated) as purging,
        ):
            async with writer.transaction():
                await lock_tenants(writer, ["acme"])
                waiting = asyncio.create_task(_purge(purging))
                await asyncio.sleep(0.1)
                assert not waiting.done()
            await waiting
        await log.store(migrated)

    async def _purge(connection: Any) -> None:
        async with connection.transaction():
            await lock_tenants(connection, (), ["acme"])
            await erase(connection, of_user())

    asyncio.run(steps())
    assert found_in(migrated, CANARY) == []


def marked(dsn: str) -> tuple[Any, dict[str, int]]:
    """Return the one purge that is stored, and what is left of it."""

    async def look() -> tuple[Any, dict[str, int]]:
        async with await connect_postgres(dsn) as connection:
            (stored,) = await read_purges(connection)
            return stored, await remaining_rows(connection, stored.purge)

    return asyncio.run(look())


def test_the_mark_has_the_offsets_and_what_is_left_is_counted(migrated: str) -> None:
    log = filled(migrated, *everybody())
    log.write(of_user())
    asyncio.run(log.store(migrated))
    stored, left = marked(migrated)
    assert (stored.epoch, stored.rows) == (7, 12)
    assert stored.offsets == {n: batch.end - 1 for n, batch in enumerate(log.partitions)}
    assert left == {}
    asyncio.run(store(migrated, user_run("acme", "u1", "mine-1", CANARY)))
    assert marked(migrated)[1] == {"episodic_events": 2}


def test_the_offsets_of_a_repeated_purge_are_those_of_the_newest_record(migrated: str) -> None:
    """Else its receipt would say that the sink is past it before the sink has come to it."""
    log, again = filled(migrated, *everybody()), of_user(id="p2", at=LATER + 1)
    log.write(of_user())
    asyncio.run(log.store(migrated))
    purged(migrated, again)
    for _ in range(2):  # the sink that begins again comes to the earlier record first
        stored, _left = marked(migrated)
        assert (stored.purge.id, stored.epoch, stored.offsets) == ("p2", None, {})
        asyncio.run(log.store(migrated))
    log.write(again)
    asyncio.run(log.store(migrated))
    stored, left = marked(migrated)
    assert (stored.purge.id, stored.epoch, left) == ("p2", 7, {})
    assert stored.offsets == {n: batch.end - 1 for n, batch in enumerate(log.partitions)}


def test_a_vacuum_by_a_role_that_owns_nothing_says_so(migrated: str) -> None:
    """Postgres itself skips such tables with a notice that no program sees.

    From Postgres 17 on the role may maintain the tables of vectors.
    """
    filled(migrated, *everybody())
    purged(migrated, of_user())
    said: list[str] = []

    async def vacuum(role: str) -> set[str]:
        async with await connect_postgres(make_conninfo(migrated, user=role)) as connection:
            return {each.table for each in await reclaim(connection, said.append)}

    until(lambda: rows(migrated, DEAD))  # statistics come when connections have ended
    done = asyncio.run(vacuum("headstart_worker"))
    assert all(each.startswith("episode_vectors") for each in done), done
    [warning] = [line for line in said if line.startswith("warning:")]
    assert "headstart_worker does not own them" in warning
    assert "episodes" in warning
    assert asyncio.run(vacuum(conninfo_to_dict(migrated)["user"])) >= {"episodes"}
    assert "vacuum of episodes: 3 deleted rows" in said
