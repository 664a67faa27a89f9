"""How a sink's batch takes effect: dead letters, then one transaction, then the offsets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from processing.records.dead_letters import DeadLetter
from processing.records.dlq_limits import Slice
from processing.records.sink_lines import SinkBatch

Refused = Sequence[tuple[int, str]]
"""(index of the line, reason) of each line that the database would not take."""


class BatchTargets(Protocol):
    """Where a sink's batches go."""

    async def send_dead_letters(self, letters: Sequence[DeadLetter], /) -> None:
        """Return when the broker has them."""
        ...

    async def store(
        self,
        lines: Sequence[bytes],
        offsets: Mapping[int, int],
        on_refused: Callable[[Refused], Awaitable[None]],
        /,
    ) -> None:
        """Store lines, and the next offset by partition, in one transaction.

        `on_refused` is awaited before the commit; waits for as long as the database is away.
        """
        ...

    def done(self, partition: int, end: int, /) -> None:
        """Let `end` be committed as the group's next offset."""
        ...


async def store_batch(
    parts: Sequence[Slice], unpacked: SinkBatch, group: str, outlets: BatchTargets
) -> None:
    """Make parts of batches take effect: dead letters, then one transaction, then the offsets.

    Of a partition's parts the last one says where it goes on.
    """

    async def on_refused(refused: Refused) -> None:
        letters = [unpacked.refuse(index, reason, group) for index, reason in refused]
        await outlets.send_dead_letters(letters)

    if unpacked.dead_letters:
        await outlets.send_dead_letters(unpacked.dead_letters)
    offsets = {part.batch.partition: part.reached for part in parts}
    await outlets.store(unpacked.lines, offsets, on_refused)
    for partition, end in offsets.items():
        outlets.done(partition, end)
