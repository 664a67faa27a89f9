"""Reports the records that retention deleted before a group had read them.

Once each: as a metric and in the worker's report, and as a dead letter, which stays when the worker
starts again. `headstart doctor` and `headstart verify` find them by these. The sequencer logs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from faust.types import TP

from agents.health.metrics import WorkerCounts
from processing.records.dead_letters import DeadLetter, letter_of_lost


class SendsLetters(Protocol):
    """A producer, as far as it is needed here; see `agents.producer.BatchProducer`."""

    async def send_dead_letters(self, letters: Sequence[DeadLetter], /) -> None:
        """Send dead letters and wait until all are acknowledged. Raises `KafkaError`."""
        ...


class LostRecords:
    """What a group has lost in this process. Await it as `on_lost` of a `FetchSequencer`."""

    def __init__(self, group: str, producer: SendsLetters, counts: WorkerCounts) -> None:
        self._group, self._producer, self._counts = group, producer, counts
        self._reported: dict[TP, int] = {}
        """The first offset by partition that was not reported yet."""

    async def __call__(self, tp: TP, lost: range) -> None:
        """Report what was not before: an assignment begins at the stored offset again.

        Raises aiokafka's `KafkaError`.
        """
        new = range(max(lost.start, self._reported.get(tp, 0)), lost.stop)
        if not new:
            return
        await self._producer.send_dead_letters(
            [letter_of_lost(tp.topic, tp.partition, new, self._group)]
        )
        self._counts.count_lost(len(new))
        self._reported[tp] = new.stop
