"""The loop of the memory worker: takes runs from the outbox, fills in vectors, trains policies.

It reads Postgres only, so it is no Faust app. Several may run: they take different rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import structlog
from psycopg import AsyncConnection, errors

from agents.health.metrics import WorkerCounts, started
from agents.memory.assembling import UNUSABLE, RunsRefused, StepTarget, assemble_next
from agents.memory.busy_rows import reason_of
from agents.memory.embedding import GuardedEmbedder
from agents.memory.filling import VectorFilling
from agents.memory.index_upkeep import IndexUpkeep
from agents.memory.maintenance import MemoryMaintenance
from agents.memory.outbox_watch import OutboxWatch
from agents.memory.packing import PACK_AFTER_DAYS, RunPacking
from agents.memory.quarantining import Quarantining
from agents.memory.training import PolicyTraining
from agents.memory.upkeep import RETRIEVALS_DAYS, MemoryUpkeep
from agents.retry_delays import AT_WORK_S, delay_s
from memory.embedding.interface import EmbeddingUnavailable
from memory.store.limits import UNLIMITED_WRITES, USUAL, RetentionLimits, WriteLimits
from memory.store.outbox import drop_runs
from memory.store.vectors import can_store_vectors, use_model
from sinks.connections import POSTGRES_LOST, connect_postgres
from sinks.postgres.encryption.master_keys import EncryptionKeyMissing, UnusableEncryptionKey

log = structlog.get_logger()

BATCH: Final = 1_500
"""Rows of the outbox that one transaction takes: the more, the fewer runs are assembled for each of
several rows; but progress is only reported after each."""
DEBOUNCE_S: Final = 2.0
"""A run is assembled when its events have been stored for so long: more may follow."""
POLL_S: Final = 0.5
REFILL_S: Final = 600.0
"""How often episodes without vectors are looked for: an import may have stored some."""
_AWAY: Final = (
    *POSTGRES_LOST,
    errors.InsufficientPrivilege,
    EncryptionKeyMissing,
    UnusableEncryptionKey,
)


class MemoryWorker:
    """Runs until `stop`; reconnects and retries while Postgres is away."""

    source_topics: frozenset[str] = frozenset()
    opened = 0
    """Unused: it has no partitions."""

    def __init__(
        self,
        dsn: str,
        embedder: GuardedEmbedder,
        watch: OutboxWatch,
        debounce_s: float = DEBOUNCE_S,
        retrievals_days: float = RETRIEVALS_DAYS,
        pack_after_days: float = PACK_AFTER_DAYS,
        limits: RetentionLimits = USUAL,
        writes: WriteLimits = UNLIMITED_WRITES,
    ) -> None:
        self.counts = WorkerCounts()
        self.ready = self._away = False
        self._dsn, self._embedder, self._watch = dsn, embedder, watch
        self._debounce_s = debounce_s
        self._limit, self._taken, self._parts = BATCH, 0, 0
        self._filling: VectorFilling | None = None
        self._training, self._upkeep = PolicyTraining(), MemoryUpkeep(retrievals_days)
        self._indexes = IndexUpkeep(dsn)
        self._packing = RunPacking(pack_after_days)
        self._maintenance = MemoryMaintenance(limits, pruned=self._indexes.begin)
        self._writes, self._quarantining = writes, Quarantining(writes)
        self._released = 0
        self._failed: dict[str, str] = {}
        """Steps of regular work that failed when last tried, and why."""
        self._regular: dict[str, Callable[[StepTarget], Awaitable[bool]]] = {
            "judgements": lambda target: self._upkeep.step(target.connection),
            "policy": self._training.step,
            "packing": lambda target: self._packing.step(target.connection),
            "maintenance": lambda target: self._maintenance.step(target.connection),
            "quarantine": self._quarantine,
        }
        self._no_vectors = ""
        self._refilled = started()
        self._stopping = asyncio.Event()

    @property
    def runtime(self) -> MemoryWorker:
        """Itself, as the agent of its app."""
        return self

    def progress(self) -> dict[int, int]:
        """Return the number of rows taken since it began, as the offset of partition 0."""
        return {0: self._taken} if self.ready else {}

    def restored(self) -> dict[int, int]:
        """Return nothing: there is no table to restore."""
        return {}

    def away(self) -> set[str]:
        """Return Postgres while it cannot be reached."""
        return {"postgres"} if self._away else set()

    @property
    def degraded(self) -> str:
        """Why episodes are stored without vectors; empty: they are not."""
        return self._no_vectors or self._embedder.why

    def stop(self) -> None:
        """End after the present step."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until `stop`."""
        try:
            await self._run()
        finally:
            await self._indexes.close()

    async def _run(self) -> None:
        attempt = 0
        while not self._stopping.is_set():
            try:
                async with await connect_postgres(self._dsn) as connection:
                    self._watch.backend = connection.info.backend_pid
                    target = await self._prepared(connection)
                    self.ready, self._away, attempt = True, False, 0
                    while not self._stopping.is_set():
                        if not await self._step(target):
                            await self._pause(POLL_S)
            except _AWAY as error:
                if not self._away:
                    log.warning("postgres.unavailable", error=" ".join(str(error).split()))
                self._away = True
                self.counts.postgres_failures += 1
                await self._pause(delay_s(AT_WORK_S, attempt))
                attempt += 1

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _prepared(self, connection: AsyncConnection[Any]) -> StepTarget:
        """Return where and how to store; without vectors where database or model have none."""
        self._filling, self._no_vectors = None, ""
        await self._training.reset()
        self._upkeep.reset()
        if not await can_store_vectors(connection):
            self._no_vectors = "the database has no pgvector 0.8.4: see `headstart migrate`"
        else:
            try:
                model = await use_model(connection, self._embedder.embedder)
            except EmbeddingUnavailable as error:
                self._no_vectors = str(error)
            else:
                self._filling = VectorFilling(model)
                return self._target(connection, model.id)
        log.warning("memory.no_vectors", reason=self._no_vectors)
        return self._target(connection, None)

    def _target(self, connection: AsyncConnection[Any], model: int | None) -> StepTarget:
        return StepTarget(connection, self._embedder, model, self._writes, self._part_done)

    def _part_done(self) -> None:
        self._parts += 1

    async def _step(self, target: StepTarget) -> bool:
        """Take some rows, or fill in some vectors; return whether there may be more."""
        begun = started()
        try:
            done = await assemble_next(target, self._limit, self._debounce_s, self._watch.large)
        except RunsRefused as refused:
            await self._leave_out(target, refused)
            return True
        self._limit = min(BATCH, self._limit * 2)
        if done.without_vector and self._filling is not None:
            self._filling.begin()
        if done.rows:
            self._taken += done.rows
            self.counts.batches += 1
            self.counts.records += done.rows
            self.counts.rows += done.episodes
            self.counts.batch.observe(started() - begun)
        if self._filling is not None and begun - self._refilled > REFILL_S:
            self._refilled = begun
            self._filling.begin()
        # A backlog goes first; in between, a step of filling, so that neither waits for ever.
        filled = self._filling is not None and await self._filling.step(target)
        self._parts += filled
        more = filled or done.rows >= self._limit // 2
        if done.rows < self._limit // 2:  # only what has nothing to wait for it
            for name, step in self._regular.items():
                more |= await self._contained(name, step(target))
        self._counted()
        return more

    async def _contained(self, name: str, step: Awaitable[bool]) -> bool:
        """Do a step of regular work; stored data that it cannot take must not end the worker."""
        try:
            more = await step
        except UNUSABLE as error:
            if (reason := reason_of(error)) != self._failed.get(name):  # it may come every time
                log.error("memory.step_failed", step=name, reason=reason)
            self._failed[name] = reason
            return False
        self._failed.pop(name, None)
        self._parts += more
        return more

    async def _quarantine(self, target: StepTarget) -> bool:
        more = await self._quarantining.step(target.connection)
        if self._quarantining.released > self._released and self._filling is not None:
            self._filling.begin()
        self._released = self._quarantining.released
        return more

    async def _leave_out(self, target: StepTarget, refused: RunsRefused) -> None:
        """Try fewer rows; of one that fails alone, leave out the run."""
        if self._limit > 1:
            self._limit = max(1, self._limit // 8)
            return
        await drop_runs(target.connection, refused.runs)
        for run in refused.runs:
            self._taken += 1
            self.counts.dead_letters += 1
            log.error(
                "memory.run_refused", tenant=run.tenant, workflow_id=run.workflow_id,
                reason=reason_of(refused.__cause__ or refused),
            )  # fmt: skip

    def _counted(self) -> None:
        self.counts.embedding_failures = self._embedder.failures
        self.counts.vectors_missing = self._filling.missing if self._filling else 0
        self.counts.policy_runs, self.counts.policy_versions = (
            self._training.runs, self._training.versions,
        )  # fmt: skip
        self.counts.judged, self.counts.forgotten = self._upkeep.judged, self._upkeep.forgotten
        self.counts.packed = self._packing.runs
        done = self._maintenance
        self.counts.merged, self.counts.pruned_cases = done.merged, done.cases
        self.counts.pruned_events, self.counts.consolidation_age_s = done.events, done.age_s
        self.counts.quarantined = self._quarantining.total

    def report_more(self) -> Mapping[str, Any]:
        """Return further fields of the worker's report."""
        return {
            "degraded": self.degraded,
            "oldest_s": self._watch.oldest_s,
            "parts": self._parts,
            "statement_s": self._watch.statement_s,
        }
