"""Encryption at rest, from the event sink to every reader, on a real Postgres."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from agents.memory.assembling import assemble_next
from agents.memory.embedding import GuardedEmbedder
from agents.memory.filling import VectorFilling
from agents.memory.outbox_watch import OutboxWatch
from agents.memory.worker import MemoryWorker
from memory.episodes.record import Episode
from memory.retrieval.request import MemoryQuery
from memory.retrieval.result import Retrieval
from memory.retrieval.service import RetrievalService
from memory.store.outbox import fill_outbox
from memory.store.policies import LearnedRuns, boundary, newest_version
from memory.store.reading import all_episodes, find_episodes
from memory.store.vectors import use_model
from sinks.connections import connect_postgres
from sinks.postgres.archive import archived_events, span
from sinks.postgres.encryption.administration import (
    clear_next,
    encryption_state,
    list_keys,
    rotate_next,
    shred,
)
from sinks.postgres.encryption.master_keys import VARIABLE, EncryptionKeyMissing
from sinks.postgres.packing.unpacking import PackedSelection, unpack_runs
from sinks.postgres.packing.writing import train_for
from sinks.postgres.queries import events_of_workflow
from tests.memory.complaints.purging import found_in, of_user, purged
from tests.memory.episode_targets import target_at
from tests.memory.stored_runs import WordEmbedder, event, rows, store
from tests.patience import until_in_loop
from tests.sinks.encryption.keys import NEW, OLD, give
from tests.sinks.packed_runs import packed

pytestmark = pytest.mark.integration

CANARY = "canary-51c7"
HIDDEN = CANARY.encode().hex()
RUNS_OF_A_DICTIONARY = 200
EVENTS = "SELECT id::text FROM episodic_events ORDER BY 1"
SEALED = "SELECT count(*) FROM episodes WHERE sealed IS NOT NULL"


def secret_run(tenant: str, name: str, text: str = f"{CANARY} refund", **more: Any) -> list[Any]:
    """Return a run whose query, arguments, output and response hold `text`."""
    call = {"arguments": {"of": text}, "context": {"domain": "retail"},
            "result": {"output": [text], "cost_ms": 3.5}}  # fmt: skip
    said = {"outcome": "success", "query": text, "response": f"done: {text}",
            "context": {"domain": "retail"}}  # fmt: skip
    fields = {"user_id": "u1", **more}
    return [
        event(tenant, name, 0, tool_id="find", success=True, data=call, **fields),
        event(tenant, name, 1, "workflow_complete", data=said, **fields),
    ]


RUNS = [secret_run("acme", "mine"), secret_run("acme", "other", "an invoice", user_id="u2"),
        secret_run("rival", "theirs")]  # fmt: skip


async def drain(dsn: str) -> int:
    written = 0
    async with target_at(dsn) as target:
        while (done := await assemble_next(target, 500, 0)).rows:
            written += done.episodes
    return written


async def filled(dsn: str, *runs: list[Any]) -> None:
    await store(dsn, *(runs or RUNS))
    await drain(dsn)


async def archive(dsn: str, tenant: str | None = None) -> list[dict[str, Any]]:
    async with await connect_postgres(dsn) as connection:
        wanted = span(None, None, tenant, None)
        return [each async for events in archived_events(connection, wanted) for each in events]


async def episodes(dsn: str, tenant: str | None = None) -> dict[str, Episode]:
    async with await connect_postgres(dsn) as connection:
        found = [each async for some in all_episodes(connection, tenant) for each in some]
    return {each.workflow_id: each for each in found}


async def searched(dsn: str, mode: Any, text: str = f"{CANARY} refund") -> Retrieval:
    """Search acme as the role that sees one tenant."""
    reader = make_conninfo(dsn, user="headstart_reader")
    context = {"domain": "retail"} if mode in ("fuzzy", "hybrid") else None
    query = MemoryQuery(
        tenant="acme", text=text, mode=mode, workflow_type="refund", context=context
    )
    async with RetrievalService(reader, [WordEmbedder()], timeout_s=10) as service:
        return await service.search(query)


def ordered(events: list[Any]) -> list[Any]:
    return sorted(events, key=lambda each: (each["tenant"], each["id"]))


def test_no_text_is_in_the_database_and_readers_see_all(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, OLD)
    asyncio.run(filled(migrated))
    assert found_in(migrated, CANARY) == found_in(migrated, HIDDEN) == []
    sent = [each for run in RUNS for each in run]
    assert ordered(asyncio.run(archive(migrated))) == ordered(sent)
    found = asyncio.run(episodes(migrated))
    assert found["mine"].query == f"{CANARY} refund"
    assert found["mine"].response == f"done: {CANARY} refund"
    assert found["mine"].calls[0].arguments == f'{{"of":"{CANARY} refund"}}'


def test_an_encrypted_episode_is_equal_to_a_plain_one(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(filled(migrated))
    plain = asyncio.run(episodes(migrated))
    assert rows(migrated, SEALED) == [(0,)]
    assert found_in(migrated, CANARY) == ["episodes", "episodic_events"]
    give(monkeypatch, OLD)

    async def again() -> int:
        async with await connect_postgres(migrated) as connection:
            await fill_outbox(connection)
        return await drain(migrated)

    assert asyncio.run(again()) == 3  # sealed now, from events that stay plain
    assert rows(migrated, SEALED) == [(3,)]
    assert found_in(migrated, CANARY) == ["episodic_events"]
    assert asyncio.run(episodes(migrated)) == plain
    assert asyncio.run(again()) == 0  # nothing has changed, so nothing is written


@pytest.mark.parametrize("mode", ["exact", "vector", "hybrid", "fuzzy"])
def test_encrypted_episodes_are_found_with_their_texts(
    migrated: str, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    give(monkeypatch, OLD)
    asyncio.run(filled(migrated))
    found = asyncio.run(searched(migrated, mode))
    first = found.episodes[0]
    assert (first.workflow_id, first.query) == ("mine", f"{CANARY} refund") or mode == "fuzzy"
    assert {each.query for each in found.episodes} <= {f"{CANARY} refund", "an invoice"}
    assert all(each.calls[0].arguments != "{}" for each in found.episodes)
    words = [each for each in found.degraded if "words of encrypted queries" in each]
    assert len(words) == len(found.degraded) == (mode == "hybrid")


def test_words_of_encrypted_queries_are_not_found_and_the_answer_says_so(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(filled(migrated, secret_run("acme", "plain", f"{CANARY} before")))
    give(monkeypatch, OLD)
    asyncio.run(filled(migrated))
    found = asyncio.run(searched(migrated, "lexical"))
    assert [each.workflow_id for each in found.episodes] == ["plain"]
    assert "words of encrypted queries" in found.degraded[0]


def test_plain_and_encrypted_runs_of_one_query_are_both_equal(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(filled(migrated, secret_run("acme", "plain")))
    give(monkeypatch, OLD)
    asyncio.run(filled(migrated))
    found = asyncio.run(searched(migrated, "exact"))
    assert {each.workflow_id for each in found.episodes} == {"mine", "plain"}
    hashes = {row[0] for row in rows(migrated, "SELECT query_hash FROM episodes")}
    assert len(hashes) == 4  # no two tenants, and no two ways to store, share one


def test_without_the_key_nothing_is_stored_plain_and_what_is_wrong_is_named(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, OLD)
    asyncio.run(filled(migrated))
    before = rows(migrated, EVENTS)
    for wrong, message in (([], "none"), ([NEW], "k2"), ([OLD.replace("AQEB", "AQEC")], "'k1' is")):
        give(monkeypatch, *wrong)
        for attempt in (store(migrated, secret_run("acme", "late")), archive(migrated),
                        episodes(migrated)):  # fmt: skip
            with pytest.raises(EncryptionKeyMissing, match=f"{message}.*{VARIABLE}_FILE"):
                asyncio.run(attempt)
        found = asyncio.run(searched(migrated, "vector"))
        assert found.episodes[0].query is None
        assert found.episodes[0].calls == ()
        assert message in found.degraded[0]
        state = asyncio.run(asked_state(migrated))
        assert state.level == "error"
        assert message in state.what
    assert rows(migrated, EVENTS) == before


async def asked_state(dsn: str) -> Any:
    async with await connect_postgres(dsn) as connection:
        return await encryption_state(connection)


def test_the_worker_waits_for_the_key_and_loses_nothing(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, OLD)
    asyncio.run(store(migrated, *RUNS))
    give(monkeypatch)

    async def work() -> None:
        embedder = GuardedEmbedder(WordEmbedder(), retry_s=0)
        worker = MemoryWorker(migrated, embedder, OutboxWatch(migrated), debounce_s=0)
        running = asyncio.create_task(worker.run())
        await until_in_loop(lambda: worker.counts.postgres_failures >= 2)
        assert rows(migrated, "SELECT count(*) FROM episode_outbox") == [(3,)]
        give(monkeypatch, OLD)
        await until_in_loop(lambda: worker.counts.rows == 3)
        worker.stop()
        await running
        assert worker.counts.dead_letters == 0

    asyncio.run(work())
    assert set(asyncio.run(episodes(migrated))) == {"mine", "other", "theirs"}


def test_packed_runs_stay_encrypted_and_late_events_join_them(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, OLD)
    asyncio.run(filled(migrated))
    sent = ordered([each for run in RUNS for each in run])
    assert asyncio.run(packed(migrated)).events == len(sent)
    assert rows(migrated, EVENTS) == []
    assert ordered(asyncio.run(archive(migrated))) == sent
    assert found_in(migrated, CANARY) == found_in(migrated, HIDDEN) == []
    said = {"query": f"{CANARY} twice", "outcome": "success"}
    late = event("acme", "mine", 5, "workflow_complete", user_id="u1", data=said)
    asyncio.run(filled(migrated, [late]))
    assert asyncio.run(episodes(migrated, "acme"))["mine"].events == 3

    async def unpacked() -> list[dict[str, Any]]:
        async with await connect_postgres(migrated) as connection:
            async with connection.transaction():
                assert await unpack_runs(connection, PackedSelection("acme")) == 2
            return await events_of_workflow(connection, "acme", "mine")

    assert asyncio.run(unpacked()) == [late, *sorted(RUNS[0], key=lambda each: -each["timestamp"])]


def test_a_dictionary_of_packed_runs_has_no_text(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, OLD)
    runs = [secret_run("acme", f"r{n}", user_id=f"u{n}") for n in range(RUNS_OF_A_DICTIONARY)]
    asyncio.run(filled(migrated, *runs))

    async def train() -> Any:
        async with await connect_postgres(migrated) as connection:
            return await train_for(connection, "acme", 86_400)

    assert asyncio.run(train()) is not None
    assert asyncio.run(packed(migrated)).runs == RUNS_OF_A_DICTIONARY
    late = event("acme", "r7", 5, user_id="u7", data={"arguments": {"of": CANARY}}, tool_id="t")
    asyncio.run(filled(migrated, [late]))  # a packed run is read while rows of others are
    assert len(asyncio.run(episodes(migrated))["r7"].calls) == 2
    assert found_in(migrated, CANARY) == found_in(migrated, HIDDEN) == []


def test_after_a_rotation_the_old_key_is_not_needed(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, OLD)
    asyncio.run(filled(migrated))
    before = asyncio.run(episodes(migrated))
    give(monkeypatch, NEW, OLD)
    assert asyncio.run(asked_state(migrated)).remedy == "run `headstart memory keys rotate`"

    async def rotate() -> list[int]:
        async with await connect_postgres(migrated) as connection:
            return [await rotate_next(connection), await rotate_next(connection)]

    assert asyncio.run(rotate()) == [2, 0]
    give(monkeypatch, NEW)
    assert asyncio.run(asked_state(migrated)).level == "ok"
    assert asyncio.run(episodes(migrated)) == before
    asyncio.run(filled(migrated, secret_run("acme", "new"), secret_run("third", "first")))
    assert len(asyncio.run(archive(migrated))) == 10
    assert {key[2] for key in asyncio.run(listed(migrated))} == {"k2"}


async def listed(dsn: str, tenant: str | None = None) -> list[Any]:
    async with await connect_postgres(dsn) as connection:
        return await list_keys(connection, tenant)


async def shredded(dsn: str, *, clear: bool = True) -> tuple[int, int]:
    async with await connect_postgres(dsn) as connection:
        count, cleared = await shred(connection, "acme"), 0
        while clear and (some := await clear_next(connection, "acme")):
            cleared += some
        return count, cleared


@pytest.mark.parametrize("pack", [False, True])
def test_shredding_ends_the_texts_of_one_tenant(
    migrated: str, monkeypatch: pytest.MonkeyPatch, pack: bool
) -> None:
    give(monkeypatch, OLD)
    asyncio.run(filled(migrated))
    if pack:
        asyncio.run(packed(migrated))
    others = asyncio.run(archive(migrated, "rival")), asyncio.run(episodes(migrated, "rival"))
    assert asyncio.run(shredded(migrated, clear=False)) == (1, 0)  # ended before it was done
    for cleared in (2, 0):
        left = asyncio.run(archive(migrated, "acme"))
        assert len(left) == 4
        assert CANARY not in str(left)
        assert [each["data"].get("query") for each in left] == [None] * 4
        assert {each["tool_id"] for each in left if "tool_id" in each} == {"find"}
        mine = asyncio.run(episodes(migrated, "acme"))["mine"]
        assert (mine.query, mine.response, mine.calls) == (None, None, ())
        assert mine.outcome == "success"
        assert asyncio.run(searched(migrated, "exact")).episodes == ()
        like = asyncio.run(searched(migrated, "fuzzy"))
        assert {each.workflow_id: each.query for each in like.episodes} == dict.fromkeys(
            ("mine", "other")
        )
        gone = ("the texts of 2 episodes are gone: their key was shredded",)
        assert like.degraded == (gone if cleared else ())
        assert asyncio.run(shredded(migrated)) == (0, cleared)
    assert rows(migrated, "SELECT DISTINCT tenant FROM episode_vectors") == [("rival",)]
    assert others == (
        asyncio.run(archive(migrated, "rival")), asyncio.run(episodes(migrated, "rival"))
    )  # fmt: skip


def test_after_shredding_new_texts_have_a_new_key(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, OLD)
    asyncio.run(filled(migrated))
    asyncio.run(shredded(migrated))
    give(monkeypatch)
    with pytest.raises(EncryptionKeyMissing, match=f"set {VARIABLE}_FILE"):
        asyncio.run(store(migrated, secret_run("acme", "later")))
    give(monkeypatch, OLD)
    asyncio.run(filled(migrated, secret_run("acme", "later")))
    assert asyncio.run(episodes(migrated, "acme"))["later"].query == f"{CANARY} refund"
    keys = asyncio.run(listed(migrated, "acme"))
    assert [(key.number, key.shredded is None) for key in keys] == [(1, False), (2, True)]
    # What is assembled again of shredded events has no text either.
    again = event("acme", "mine", 7, tool_id="find", user_id="u1")
    asyncio.run(filled(migrated, [again]))
    assert asyncio.run(episodes(migrated, "acme"))["mine"].query is None
    assert found_in(migrated, CANARY) == []


def test_shredding_waits_for_a_writer_that_has_the_key(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, OLD)
    asyncio.run(filled(migrated))

    async def race() -> None:
        async with target_at(migrated) as target:
            await store(migrated, secret_run("acme", "racing"))
            async with target.connection.transaction():
                assert (await assemble_next(target, 500, 0)).episodes == 1
                shredding = asyncio.create_task(shredded(migrated))
                await until_in_loop(lambda: rows(migrated, WAITING) == [(1,)])
            assert await shredding == (1, 3)

    asyncio.run(race())
    assert asyncio.run(episodes(migrated, "acme"))["racing"].query is None


WAITING = """SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


