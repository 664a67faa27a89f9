"""`headstart memory purge`: a user is erased everywhere, others stay, nothing revives."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cramjam
import pytest
from psycopg.conninfo import make_conninfo

from deploy.system import System
from tests.data_files import in_files
from tests.integration.agent_runs import agent_run
from tests.patience import PATIENCE_S
from tests.secured import MODE, of_worker
from topics.catalogue import EVENTS

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

NO_VECTORS = pytest.mark.plain_only(
    reason="Debian's Postgres has no pgvector, so there are no vectors"
)
Event = dict[str, Any]
CANARY = "canary-5b1e7d"
STATISTICS = """
    SELECT n_dead_tup, last_vacuum IS NOT NULL FROM pg_stat_user_tables WHERE relname = 'episodes'
"""
OTHERS = """
    SELECT md5(string_agg(md5(x::text), '' ORDER BY x::text)) FROM {} AS x
    WHERE tenant = %s AND user_id IS DISTINCT FROM 'u1'
"""


@pytest.fixture
def at(system: System) -> tuple[str, ...]:
    where = system.addresses
    return ("--kafka", where.kafka, "--postgres", where.postgres)


@pytest.fixture
def emit(
    system: System, headstart: Any, write_events: Callable[[Sequence[Event]], Path]
) -> Callable[[Sequence[Event]], None]:
    """Send events, and wait until all workers are done with them."""

    def send(events: Sequence[Event]) -> None:
        sent = headstart("emit", write_events(events), "--kafka", system.addresses.kafka)
        assert sent.returncode == 0, sent.stderr
        assert system.drain(PATIENCE_S)

    return send


def episodes(stored: Any) -> list[str]:
    found = stored.query("SELECT workflow_id FROM episodes WHERE tenant = %s", stored.tenant)
    return sorted(row[0] for row in found)


def hashes(stored: Any) -> list[Any]:
    """Hashes of all rows of others than u1."""
    return [
        stored.query(OTHERS.format(table), stored.tenant)
        for table in ("episodic_events", "episodes")
    ]


def test_a_user_is_erased_and_does_not_come_back(
    system: System, headstart: Any, emit: Any, at: Any, stored: Any, tenant: str, tmp_path: Path
) -> None:
    emit([
        *agent_run(tenant, "u1", "mine-1", CANARY),
        *agent_run(tenant, "u1", "mine-2", f"again {CANARY}"),
        *agent_run(tenant, "u2", "other", "something else"),
        *agent_run(tenant, None, "nobody", "no user"),
        *agent_run(tenant, None, "mine-2", f"names no user {CANARY}"),
    ])  # fmt: skip
    stored.until(lambda: len(episodes(stored)) == 4)
    before, user_path = hashes(stored)[1], "workflow_type=refund/domain=retail/user_id=u1"
    assert user_path in stored.served("refund")
    mine = ("memory", "purge", "--tenant", tenant, "--user", "u1", *at, "--json")

    tried = json.loads(headstart(*mine, "--dry-run").stdout)
    assert tried["found"] == {
        "events": 9, "episodes": 2, "contexts": 1, "open_runs": 1, "retrievals": 0,
    }  # fmt: skip
    assert len(episodes(stored)) == 4
    ended = headstart(*mine, "--yes")
    assert ended.returncode == 0, ended.stderr
    receipt = json.loads(ended.stdout)
    assert receipt["applied"]
    assert {each["where"] for each in receipt["remains"]} >= {EVENTS.name, "executors' spools"}

    assert episodes(stored) == ["nobody", "other"]
    assert hashes(stored)[1] == before, "the others' rows are the same"
    stored.until(lambda: stored.served("refund").get(user_path, {}).get("deleted", True))
    assert CANARY not in database(stored)
    read = str(tmp_path / "log.jsonl.zst")
    exported = headstart("export", read, "--kafka", system.addresses.kafka)
    assert exported.returncode == 0, exported.stderr
    unpacked = bytes(cramjam.zstd.decompress(Path(read).read_bytes()))
    assert tenant.encode() in unpacked
    assert CANARY.encode() not in unpacked
    redis = ("--redis", system.addresses.redis)
    checked = headstart("verify", "--purged", *at, *redis, "--json")
    found = json.loads(checked.stdout)
    assert (found["counts"], found["covered_events"] >= 9) == ({}, True)
    verified = headstart("verify", *at, *redis, "--json")
    assert json.loads(verified.stdout)["counts"] == {}, verified.stderr

    status = headstart("memory", "purge", "--status", "--tenant", tenant, *at, "--json")
    (listed,) = json.loads(status.stdout)["purges"]
    assert (listed["subject"], listed["applied"], listed["left"]) == ({"user_id": "u1"}, True, {})
    deleted = listed["rows"]  # by the command or, if it was first, by the event sink
    assert (deleted["episodic_events"], deleted["episodes"]) == (9, 2)
    assert deleted.get("episode_vectors", 0) == (0 if MODE else 2), "a secured run has no pgvector"

    emit(agent_run(tenant, "u1", "late", CANARY, timestamp=receipt["at"] - 1))
    emit(agent_run(tenant, "u1", "new", "written after the purge"))
    stored.until(lambda: episodes(stored) == ["new", "nobody", "other"])
    assert CANARY not in database(stored)


def test_a_mark_that_should_be_gone_is_found(
    system: System, headstart: Any, emit: Any, at: Any, stored: Any, tenant: str
) -> None:
    """Of a threshold worker that runs no more, or restarts all the time."""
    emit([*agent_run(tenant, "u1", "mine", CANARY), *agent_run(tenant, "u2", "other", "kept")])
    mine = ("memory", "purge", "--tenant", tenant, "--user", "u1", *at, "--yes")
    assert headstart(*mine).returncode == 0

    def found() -> list[Event]:
        ended = headstart("verify", "--purged", *at, "--redis", system.addresses.redis, "--json")
        return [each for each in json.loads(ended.stdout)["named"] if each["tenant"] == tenant]

    stored.until(lambda: any(each.get("deleted") for each in stored.served("refund").values()))
    assert found() == []
    earlier = "UPDATE memory_purges SET at = at + %s * interval '1 minute' WHERE tenant = %s"
    stored.change(earlier, -33, tenant)
    (old,) = found()
    path = "workflow_type=refund/domain=retail/user_id=u1"
    assert (old["finding"], old["where"], old["path"]) == ("purged_mark", "Redis", path)
    assert "keep a threshold worker running: it deletes marks 1,800 s after" in old["fix"]
    stored.change(earlier, 2, tenant)
    assert found() == [], "the worker may be a little late"


def database(stored: Any) -> str:
    """Every row of every table, as text."""
    tables = stored.query(
        "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition "
        "AND relnamespace = 'public'::regnamespace"
    )
    found = []
    for (table,) in tables:
        found += stored.query(f'SELECT x::text FROM "{table}" AS x')
    return str(found)


def test_killed_at_any_step_and_repeated_it_ends_the_same(
    emit: Any, headstart: Any, launch: Any, at: Any, stored: Any, tenant: str
) -> None:
    users = [f"k{n}" for n in range(3)]
    for user in users:
        emit(agent_run(tenant, user, f"run-{user}", CANARY))
    stored.until(lambda: len(episodes(stored)) == 3)
    for user, step in zip(users, ("events", "is in all", "deleted"), strict=True):
        mine = ("memory", "purge", "--tenant", tenant, "--user", user, *at, "--yes", "--json")
        begun = launch(*mine)
        begun.until(step)
        begun.end(signal.SIGKILL)
        ended = headstart(*mine)
        assert ended.returncode == 0, ended.stderr
        assert f"run-{user}" not in episodes(stored)
    status = headstart("memory", "purge", "--status", "--tenant", tenant, *at, "--json")
    assert [(each["applied"], each["left"]) for each in json.loads(status.stdout)["purges"]] == [
        (True, {})
    ] * 3
    assert not stored.query("SELECT FROM episodic_events WHERE tenant = %s", tenant)


def test_vacuum_frees_deleted_rows_and_takes_the_owner(
    system: System, headstart: Any, emit: Any, at: Any, stored: Any, tenant: str
) -> None:
    """A role that may not delete everything is refused before the purge is sent."""
    emit([*agent_run(tenant, "u1", "mine", CANARY), *agent_run(tenant, "u2", "other", "kept")])
    stored.until(lambda: episodes(stored) == ["mine", "other"])
    before = hashes(stored)
    mine = ("memory", "purge", "--tenant", tenant, "--user", "u1", "--yes")
    own = of_worker("memory", system.addresses).postgres
    worker = make_conninfo(own, user="headstart_worker")
    refused = headstart(*mine, "--kafka", system.addresses.kafka, "--postgres", worker)
    assert refused.returncode == 1, refused.stderr
    assert "permission denied for table" in refused.stderr, refused.stderr
    status = headstart("memory", "purge", "--status", "--tenant", tenant, *at)
    assert status.returncode == 1, "nothing was sent"
    assert episodes(stored) == ["mine", "other"]

    assert headstart(*mine, *at).returncode == 0
    stored.until(lambda: stored.query(STATISTICS)[0][0] > 0)
    ended = headstart(*mine, *at, "--vacuum")
    assert ended.returncode == 0, ended.stderr
    assert "vacuum of episodes: " in ended.stderr
    assert "warning" not in ended.stderr
    assert stored.query(STATISTICS)[0] == (0, True)
    assert hashes(stored) == before
    assert episodes(stored) == ["other"]


def vectors_of(stored: Any, user: str, first: int, count: int, text: str) -> None:
    """Store episodes with vectors, as the memory worker does, and without their events."""
    made = """
        SELECT %s AS tenant, n AS id, 'refund' AS workflow_type, 'vector-' || n AS name,
            timestamptz 'now' - interval '2 days' AS at FROM generate_series(%s::bigint, %s) AS n
    """
    episodes = f"""
        INSERT INTO episodes (id, tenant, workflow_type, workflow_id, user_id, started, ended,
            query, query_hash, context_hash, events)
        SELECT id, tenant, workflow_type, name, %s, at, at, %s, id, 1, 1 FROM ({made}) AS made
    """
    vectors = f"""
        INSERT INTO episode_vectors
        SELECT tenant, id, 1, workflow_type, NULL, at, id,
            (SELECT array_agg(cos(id * k)::real) FROM generate_series(1, 256) AS k)::halfvec(256)
        FROM ({made}) AS made
    """
    span = (stored.tenant, first, first + count - 1)
    stored.change(episodes, user, text, *span)
    stored.change(vectors, *span)


@NO_VECTORS
def test_an_index_with_many_deleted_vectors_is_built_anew_by_the_purge(
    headstart: Any, at: Any, stored: Any, tenant: str
) -> None:
    vectors_of(stored, "u1", 1, 700, CANARY)
    vectors_of(stored, "u2", 701, 300, "of another user")
    ((partition,),) = stored.query(
        "SELECT DISTINCT tableoid::regclass::text FROM episode_vectors WHERE tenant = %s", tenant
    )
    stored.change(f"ALTER TABLE {partition} SET (autovacuum_enabled = false)")
    index = f"{partition}_v_idx"
    file = "SELECT pg_relation_filenode(%s::regclass)"
    before = stored.query(file, index)
    ended = headstart("memory", "purge", "--tenant", tenant, "--user", "u1", *at, "--yes")
    assert ended.returncode == 0, ended.stderr
    assert f"building the index {index} anew: 700 of its rows are deleted" in ended.stderr
    assert stored.query(file, index) != before
    assert stored.query("SELECT count(*) FROM episode_vectors WHERE tenant = %s", tenant) == [
        (300,)
    ]
    stored.change(f"ALTER TABLE {partition} RESET (autovacuum_enabled)")


@NO_VECTORS
def test_a_full_vacuum_leaves_no_byte_in_the_files(
    system: System, headstart: Any, at: Any, stored: Any, tenant: str
) -> None:
    text, dsn = f"text-of-{tenant}", system.addresses.postgres
    vectors_of(stored, "u1", 2_001, 20, text)
    vectors_of(stored, "u2", 2_101, 20, "of another user")
    stored.change("ANALYZE episodes")  # as autovacuum does: statistics have values of the tables
    assert in_files(dsn, text) >= 20
    mine = ("memory", "purge", "--tenant", tenant, "--user", "u1", *at, "--yes", "--json")
    assert headstart(*mine).returncode == 0
    assert in_files(dsn, text) > 0, "a purge alone leaves bytes of deleted rows"

    def rewritten() -> bool:  # statistics of deleted rows are some seconds old
        ended = headstart(*mine, "--vacuum-full")
        assert ended.returncode == 0, ended.stderr
        return "writing episodes anew: " in ended.stderr

    stored.until(rewritten)
    assert in_files(dsn, text) == 0
    assert stored.query("SELECT count(*) FROM episodes WHERE tenant = %s", tenant) == [(20,)]


def test_without_a_subject_nothing_is_erased(headstart: Any, at: Any, tenant: str) -> None:
    for arguments in ([], ["--user", "u1", "--session", "s1"], ["--user", ""]):
        ended = headstart("memory", "purge", "--tenant", tenant, *arguments, *at, "--yes")
        assert ended.returncode == 2, ended.stderr
