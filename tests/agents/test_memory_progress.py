"""The memory worker in a long step: it reports parts of it, and what Postgres is at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from agents.memory.embedding import GuardedEmbedder
from agents.memory.outbox_watch import OutboxWatch
from agents.memory.worker import MemoryWorker
from memory.store.outbox import fill_outbox
from processing.worker_report import LONG_STATEMENT_S
from sinks.connections import connect_postgres
from sinks.postgres.tenant_locks import lock_tenants
from tests.memory.stored_runs import WordEmbedder, run, store
from tests.patience import until_in_loop

pytestmark = pytest.mark.integration


async def _wait_at_a_lock(dsn: str, watch: OutboxWatch, worker: MemoryWorker) -> None:
    def statement_s() -> float:
        found: float = worker.report_more()["statement_s"]
        return found

    async def asked_until(condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.1)
            await watch.ask()

    await store(dsn, run("a", "1"))
    await until_in_loop(lambda: worker.counts.rows == 1)
    taken = worker.progress()[0]
    assert worker.report_more()["parts"] > 0
    async with await connect_postgres(dsn) as other, other.transaction():
        await lock_tenants(other, (), ["a"])
        async with await connect_postgres(dsn) as filling:
            await fill_outbox(filling)
        await asked_until(lambda: statement_s() >= LONG_STATEMENT_S)
        assert worker.progress()[0] == taken
        parts = worker.report_more()["parts"]
    await until_in_loop(lambda: worker.progress()[0] > taken)
    assert worker.report_more()["parts"] > parts
    await asked_until(lambda: statement_s() < LONG_STATEMENT_S)


def test_a_worker_at_a_lock_reports_it(migrated: str) -> None:
    watch = OutboxWatch(migrated)
    embedder = GuardedEmbedder(WordEmbedder(), retry_s=0)
    worker = MemoryWorker(migrated, embedder, watch, debounce_s=0)

    async def work() -> None:
        running = asyncio.create_task(worker.run())
        try:
            await _wait_at_a_lock(migrated, watch, worker)
        finally:
            worker.stop()
            await running

    asyncio.run(work())
