"""Runs the memory worker as a process: waits for Postgres, then works until SIGTERM."""

from __future__ import annotations

import asyncio
import signal

import structlog

from agents.config import WorkerConfig
from agents.fatal import exit_fatally
from agents.health.reporter import HealthReporter
from agents.memory.embedding import GuardedEmbedder
from agents.memory.outbox_watch import OutboxWatch
from agents.memory.worker import MemoryWorker
from agents.retry_delays import AT_START_S, delay_s
from memory.embedding.choice import make_embedder
from processing.worker_report import MEMORY
from sinks.connections import PostgresUnreachable
from sinks.postgres.migrate import migrate
from sinks.postgres.permissions import PermissionMissing

log = structlog.get_logger()


async def run_memory(config: WorkerConfig) -> int:
    """Run the worker until SIGTERM or SIGINT; return its exit code."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    health = HealthReporter(MEMORY, config, {}, needs=set(), source="postgres")
    async with health.running():
        if not await _until_migrated(config.postgres, health, stopping):
            return 0
    watch = OutboxWatch(config.postgres)
    worker = MemoryWorker(
        config.postgres,
        GuardedEmbedder(make_embedder(config.embedding)),
        watch,
        retrievals_days=config.retrievals_days,
        pack_after_days=config.pack_after_days,
        limits=config.retention,
        writes=config.writes,
    )
    health.attach_work(worker, watch, worker.report_more)
    log.info("worker.started", worker=MEMORY, instance=config.instance)
    async with health.running():
        ending = asyncio.create_task(_stop_on(stopping, worker))
        try:
            await worker.run()
        except Exception as error:  # else the reporter would go on, and the process seem well
            exit_fatally("memory", error)
        finally:
            ending.cancel()
    return 0


async def _stop_on(stopping: asyncio.Event, worker: MemoryWorker) -> None:
    await stopping.wait()
    worker.stop()


async def _until_migrated(dsn: str, health: HealthReporter, stopping: asyncio.Event) -> bool:
    """Migrate as soon as Postgres answers; return False if the worker is to end before."""
    attempt = 0
    while not stopping.is_set():
        try:
            health.wait_for("migration")
            await migrate(dsn)
            return True
        except (PostgresUnreachable, PermissionMissing) as error:
            delay = delay_s(AT_START_S, attempt)
            why = " ".join(str(error).split())
            log.warning("worker.retrying", worker=MEMORY, reason=why, retry_s=delay)
            health.wait_for("postgres", reason=why)
            attempt += 1
            try:
                await asyncio.wait_for(stopping.wait(), delay)
            except TimeoutError:
                continue
    return False
