"""Writes states to `headstart.models`, and again those that a stale owner has overwritten.

Kafka fences the commits of a paused process, not its produces. Nothing is lost by a stale state:
its marker, or that of a later owner, has the offset to begin at
(`topics.models.records.first_needed`). It is replaced nevertheless, so that no restart has to read
far back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog

from agents.health.metrics import WorkerCounts
from agents.health.stall_guard import StallGuard
from agents.predictions.owned_models import ModelStates, OwnedModels
from agents.producer import BatchProducer
from agents.thresholds.clients import Clients
from processing.predictions.entries import ModelEntry
from topics.catalogue import MODELS
from topics.epoch import Epoch
from topics.kafka.reader import LogTruncated
from topics.models.records import MARKER_KEY, NotAModel, decode_model, encode_model

log = structlog.get_logger()

_BATCH_BYTES: Final = 8_000_000
"""Of the states in one record batch, about; the marker comes on top."""


class ModelStore:
    """Writes the states of the partitions that this worker owns."""

    def __init__(
        self, kafka: str, epoch: Epoch, producer: BatchProducer, clients: Clients,
        states: ModelStates, guard: StallGuard, counts: WorkerCounts,
    ) -> None:  # fmt: skip
        self._kafka, self._epoch, self._producer = kafka, epoch, producer
        self._clients, self._states, self._guard = clients, states, guard
        self._counts = counts

    async def store(self, owned: OwnedModels, entries: Sequence[ModelEntry]) -> None:
        """Write states, or without any only the marker; the models must not change meanwhile.

        Raises aiokafka's `KafkaError` and `BatchTooLarge`.
        """
        rows: list[tuple[bytes, bytes | None]] = []
        written: list[ModelEntry] = []
        size = 0
        for entry in entries:
            state = await asyncio.to_thread(self._states.state_of, entry)
            entry.size = len(state)
            row = encode_model(self._epoch.number, entry.offset, entry.reset, state)
            rows.append((entry.key, row))
            written.append(entry)
            size += len(state)
            if size >= _BATCH_BYTES:
                await self._send(owned, rows, written)
                rows, written, size = [], [], 0
        if written or not entries:
            await self._send(owned, rows, written)

    async def _send(
        self,
        owned: OwnedModels,
        rows: list[tuple[bytes, bytes | None]],
        written: list[ModelEntry],
    ) -> None:
        marker = owned.marker(self._epoch.number, written, files=False)
        reached = owned.stored_to(written)
        self._guard.check()
        partition = owned.tp.partition
        first, last = await self._producer.send_rows(
            MODELS.name, partition, [*rows, (MARKER_KEY, marker)]
        )
        for entry in written:
            entry.note_stored()
            owned.changed_s.pop(entry.key, None)
        owned.note_marked(reached, time.monotonic())
        self._counts.rows += len(written)
        if first > owned.end:
            await self._find_stale(owned, first)
        owned.end = last + 1

    async def _find_stale(self, owned: OwnedModels, end: int) -> None:
        """Have states written again where others have appended older ones."""
        partition, stale = owned.tp.partition, 0
        begin = {partition: owned.end}
        with suppress(LogTruncated):  # compaction has removed what was read
            async for record in self._clients.read_records(
                self._kafka, MODELS.name, begin, {partition: end}
            ):
                entry = owned.models.entries.get(record.key)
                if entry is not None and _version(record.value) < self._written(entry):
                    entry.rewrite = True
                    stale += 1
        if stale:
            log.warning("models.stale", partition=partition, states=stale)

    def _written(self, entry: ModelEntry) -> tuple[int, int]:
        return self._epoch.number, entry.stored


def _version(value: bytes | None) -> tuple[int, int]:
    try:
        return decode_model(value).version
    except NotAModel:
        return (0, 0)
