"""How a batch of a sink takes effect: dead letters, then one transaction, then the offsets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from agents.dlq_limit_guard import DlqLimitGuard
from agents.health.metrics import WorkerCounts, started
from agents.producer import BatchProducer
from agents.storage.transactions import TransactionWriter
from processing.records.dead_letters import DeadLetter
from processing.records.dlq_limits import Slice, extent
from processing.records.sink_lines import SinkBatch
from sinks.postgres.batch_writer import MOST_SEARCHED, TooManyRejectedRows

PIECE: Final = MOST_SEARCHED // 3
"""Lines stored together where Postgres refuses some of more: a record holds up to 1,000."""


@dataclass(frozen=True)
class BatchCommitter:
    """Makes parts of batches take effect, for one consumer group."""

    group: str
    producer: BatchProducer
    guard: DlqLimitGuard
    transactions: TransactionWriter
    counts: WorkerCounts
    done: Callable[[int, int], None]
    """Lets an offset of a partition be committed as the group's next one."""

    async def commit(
        self, parts: Sequence[Slice], unpacked: SinkBatch, sent: Sequence[DeadLetter] = ()
    ) -> None:
        """Store parts of batches. Raises `RefusalLimitExceeded`.

        `sent`: dead letters of these and perhaps of other parts that were sent already.

        The next offset of a partition is that of its last part.
        """
        begun = started()
        letters = [*sent]
        states = self.guard.check(parts, letters)

        async def send(more: Sequence[DeadLetter]) -> None:
            nonlocal states
            letters.extend(more)
            states = self.guard.check(parts, letters)
            await self.producer.send_dead_letters(more)
            self.counts.dead_letters += len(more)

        async def on_refused(refused: Sequence[tuple[int, str]]) -> None:
            await send([unpacked.refuse(line, reason, self.group) for line, reason in refused])

        offsets = {part.batch.partition: part.reached for part in parts}
        try:
            if unpacked.dead_letters:
                await send(unpacked.dead_letters)
            await self.transactions.store(unpacked, offsets, on_refused)
        except TooManyRejectedRows:
            # One transaction would take longer than a worker may stall, and again after a restart.
            for piece in unpacked.pieces(parts, PIECE):
                await self.commit(*piece, unpacked.dead_letters)
            return
        for partition, end in offsets.items():
            self.done(partition, end)
        self.guard.committed(states)
        stored = extent(parts)
        self.counts.count_batch(stored, len(unpacked.lines))
        self.counts.observe_effect(stored, begun)