def test_a_purge_of_a_user_works_on_encrypted_runs(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, OLD)
    asyncio.run(filled(migrated))
    asyncio.run(packed(migrated))
    give(monkeypatch)  # it reads no text
    purged(migrated, of_user())
    give(monkeypatch, OLD)
    left = asyncio.run(archive(migrated))
    assert {each["workflow_id"] for each in left} == {"other", "theirs"}
    assert set(asyncio.run(episodes(migrated))) == {"other", "theirs"}


def test_missing_vectors_are_filled_in_from_encrypted_texts(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, OLD)
    asyncio.run(filled(migrated))
    vectors = "SELECT tenant, episode, text_hash FROM episode_vectors ORDER BY 1, 2"
    before = rows(migrated, vectors)
    with psycopg.connect(migrated) as connection:
        connection.execute("DELETE FROM episode_vectors")

    async def fill() -> int:
        async with target_at(migrated) as target:
            filling = VectorFilling(await use_model(target.connection, target.embedder.embedder))
            while await filling.step(target):
                pass
            return filling.missing

    assert asyncio.run(fill()) == 0
    assert rows(migrated, vectors) == before
    assert len(before) == 3


def test_the_policy_learns_from_encrypted_runs(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, OLD)
    runs = [secret_run("acme", f"r{n:02}", f"query {n}") for n in range(64)]
    asyncio.run(filled(migrated, *runs))

    async def learned() -> list[str]:
        async with await connect_postgres(migrated) as connection:
            base = await newest_version(connection, "acme")
            to = await boundary(connection, "acme", base, 0)
            assert to is not None
            reader = LearnedRuns(connection, "acme", vectors=True)
            assert await reader.kinds(base.after, to) == ["refund"]
            return [each.query for each in await reader.next(base.after, to, 100)]

    assert sorted(asyncio.run(learned())) == sorted(f"query {n}" for n in range(64))
    asyncio.run(shredded(migrated, clear=False))
    assert asyncio.run(learned()) == [""] * 64


def test_without_a_key_texts_are_stored_as_they_are(migrated: str) -> None:
    asyncio.run(filled(migrated))
    assert asyncio.run(listed(migrated)) == []
    assert asyncio.run(asked_state(migrated)).what == "off: texts are stored as they are"
    assert asyncio.run(find(migrated, "mine")).query == f"{CANARY} refund"


async def find(dsn: str, name: str) -> Episode:
    async with await connect_postgres(dsn) as connection:
        (found,) = await find_episodes(connection, "acme", name)
        return found
