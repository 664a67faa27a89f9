"""The memory worker: episodes follow the stored events, whatever happens on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import psycopg
import pytest
from structlog.testing import capture_logs

from agents.memory import assembling, upkeep
from agents.memory.assembling import assemble_next
from agents.memory.embedding import GuardedEmbedder
from agents.memory.filling import VectorFilling
from agents.memory.outbox_watch import OutboxWatch
from agents.memory.worker import MemoryWorker
from memory.embedding.interface import EmbeddingUnavailable, Vectors
from memory.store.outbox import fill_outbox
from memory.store.vectors import use_model
from sinks.connections import connect_postgres
from sinks.postgres.tenant_locks import lock_tenants
from tests.memory.episode_targets import target_at
from tests.memory.stored_runs import (
    AT,
    DAY_MS,
    WordEmbedder,
    event,
    rows,
    run,
    store,
)
from tests.patience import until_in_loop

pytestmark = pytest.mark.integration

VECTORS = "SELECT tenant, episode, text_hash, outcome, v IS NULL FROM episode_vectors ORDER BY 1, 2"


async def drained(dsn: str, embedder: Any = None, limit: int = 500) -> int:
    """Take everything; return the number of episodes written."""
    written = 0
    async with target_at(dsn, embedder) as target:
        while (done := await assemble_next(target, limit, 0)).rows:
            written += done.episodes
    return written


def rebuilt(dsn: str) -> list[Any]:
    """The rows that a rebuild from the stored events gives."""

    async def rebuild() -> None:
        async with await connect_postgres(dsn) as connection:
            await connection.execute("TRUNCATE episodes, episode_vectors, episode_outbox")
            await fill_outbox(connection)
        await drained(dsn)

    asyncio.run(rebuild())
    return rows(dsn)


def test_runs_become_episodes_with_vectors(migrated: str) -> None:
    asyncio.run(store(migrated, run("a", "1"), run("a", "2", None), run("b", "1", "other")))
    assert asyncio.run(drained(migrated)) == 3
    found = rows(migrated)
    assert [(r[0], r[1], r[7], r[8], r[12], r[17], r[25]) for r in found] == [
        ("a", "1", "success", 1.0, "cancel order", ["tool-0", "tool-1", "tool-2"], 4),
        ("a", "2", "success", 1.0, None, ["tool-0", "tool-1", "tool-2"], 4),
        ("b", "1", "success", 1.0, "other", ["tool-0", "tool-1", "tool-2"], 4),
    ]
    assert len(rows(migrated, VECTORS)) == 2
    assert rows(migrated, "SELECT * FROM episode_outbox") == []
    assert rebuilt(migrated) == found


def test_late_events_update_an_episode_and_do_not_embed_again(migrated: str) -> None:
    events = run("a", "1")
    embedder = WordEmbedder()

    async def steps() -> None:
        await store(migrated, events)
        await drained(migrated, embedder)
        late = event("a", "1", 9, "user_feedback", user_id="u1", data={"accepted": False})
        await store(migrated, [late | {"timestamp": AT + 5 * DAY_MS}])
        await drained(migrated, embedder)

    asyncio.run(steps())
    (row,) = rows(migrated)
    assert (row[8], row[25]) == (0.5, 5)
    assert embedder.embedded == ["cancel order"]
    assert rebuilt(migrated) == [row]


def test_a_changed_query_is_embedded_again(migrated: str) -> None:
    first, *others = run("a", "1", "the real query")

    async def steps() -> None:
        await store(migrated, [first | {"data": {"query": "a step"}}])
        await drained(migrated)
        await store(migrated, others)
        await drained(migrated)

    asyncio.run(steps())
    assert rows(migrated)[0][12] == "the real query"
    before = rows(migrated, VECTORS)
    rebuilt(migrated)
    assert rows(migrated, VECTORS) == before


def test_the_same_id_in_two_workflow_types_is_two_runs(migrated: str) -> None:
    other = [each | {"workflow_type": "order"} for each in run("a", "1", "x", steps=1)]
    other = [each | {"id": each["id"][:-4] + "0000"} for each in other]
    asyncio.run(store(migrated, run("a", "1"), other))
    asyncio.run(drained(migrated))
    assert [(r[1], r[2], r[25]) for r in rows(migrated)] == [("1", "order", 2), ("1", "refund", 4)]


def test_a_stale_assembly_does_not_replace_a_newer_one(migrated: str) -> None:
    """As if the rows of the events had gone: fewer are found than the episode was made of."""
    asyncio.run(store(migrated, run("a", "1")))
    asyncio.run(drained(migrated))
    found = rows(migrated)
    with psycopg.connect(migrated) as connection:
        connection.execute("DELETE FROM episodic_events WHERE event_type = 'workflow_complete'")
        connection.execute(
            "INSERT INTO episode_outbox SELECT tenant, workflow_id, timestamp, timestamp"
            " FROM episodic_events LIMIT 1"
        )
    asyncio.run(drained(migrated))
    assert rows(migrated) == found


def test_workers_beside_each_other_and_the_sink_give_what_a_rebuild_gives(migrated: str) -> None:
    runs = [run("a" if n % 3 else "b", f"w{n}", f"query {n % 5}") for n in range(60)]
    events = [each for one in zip(*runs, strict=True) for each in one]
    batches = [events[begin : begin + 17] for begin in range(0, len(events), 17)]

    async def work(ended: asyncio.Event) -> None:
        async with target_at(migrated) as target:
            while True:
                last = ended.is_set()
                done = await assemble_next(target, 7, 0)
                if last and not done.rows:
                    return
                await asyncio.sleep(0)

    async def all_of_it() -> None:
        ended = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(3):
                tasks.create_task(work(ended))
            await store(migrated, *batches)
            ended.set()

    asyncio.run(all_of_it())
    found = rows(migrated)
    vectors = rows(migrated, VECTORS)
    assert len(found) == 60
    assert all(row[25] == 4 for row in found)
    assert rebuilt(migrated) == found
    assert rows(migrated, VECTORS) == vectors


def test_a_failure_at_any_line_loses_nothing(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(store(migrated, run("a", "1"), run("a", "2")))
    steps = ("lock_and_read", "known_times", "run_events", "store_episodes", "put_vectors")
    for step in steps:
        with monkeypatch.context() as patch:

            def fail(*_: Any) -> Any:
                raise KeyboardInterrupt

            patch.setattr(assembling, step, fail)
            with pytest.raises(KeyboardInterrupt):
                asyncio.run(drained(migrated))
        assert rows(migrated) == []
        assert len(rows(migrated, "SELECT * FROM episode_outbox")) == 2
    assert asyncio.run(drained(migrated)) == 2


class Broken(WordEmbedder):
    """An embedder that answers with what cannot be used, until it is repaired."""

    def __init__(self, answer: Callable[[int], Vectors]) -> None:
        super().__init__()
        self.answer: Callable[[int], Vectors] | None = answer

    def embed(self, texts: Sequence[str]) -> Vectors:
        return super().embed(texts) if self.answer is None else self.answer(len(texts))


def unavailable(_count: int) -> Vectors:
    raise EmbeddingUnavailable("away")


@pytest.mark.parametrize(
    "answer",
    [
        unavailable,
        lambda count: np.full((count, 16), np.nan, np.float32),
        lambda count: np.ones((count, 15), np.float32),
        lambda count: np.ones((count + 1, 16), np.float32),
    ],
    ids=["away", "NaN", "dimension", "count"],
)
def test_without_the_embedder_episodes_are_stored_and_filled_in_later(
    migrated: str, answer: Callable[[int], Vectors]
) -> None:
    embedder = Broken(answer)

    async def steps() -> None:
        await store(migrated, run("a", "1"), run("a", "2", None), run("b", "1", "x"))
        async with target_at(migrated, embedder) as target:
            done = await assemble_next(target, 500, 0)
            assert done == (3, 3, 2)
            filling = VectorFilling(await use_model(target.connection, embedder))
            assert not await filling.step(target)
            assert filling.missing == 2
            embedder.answer = None
            while await filling.step(target):
                pass
            assert (filling.missing, filling.running) == (0, False)

    asyncio.run(steps())
    found = rows(migrated, VECTORS)
    assert len(found) == 2
    rebuilt(migrated)
    assert rows(migrated, VECTORS) == found


def test_a_text_without_a_vector_is_not_tried_for_ever(migrated: str) -> None:
    embedder = Broken(lambda count: np.zeros((count, 16), np.float32))

    async def steps() -> None:
        await store(migrated, run("a", "1", "???"))
        async with target_at(migrated, embedder) as target:
            await assemble_next(target, 500, 0)
            filling = VectorFilling(await use_model(target.connection, embedder))
            assert not await filling.step(target)
            assert not filling.running

    asyncio.run(steps())
    assert [row[4] for row in rows(migrated, VECTORS)] == [True]


def test_a_change_of_model_deletes_nothing_and_the_old_one_answers_meanwhile(migrated: str) -> None:
    def states() -> list[Any]:
        return rows(migrated, "SELECT name, state FROM memory_models ORDER BY id")

    async def steps() -> None:
        await store(migrated, *(run("a", str(n), f"query {n}") for n in range(600)))
        await drained(migrated)
        new = WordEmbedder("new")
        async with target_at(migrated, new) as target:
            assert states() == [("words", "active"), ("new", "filling")]
            filling = VectorFilling(await use_model(target.connection, new))
            assert await filling.step(target)
            assert states() == [("words", "active"), ("new", "filling")]
            while await filling.step(target):
                pass
        assert states() == [("words", "old"), ("new", "active")]

    asyncio.run(steps())
    counts = rows(migrated, "SELECT model, count(*) FROM episode_vectors GROUP BY 1 ORDER BY 1")
    assert [count for _, count in counts] == [600, 600]


def test_a_purge_waits_for_the_worker_and_stays_done(migrated: str) -> None:
    async def steps() -> None:
        await store(migrated, run("a", "1"), run("b", "1"))
        async with (
            target_at(migrated) as target,
            await connect_postgres(migrated) as purge,
        ):
            async with target.connection.transaction():
                await assemble_next(target, 500, 0)
                waiting = asyncio.create_task(_purge(purge))
                await asyncio.sleep(0.1)
                assert not waiting.done()
            await waiting
        await store(migrated, [event("a", "1", 50, user_id="u1", tool_id="again")])
        await drained(migrated)

    async def _purge(connection: Any) -> None:
        async with connection.transaction():
            await lock_tenants(connection, (), ["a"])
            await connection.execute("INSERT INTO memory_purges VALUES ('a', 'u1', now())")
            await connection.execute("DELETE FROM episodes WHERE tenant = 'a'")
            await connection.execute("DELETE FROM episodic_events WHERE tenant = 'a'")

    asyncio.run(steps())
    assert [row[0] for row in rows(migrated)] == ["b"]  # the late event is older than the purge


def _worker(dsn: str, embedder: Any = None) -> MemoryWorker:
    guarded = GuardedEmbedder(embedder or WordEmbedder(), retry_s=0)
    return MemoryWorker(dsn, guarded, OutboxWatch(dsn), debounce_s=0)


async def _while_running(worker: MemoryWorker, then: Callable[[], Awaitable[None]]) -> None:
    running = asyncio.create_task(worker.run())
    try:
        await then()
    finally:
        worker.stop()
        await running


def test_the_worker_works_off_the_outbox_and_reports(migrated: str) -> None:
    worker = _worker(migrated)

    async def then() -> None:
        await store(migrated, run("a", "1"), run("a", "2"))
        await until_in_loop(lambda: len(rows(migrated)) == 2 and worker.counts.rows == 2)
        assert worker.progress()[0] >= 2

    asyncio.run(_while_running(worker, then))
    assert (worker.counts.rows, worker.degraded, worker.away()) == (2, "", set())


def test_a_run_that_postgres_refuses_holds_back_no_other(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = assembling.assemble

    def bad(tenant: str, kind: str, workflow_id: str, events: Any) -> Any:
        episode = made(tenant, kind, workflow_id, events)
        return episode._replace(reward=7.0) if workflow_id == "bad" else episode

    monkeypatch.setattr(assembling, "assemble", bad)
    worker = _worker(migrated)

    async def then() -> None:
        names = [f"w{n}" for n in range(20)] + ["bad"] + [f"v{n}" for n in range(20)]
        await store(migrated, *(run("a", name) for name in names))
        await until_in_loop(lambda: len(rows(migrated)) == 40 and worker.counts.dead_letters)

    asyncio.run(_while_running(worker, then))
    assert worker.counts.dead_letters == 1


def test_regular_work_that_fails_does_not_end_the_worker(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object) -> int:
        raise psycopg.errors.InvalidTextRepresentation("no such value")

    monkeypatch.setattr(upkeep, "judged_tenants", refused)
    worker = _worker(migrated)

    async def then() -> None:
        with capture_logs() as logs:
            await until_in_loop(lambda: any(each["event"] == "memory.step_failed" for each in logs))
        await store(migrated, run("a", "1"))
        await until_in_loop(lambda: rows(migrated))

    asyncio.run(_while_running(worker, then))


def test_numbers_too_small_for_the_table_are_zero(migrated: str) -> None:
    *calls, end = run("a", "1")
    end["data"]["result"] = {"execution_time_ms": 1e-300}
    end["confidence"] = 1e-45
    asyncio.run(store(migrated, [*calls, end]))
    assert asyncio.run(drained(migrated)) == 1
    assert rows(migrated, "SELECT duration_ms, confidence FROM episodes") == [(0.0, 0.0)]


def test_without_pgvector_episodes_are_stored(migrated: str) -> None:
    with psycopg.connect(migrated) as connection:
        connection.execute("DROP TABLE episode_vectors")
    worker = _worker(migrated)

    async def then() -> None:
        await store(migrated, run("a", "1"))
        await until_in_loop(lambda: rows(migrated))

    asyncio.run(_while_running(worker, then))
    assert "pgvector" in worker.degraded
