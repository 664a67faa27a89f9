"""The agent of shared models: learns from `headstart.decisions`, stores and serves the models.

Order of a step: dead letters, then the models in memory. Their states follow later: what is not
written is applied again after a restart, each model from the offset that its state has.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog
from faust.types import TP

from agents.app import App, new_app, register_agent
from agents.config import WorkerConfig
from agents.consumer.batch_intake import BatchIntake
from agents.consumer.first_offsets import with_earliest
from agents.consumer.lost_records import LostRecords
from agents.environment import Environment
from agents.health.metrics import WorkerCounts, started
from agents.predictions.model_files import ModelFiles
from agents.predictions.owned_models import ModelStates, OwnedModels, StoreTuning
from agents.predictions.restore import RestoredModels, restore
from agents.predictions.serving import SnapshotServing
from agents.predictions.store import ModelStore
from agents.thresholds.clients import Clients
from headstart.keys import key_names
from headstart.prediction.shared.covered_sequences import MOST_EXECUTORS
from processing.predictions.entries import LoadedModels
from processing.predictions.partition_models import AppliedStep, PartitionModels
from processing.records.batch import RecordBatch
from processing.records.dlq_limits import Slice, extent
from sinks.redis.models import ModelPublisher
from topics.catalogue import DECISIONS, PREDICTIONS_GROUP
from topics.epoch import Epoch

log = structlog.get_logger()

TICK_S: Final = 0.25
"""How often it is checked which states and snapshots are due."""
STEP_S: Final = 8.0
"""How long the step in flight may take when partitions are revoked."""
_FETCH_WAIT_MS: Final = 200
"""How long a broker may hold a fetch: models are published every few seconds, there is no hurry."""
DRAIN_S: Final = 5.0
"""How long states may be written when partitions are revoked; the rest is applied again."""


class PredictionsAgent:
    """All partitions of this worker in one queue, one step after the other."""

    def __init__(
        self, app: App, config: WorkerConfig, epoch: Epoch, env: Environment, clients: Clients
    ) -> None:
        self._app, self._config, self._epoch = app, config, epoch
        self._env, self._clients = env, clients
        self.counts = WorkerCounts()
        self._files, self._tuning = ModelFiles(config.data), StoreTuning.of(epoch)
        self._states = ModelStates(self._files, epoch.number)
        self._producer, self._guard = clients.producer(config.kafka), env.stall_guard()
        self._store = ModelStore(
            config.kafka, epoch, self._producer, clients, self._states, self._guard, self.counts
        )
        self._serving = SnapshotServing(
            ModelPublisher(config.redis), lambda: list(self._owned.values()), epoch.number,
            self.counts, time.monotonic, self._evict, self._ends,
        )  # fmt: skip
        self._loaded = LoadedModels()
        self._lock = asyncio.Lock()
        """Held while models change, or are read as a whole."""
        self._owned: dict[TP, OwnedModels] = {}
        self._intake = BatchIntake(
            PREDICTIONS_GROUP, self._handle,
            on_lost=LostRecords(PREDICTIONS_GROUP, self._producer, self.counts), on_error=env.exit,
        )  # fmt: skip
        self._tasks: list[asyncio.Task[None]] = []

    async def positions(
        self,
        assigned: set[TP],
        committed: Mapping[TP, int],  # noqa: ARG002 - states have their own offsets
    ) -> Mapping[TP, int]:
        """Restore the models of each partition; return from where on records are applied."""
        if not self._tasks:
            await self._producer.start()
            self._tasks = [
                self._guard.start(),
                asyncio.create_task(self._repeat("states", self._store_due)),
                asyncio.create_task(
                    self._repeat("snapshots", lambda: self._serving.work(self._lock))
                ),
            ]
        await self.drain()
        numbers = [tp.partition for tp in assigned]
        if not self._epoch.volatile:
            await asyncio.to_thread(self._files.keep_only, numbers)
        restored = await restore(
            self._files, self._clients, self._config.kafka, numbers, self._epoch
        )
        known = {tp: restored[tp.partition].begin for tp in assigned}
        begin = await with_earliest(known, self._app.consumer)
        self._open(begin, restored)
        return begin

    def _open(self, begin: Mapping[TP, int], restored: Mapping[int, RestoredModels]) -> None:
        for tp, offset in begin.items():
            found = restored[tp.partition]
            models = PartitionModels(
                tp.partition, self._epoch.partitions, self._epoch.number, self._states.load,
                self._loaded, self._config.rules.operators_key,
            )  # fmt: skip
            models.entries, models.reached = found.entries, offset
            self._owned[tp] = OwnedModels(tp, models, found.end, offset, offset)
            self._app.opened += 1
        self._serving.recheck()
        self._intake.open(
            self._app.consumer, self._app.consumer_generation_id, begin,
            holes_are_real=self._producer.idempotent,
        )  # fmt: skip
        log.info("predictions.partitions_assigned", partitions=len(begin))

    async def accept(self, tp: TP, generation: int, batch: RecordBatch) -> None:
        """Queue a batch if it is the next one of its partition."""
        await self._intake.accept(tp, generation, batch)

    def idle(self) -> dict[TP, int]:
        """Return the next offset of each partition if nothing waits or is in flight."""
        return self._intake.idle()

    def away(self) -> set[str]:
        """Return Redis while it gets no snapshots; learning continues without it."""
        return {"redis"} if self._serving.behind else set()

    async def _handle(self, batches: list[tuple[TP, RecordBatch]]) -> None:
        for tp, batch in batches:
            owned, position = self._owned[tp], 0
            while position < len(batch):
                async with self._lock:
                    position = await self._apply(owned, batch, position)
            owned.models.reached = batch.end
            self._report(owned)

    async def _apply(self, owned: OwnedModels, batch: RecordBatch, begin: int) -> int:
        """Apply a step; return the position after it."""
        begun = started()
        step = await self._apply_in_thread(owned, batch, begin)
        await self._producer.send_dead_letters(step.dead_letters)
        owned.letters_unsent = False
        self._note_executors(step)
        await self._evict()
        owned.note(step.changed, time.monotonic())
        owned.marker_due |= bool(step.dead_letters)
        done = extent([Slice(batch, begin, step.end)])
        self.counts.dead_letters += len(step.dead_letters)
        self.counts.count_batch(done, step.events)
        self.counts.observe_effect(done, begun)
        self._report(owned)
        return step.end

    async def _apply_in_thread(
        self, owned: OwnedModels, batch: RecordBatch, begin: int
    ) -> AppliedStep:
        """Apply a step in a thread: it may take longer than the loop may be held.

        A cancelled caller still waits for the thread: it holds the lock as long as models
        change.
        """
        applying = asyncio.create_task(asyncio.to_thread(owned.models.apply, batch, begin))
        try:
            return await asyncio.shield(applying)
        finally:
            await asyncio.wait([applying])
            owned.letters_unsent = applying.exception() is None and bool(
                applying.result().dead_letters
            )

    def _note_executors(self, step: AppliedStep) -> None:
        """Report executors of which a model has forgotten what it has learned from them."""
        for entry in step.changed.values():
            if evicted := entry.newly_evicted():
                tenant, workflow_type = key_names(entry.key)
                log.warning("model.executors_evicted", tenant=tenant, workflow_type=workflow_type,
                            evicted=evicted, kept=MOST_EXECUTORS)  # fmt: skip
                self.counts.evicted_executors += evicted

    async def _evict(self) -> None:
        """Drop the models that are too many in memory; the lock is held."""
        for entry in self._loaded.excess():
            await asyncio.to_thread(self._states.write_file, entry)

    async def _ends(self) -> Mapping[int, int]:
        return (await self._clients.topic_state(self._config.kafka, DECISIONS.name)).end

    def _report(self, owned: OwnedModels) -> None:
        """Report progress. A log in memory is committed as far as the files have it."""
        if self._epoch.volatile:
            self._app.consumer.done(owned.tp, owned.filed_to())
        self._app.consumer.done(owned.tp, owned.models.reached, commit=not self._epoch.volatile)

    async def _store_due(self) -> None:
        for owned in list(self._owned.values()):
            now_s = time.monotonic()
            async with self._lock:
                if owned.tp not in self._owned or owned.letters_unsent:
                    continue
                due = owned.due(now_s, self._tuning)
                if due or self._marker_late(owned, now_s):
                    await self._store.store(owned, due)
                if self._epoch.volatile:
                    await self._file(owned, now_s)

    def _marker_late(self, owned: OwnedModels, now_s: float) -> bool:
        """Of a log in memory, the marker of the files has the offset."""
        if self._epoch.volatile:
            return owned.marker_due
        return owned.marker_late(now_s, self._tuning)

    async def _file(self, owned: OwnedModels, now_s: float, *, at_once: bool = False) -> None:
        """Write the files of changed models, and then the marker."""
        unfiled = owned.unfiled()
        idle = now_s - owned.applied_s >= self._tuning.idle_s
        if not unfiled and owned.filed_to() <= owned.file_marked:
            return
        if not (at_once or idle or now_s - owned.filed_s >= self._tuning.file_s):
            return
        for entry in unfiled:
            await asyncio.to_thread(self._states.write_file, entry)
        marker = owned.marker(self._epoch.number, files=True)
        await asyncio.to_thread(self._files.write_marker, owned.tp.partition, marker)
        owned.filed_s, owned.file_marked = now_s, owned.filed_to()
        self._report(owned)

    async def drain(self) -> None:
        """Finish the step in flight; write the states; release the partitions."""
        await self._intake.close(STEP_S)
        if not self._owned:
            return
        deadline = time.monotonic() + DRAIN_S
        async with self._lock:
            for owned in self._owned.values():
                if owned.letters_unsent:
                    continue
                if self._epoch.volatile:
                    await self._file(owned, time.monotonic(), at_once=True)
                    continue
                unstored = [e for e in owned.models.entries.values() if not e.is_stored]
                while unstored and time.monotonic() < deadline:
                    await self._store.store(owned, [unstored.pop()])
                if not unstored and owned.stored_to() > owned.marked:
                    await self._store.store(owned, [])
            for owned in self._owned.values():
                self._loaded.forget(owned.tp.partition)
            self._owned = {}

    async def close(self) -> None:
        """Finish the step in flight, write the states, and disconnect."""
        await self.drain()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await self._producer.stop()
        await self._serving.close()

    async def _repeat(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Call `work` at intervals; an error in it ends the process."""
        try:
            while True:
                await asyncio.sleep(TICK_S)
                await work()
        except Exception as error:
            self._env.exit(name, error)


def predictions_app(config: WorkerConfig, epoch: Epoch) -> App:
    """Return the app of the agent of shared models."""
    app = new_app(PREDICTIONS_GROUP, config)
    app.gather_ms = _FETCH_WAIT_MS
    agent = PredictionsAgent(app, config, epoch, Environment(), Clients())
    register_agent(app, agent, DECISIONS.name)
    return app
