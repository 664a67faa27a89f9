"""Computes when contexts last learned, from stored times and gaps in their partitions' clocks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cli.support.output import echo
from cli.support.times import now_ms, shown_moment

if TYPE_CHECKING:
    from processing.state.rows import TaskStateRow

_PATIENCE_S: Final = 5.0


@dataclass(frozen=True)
class LearnedTimes:
    """The rows of the partitions that have one, read at `now` (Unix ms)."""

    rows: Mapping[int, TaskStateRow] = field(default_factory=dict)
    partitions: int = 0
    now: int = field(default_factory=now_ms)

    def latest(self, served: Mapping[str, Any]) -> int:
        """Return the latest time at which a context learned; see `latest_of`."""
        from processing.records.partitioner import partition_for
        from processing.state.clock import latest_of

        at: int = served["at"]
        row = None
        if self.partitions:
            owner = partition_for(served["tenant"], served["workflow_type"], self.partitions)
            row = self.rows.get(owner)
        return max(at, min(latest_of(at, row, self.now), self.now))

    def shown(self, at: int, latest: int) -> str:
        """Return when a context learned, as a range after a pause of the workers."""
        from processing.state.clock import latest_of

        if latest <= latest_of(at):
            return str(shown_moment(at))
        return f"{shown_moment(at)} to {shown_moment(latest)}"


async def read_learned_times(kafka: str) -> LearnedTimes:
    """Read the partitions' rows; without a broker, print a note that times may be inexact."""
    from aiokafka.errors import KafkaError

    from replay.log.live_table import read_state_rows
    from topics.epoch import read_minted_epoch

    try:
        async with asyncio.timeout(_PATIENCE_S):
            epoch, _partitions = await read_minted_epoch(kafka)
            return LearnedTimes(await read_state_rows(kafka), epoch.partitions)
    except (KafkaError, LookupError, OSError) as error:  # also BrokerUnreachable, TimeoutError
        why = str(error) or f"no answer within {_PATIENCE_S:g} s"
        echo(
            f"note: contexts that learned after a pause of the workers may have an earlier time: "
            f"the clocks of the partitions were not read ({why})"
        )
        return LearnedTimes()
