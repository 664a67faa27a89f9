"""The clock of a partition: set by clock records, which its owner appends, not by events.

A clock record holds the wall-clock time of the worker that owns the partition. After the first one,
timestamps of events no longer move the partition's clock, and expiry is judged by arrival, to the
`TICK_MS`. Before it (logs of earlier versions, imported files) the clock is the largest event time
seen, so that a replay of such a log gives the same rows.

Nothing expires early, whatever the clock records are:

- An event counts as arrived by the next clock record. After a long silence (no worker, or no
  events) that may be much later than the record before: a `gap`, within which the time of arrival
  is not known.
- One clock record moves the clock by at most `STEP_MS`; the limit doubles for each further record
  in a row that exceeds it. A single wrong record expires little, and after days without a worker
  the clock has caught up in a few records.
- The clock does not go back, except at the first clock record, which corrects what an event from
  the future had done.
"""

from __future__ import annotations

from typing import Final

from headstart.events.schema import LAST_MS
from learners.context_detectors import HELD_MS
from processing.state.rows import TaskStateRow

TICK_MS: Final = HELD_MS
"""The clock's unit: five minutes. All that arrives within one counts as simultaneous."""
STEP_MS: Final = 12 * TICK_MS
"""How far one clock record moves the clock at most."""
_MOST_DOUBLED: Final = 16
_ORDINARY_MS: Final = 2 * TICK_MS
"""Longest time between two clock records of a busy partition."""
_GAP_SHARE: Final = 10
"""A gap is remembered until so many times its length has passed: anything with a longer life may
expire as if it had arrived when the gap began."""


def latest_of(at: int, row: TaskStateRow | None = None, now: int = 0) -> int:
    """Return the latest time (Unix ms) at which an outcome happened whose stored time is `at`.

    The end of its tick. Where `at` is the tick's last ms, the outcome may have arrived before the
    next clock record: two ticks later, as no gap is noted up to there. `row`: that of its partition
    at `now`; without it, an outcome that arrived after a pause may be even later. In a gap it is
    the end of the second tick after the gap's end; while the clock is behind, `now`.
    """
    end = at - at % TICK_MS + TICK_MS - 1
    latest = end + _ORDINARY_MS if at == end else end
    if row is None or not row.began:
        return latest
    behind = row.clock
    for begin, until in row.gaps:
        if begin <= at < until:
            latest = max(latest, until + _ORDINARY_MS - 1)
        if row.doubled and until == row.clock:  # the next clock record extends this gap
            behind = begin
    return max(latest, now) if behind <= at and row.clock + _ORDINARY_MS <= now else latest


class PartitionClock:
    """The clock in a partition's row. Times are in Unix ms."""

    __slots__ = ("_reached", "row")

    def __init__(self, row: TaskStateRow) -> None:
        self.row = row
        self._reached: dict[int, int] = {}

    def restore(self, row: TaskStateRow) -> None:
        """Continue with another row."""
        self.row = row
        self._reached.clear()

    @property
    def set_by_records(self) -> bool:
        """Whether there was a clock record. Otherwise event times set the clock."""
        return self.row.began > 0

    def apply(self, at: int) -> bool:
        """Apply a clock record; return whether the clock moved."""
        row, stated = self.row, at // TICK_MS * TICK_MS
        self._reached.clear()
        if not row.began:
            limit = stated if not row.clock else (row.clock + STEP_MS) // TICK_MS * TICK_MS
            row.clock = row.began = max(TICK_MS, min(stated, limit))
            row.doubled = int(stated > limit)
            return True
        before, doubled = row.clock, row.doubled
        limit = before + (STEP_MS << doubled)
        row.doubled = min(_MOST_DOUBLED, doubled + 1) if stated > limit else 0
        if stated <= before:
            return False
        row.clock = min(stated, limit)
        self._note_gap(before, behind=doubled > 0)
        return True

    def _note_gap(self, before: int, *, behind: bool) -> None:
        """Note a time without clock records. While catching up, extend the gap before."""
        row = self.row
        clock, gaps = row.clock, list(row.gaps)
        if behind and gaps and gaps[-1][1] == before:
            gaps[-1] = gaps[-1][0], clock
        elif behind or clock - before > _ORDINARY_MS:
            gaps.append((before, clock))
        row.gaps = tuple(gap for gap in gaps if clock - gap[1] <= _GAP_SHARE * (gap[1] - gap[0]))

    def reached(self, life: int) -> int:
        """Return the time by which to expire what lives for `life` ms.

        What now expires had arrived, at the latest, `life` before it.
        """
        row = self.row
        if not row.began:
            return row.clock
        reached = self._reached.get(life)
        if reached is None:
            reached = self._reached[life] = self._judged(life)
        return reached

    def _judged(self, life: int) -> int:
        reached = self.row.clock - _ORDINARY_MS
        for begin, end in self.row.gaps:
            if begin <= reached - life < end:
                return begin + life
        return reached

    @property
    def bounds(self) -> tuple[int, int]:
        """The first and last time that an outcome arriving now can have."""
        row = self.row
        return (row.clock, row.clock + TICK_MS - 1) if row.began else (0, LAST_MS)

    def latest(self, at: int) -> int:
        """Return the last time that is not in the future, for an event of time `at`."""
        return self.bounds[1] if self.set_by_records else at

    def outcome_time(self, at: int) -> int:
        """Return the time of an outcome of event time `at`: limited to the tick of its arrival.

        A time outside becomes a bound of that tick, which does not show how much time has
        passed (`learners.context_detectors.elapsed`).
        """
        earliest, latest = self.bounds
        return min(max(at, earliest), latest)

    def now(self, at: int) -> int:
        """Return the time at which an event of time `at` arrives."""
        return self.row.clock if self.row.began else at

    def is_ahead(self, at: int) -> bool:
        """Return whether a time is in the future, judged by clock records."""
        return self.set_by_records and at >= self.row.clock + TICK_MS

    def newest(self, at: int) -> int:
        """Return when a context's newest outcome arrived, given the time `at` in its row.

        A time that was in the future at the first clock record counts as that record's.
        """
        row = self.row
        if not row.began:
            return at
        return at // TICK_MS * TICK_MS if at < row.clock + TICK_MS else row.began

    def arrived(self, at: int) -> int:
        """Return the same of a start, or a spool's last event: in whole ticks by clock records."""
        row = self.row
        if not row.began or (at % TICK_MS == 0 and at <= row.clock):
            return at
        return min(at, row.began)
