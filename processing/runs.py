"""Runs of records most of whose events are plain: applied to the same end in fewer steps.

Plain is a completion that says itself what is to be learned (confidence, was_correct), of contexts
that are known, at a time that ends nothing. What `Events` does with such an event stands here once
more, flat, because nearly every event is one. Any other event, and any record that something may be
wrong with, is left to the long way; so it changes nothing where a run begins or ends.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

from processing.chains import Chain
from processing.decode import decode_records
from processing.records import RecordBatch
from processing.rules import LARGEST_MS
from processing.starts import task_of
from processing.stretches import Stretches
from processing.tally import flags_of
from topics.records import EventFields

LARGE_BYTES: Final = 100_000
"""Of a record, from which on it is asked whether the commit has room for it."""


class Runs(Stretches):
    """Events applied run by run."""

    @abstractmethod
    def _record(self, batch: RecordBatch, position: int, offset: int) -> None:
        """Apply one record the long way."""

    @abstractmethod
    def _take(
        self,
        batch: RecordBatch,
        position: int,
        event: EventFields,
        origin: tuple[str, int] | None,
        offset: int,
    ) -> None:
        """Apply one event the long way."""

    @abstractmethod
    def _full(self, batch: RecordBatch, position: int) -> bool:
        """Return whether what has gathered fills a commit, with the record at `position`."""

    def _run(self, batch: RecordBatch, begin: int) -> tuple[int, int]:  # noqa: PLR0912 - flat
        """Apply records without headers from `begin` on; return the next position, and events."""
        row, chains, place_of = self._row, self._contexts.chains, self._contexts.place_of
        moves = not self.clock.witnessed
        earliest, latest = self.clock.bounds
        opened, awaits = self._starts.keys(), self._starts.awaits
        ready, due, taken = self._contexts.ready, self._due(), 0
        for position, found in enumerate(decoded(batch, begin), begin):
            offset, grown = batch.offsets[position], False
            if found is None:
                self._record(batch, position, offset)
                due, grown = self._due(), True
            events: Sequence[EventFields] = (
                found if type(found) is list else () if found is None else (found,)  # type: ignore[assignment]
            )
            taken += len(events)
            for event in events:
                data, at, confidence = event.data, event.timestamp, event.confidence
                if (
                    event.event_type == "task_complete"
                    and confidence is not None
                    and data is not None
                    and (prediction := data.prediction) is not None
                    and (correct := prediction.was_correct) is not None
                    and (at < due or (moves and at <= row.clock))
                    and (chain := chains.get(place_of(event)) if chains else None) is not None
                    and not (opened and awaits(*task_of(event)))
                ):
                    gain = cost = execution = 0.0
                    if (result := data.result) is not None:
                        gain, cost = result.gain_ms or 0.0, result.cost_ms or 0.0
                        execution = result.execution_time_ms or 0.0
                    if gain <= LARGEST_MS and cost <= LARGEST_MS:
                        if not moves:
                            at = min(max(at, earliest), latest)
                        elif at > row.clock:
                            row.clock = at
                        if (origin := event.origin) is not None:
                            seen = chain.seen.get(origin[0])
                            if seen is not None and seen.touched and origin[1] > seen.position:
                                seen.position, seen.at, seen.offset = origin[1], row.clock, offset
                            else:
                                grown = True
                                if self._sent_before(chain, event, origin, offset):
                                    continue
                        if not (chain.touched and chain.lessons):
                            grown = True
                            ready(chain)
                        row.outcomes += 1
                        flags = flags_of(correct, prediction.speculated is True, prediction.mode)
                        chain.lessons.append((confidence, gain, cost, execution, at, flags, chain))
                        chain.offset = offset
                        continue
                self._take(batch, position, event, event.origin, offset)
                due, grown = (self._due() if chains else due), True
            if (grown or next_is_large(batch, position)) and self._full(batch, position + 1):
                break
        return position + 1, taken

    def _sent_before(
        self, chain: Chain, event: EventFields, origin: tuple[str, int], offset: int
    ) -> bool:
        """Return whether an event was seen before, the last position of its spool being unknown."""
        key = event.tenant, event.workflow_type
        if self._spools.duplicate(*key, origin, self._row.clock, offset):
            self._row.duplicates += 1
            return True
        if (seen := self._spools.positions.get((*key, origin[0]))) is not None:
            chain.seen[origin[0]] = seen
        return False


def decoded(batch: RecordBatch, begin: int) -> Sequence[EventFields | Sequence[EventFields] | None]:
    """Return what each record of a run holds; there is at least one."""
    end = batch.plain_run(begin).stop
    return decode_records(batch.values[begin:end], batch.timestamps[begin:end])


def next_is_large(batch: RecordBatch, position: int) -> bool:
    """Return whether the record after a position may need more room than there always is."""
    values = batch.values
    return position + 1 < len(values) and len(values[position + 1] or b"") > LARGE_BYTES
