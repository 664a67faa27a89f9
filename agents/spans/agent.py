"""The agent of spans: sends the events of a Collector's records to `headstart.events`.

Order of a step: dead letters, events, then the offset, each after the broker's acknowledgement of
the one before. A step that is cut off is done again with the same ids and origins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog
from faust.types import TP

from agents.app import App, new_app, register_agent
from agents.config import WorkerConfig
from agents.consumer.batch_intake import BatchIntake
from agents.consumer.first_offsets import with_earliest
from agents.consumer.lost_records import LostRecords
from agents.dlq_limit_guard import DlqLimitGuard
from agents.environment import Environment
from agents.health.metrics import WorkerCounts, started
from agents.producer import BatchProducer
from agents.spans.record_conversion import ConvertedRecords, RecordConversion
from processing.records.batch import RecordBatch
from processing.records.dlq_limits import Slice, extent
from topics.catalogue import EVENTS, SPANS_GROUP
from topics.epoch import Epoch

log = structlog.get_logger()

STEP_BYTES: Final = 1_000_000
"""About as many bytes of records are converted in one step."""
DRAIN_S: Final = 3.0
"""How long the step in flight may take when partitions are revoked."""


class SpansAgent:
    """All partitions of this worker in one queue, one step after the other."""

    def __init__(
        self,
        app: App,
        config: WorkerConfig,
        epoch: Epoch,
        env: Environment,
        producer: BatchProducer,
    ) -> None:
        self._app, self._producer = app, producer
        self.counts = WorkerCounts()
        self._guard = DlqLimitGuard(config.limits, config.data, epoch.number)
        self._conversion = RecordConversion(epoch.number, epoch.partitions)
        self._intake = BatchIntake(
            SPANS_GROUP, self._handle,
            on_lost=LostRecords(SPANS_GROUP, self._producer, self.counts), on_error=env.exit,
        )  # fmt: skip
        self._started = False

    async def positions(self, assigned: set[TP], committed: Mapping[TP, int]) -> Mapping[TP, int]:
        """Return the committed offsets; of a partition without one, its beginning."""
        if not self._started:
            await self._producer.start()
            self._started = True
        await self.drain()
        known = {tp: committed.get(tp, 0) for tp in assigned}
        begin = await with_earliest(known, self._app.consumer)
        for tp, offset in begin.items():
            self._guard.open(tp, offset)
        consumer = self._app.consumer
        self._intake.open(
            consumer, self._app.consumer_generation_id, begin,
            holes_are_real=self._producer.idempotent,
        )  # fmt: skip
        log.info("spans.partitions_assigned", group=SPANS_GROUP, partitions=len(assigned))
        return begin

    async def accept(self, tp: TP, generation: int, batch: RecordBatch) -> None:
        """Queue a batch if it is the next one of its partition."""
        await self._intake.accept(tp, generation, batch)

    def idle(self) -> dict[TP, int]:
        """Return the next offset of each partition if nothing waits or is in flight."""
        return self._intake.idle()

    def away(self) -> set[str]:
        """Return no service: it needs none but the broker."""
        return set()

    async def drain(self) -> None:
        """Finish the step in flight; drop waiting batches."""
        await self._intake.close(DRAIN_S)

    async def close(self) -> None:
        """Finish the step in flight and disconnect."""
        await self.drain()
        if self._started:
            await self._producer.stop()

    async def _handle(self, batches: list[tuple[TP, RecordBatch]]) -> None:
        for tp, batch in batches:
            begin = 0
            while begin < len(batch):
                part = Slice(batch, begin, _end_of_step(batch, begin))
                # In a thread: a megabyte of protobuf takes longer than the loop may be held.
                made = await asyncio.to_thread(
                    self._conversion.convert, batch, range(part.begin, part.end)
                )
                await self._send(tp, part, made)
                begin = part.end
            self._app.consumer.done(tp, batch.end)

    async def _send(self, tp: TP, part: Slice, made: ConvertedRecords) -> None:
        """Make a step take effect. Raises `RefusalLimitExceeded` and aiokafka's `KafkaError`."""
        begun = started()
        states = self._guard.check([part], made.dead_letters)
        await self._producer.send_dead_letters(made.dead_letters)
        await self._producer.send_records(EVENTS.name, made.records)
        self._app.consumer.done(tp, part.reached)
        self._guard.committed(states)
        self.counts.dead_letters += len(made.dead_letters)
        self.counts.count_batch(extent([part]), made.events)
        self.counts.observe_effect(extent([part]), begun)


def _end_of_step(batch: RecordBatch, begin: int) -> int:
    """Return the position after about `STEP_BYTES` from `begin` on, at least one record."""
    end, size = begin, 0
    while end < len(batch) and (size < STEP_BYTES or end == begin):
        size += batch.value_bytes_at(end)
        end += 1
    return end


def spans_app(config: WorkerConfig, epoch: Epoch) -> App:
    """Return the app of the agent of spans. Raises `ValueError` without a topic."""
    if not config.spans_topic:
        raise ValueError("the worker spans needs a topic: set HEADSTART_SPANS_TOPIC")
    app = new_app(SPANS_GROUP, config)
    agent = SpansAgent(app, config, epoch, Environment(), BatchProducer(config.kafka))
    register_agent(app, agent, config.spans_topic)
    return app
