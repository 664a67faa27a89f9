"""What was acknowledged is there, and found by the next request of a service that already runs.

mem0 #2386, MemOS #1493: "added", and nothing there. Memento #19, #25: new cases were never
reloaded, or a model had to go through all of them. cognee #3895: a name was dead after it had been
forgotten. MemOS #2329: an id that was returned became a 404.
"""

from __future__ import annotations

import asyncio

import pytest

from memory.episodes.hashes import episode_id
from memory.retrieval.request import MemoryQuery
from memory.retrieval.service import RetrievalService
from memory.store.outbox import outbox_lag
from memory.store.reading import find_episodes
from sinks.connections import connect_postgres
from tests.memory.complaints.assembling import drain
from tests.memory.stored_runs import WordEmbedder, event, run, store

pytestmark = pytest.mark.integration

CONTEXT = {"domain": "retail"}


def test_a_new_case_is_found_by_the_next_request(migrated: str) -> None:
    """In every mode, by a service that was asked before; until then the lag shows that it waits."""

    def every_mode(number: int) -> list[MemoryQuery]:
        text = f"refund the order {number}"
        return [
            *(MemoryQuery(text=text, tenant="a", mode=mode, k=1)  # type: ignore[arg-type]
              for mode in ("exact", "lexical", "vector", "hybrid")),
            MemoryQuery(context=CONTEXT, tenant="a", mode="fuzzy", k=1),
            MemoryQuery(context=CONTEXT, workflow_type="refund", tenant="a", mode="exact", k=1),
        ]  # fmt: skip

    async def steps() -> None:
        await store(migrated, run("a", "0", "refund the order 0"))
        await drain(migrated, WordEmbedder())
        async with (
            RetrievalService(migrated, [WordEmbedder()], timeout_s=60) as service,
            await connect_postgres(migrated) as connection,
        ):
            for query in every_mode(0):
                assert len((await service.search(query)).episodes) == 1
            for number in range(1, 6):
                new = run("a", str(number), f"refund the order {number}")
                later = [{**each, "timestamp": each["timestamp"] + number * 60_000} for each in new]
                await store(migrated, later)
                assert (await outbox_lag(connection)).rows > 0
                await drain(migrated, WordEmbedder())
                assert (await outbox_lag(connection)).rows == 0
                for query in every_mode(number):
                    (found,) = (await service.search(query)).episodes
                    assert found.workflow_id == str(number), query

    asyncio.run(steps())


def test_every_acknowledged_run_is_there(migrated: str) -> None:
    async def steps() -> list[int]:
        batches = [run("a", str(n), f"query {n}") for n in range(60)]
        mixed = [[each[step] for each in batches if step < len(each)] for step in range(4)]
        await store(migrated, *mixed)
        await drain(migrated, WordEmbedder())
        async with await connect_postgres(migrated) as connection:
            return [len(await find_episodes(connection, "a", str(n))) for n in range(60)]

    assert asyncio.run(steps()) == [1] * 60


def test_an_id_stays_when_its_run_changes_or_is_written_again(migrated: str) -> None:
    own = episode_id("a", "refund", "1")

    async def ids() -> list[int]:
        await drain(migrated, WordEmbedder())
        async with await connect_postgres(migrated) as connection:
            return [each.id for each in await find_episodes(connection, "a", str(own))]

    async def steps() -> None:
        await store(migrated, run("a", "1", "cancel it"))
        assert await ids() == [own]
        await store(migrated, [event("a", "1", 90, "user_feedback", data={"accepted": False})])
        assert await ids() == [own]
        async with await connect_postgres(migrated) as connection:
            for table in ("episodes", "episode_vectors", "episodic_events"):
                await connection.execute(f"DELETE FROM {table} WHERE tenant = 'a'".encode())
        assert await ids() == []
        await store(migrated, run("a", "1", "cancel it"))
        assert await ids() == [own]

    asyncio.run(steps())
