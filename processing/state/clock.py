"""What time it is for a partition: by clock records, which its owner appends, not by events.

A clock record says the wall-clock time of the worker that owns the partition. Once there is one,
no timestamp of an event moves the partition's clock; what expires is judged by when it arrived, to
the `TICK_MS`. Before the first one (logs of old, imported files) the clock is the largest event
time seen, as it always was, so that a replay of such a log gives the same rows.

Nothing expires early, whatever clock records there are:

- What arrives counts as of the next clock record. Where the partition was silent for long (its
  worker was away, or nothing came), that may be much later than the one before: a `gap`, in which
  it is not known when something arrived.
- One clock record moves the clock by `STEP_MS` at the most, each one in a row that is still ahead
  by twice as much: a single one that is wrong expires little, and a worker that was away for days
  has caught up after a few.
- The clock does not go back, but for the first clock record, which puts right what an event from
  the future had done.
"""

from __future__ import annotations

from typing import Final

from headstart.events.schema import LAST_MS
from learners.context_detectors import HELD_MS
from processing.state.rows import TaskStateRow

TICK_MS: Final = HELD_MS
"""The clock's unit: five minutes. What arrives within one counts as of the same time."""
STEP_MS: Final = 12 * TICK_MS
"""How far one clock record moves the clock, at the most."""
_MOST_DOUBLED: Final = 16
_ORDINARY_MS: Final = 2 * TICK_MS
"""Between two clock records of a partition that is busy, at the most."""
_GAP_SHARE: Final = 10
"""A gap is remembered until so many times its length has passed: what lives for so much longer may
as well expire as if it had arrived at the gap's beginning."""


def latest_of(at: int, row: TaskStateRow | None = None, now: int = 0) -> int:
    """Return the latest time at which an outcome happened whose stored time is `at` (Unix ms).

    The end of its tick. Where `at` is the tick's last ms, the outcome may have arrived before the
    next clock record: two ticks later, as no gap is noted up to there. `row`: of its partition, at
    `now`; without one, an outcome that arrived after a pause may be later yet. In a gap it is the
    end of the second tick from the gap's end on; while the clock is behind, `now`.
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
        """Go on with another row."""
        self.row = row
        self._reached.clear()

    @property
    def witnessed(self) -> bool:
        """Whether there was a clock record. Else the clock goes by event time."""
        return self.row.began > 0

    def witness(self, at: int) -> bool:
        """Take in a clock record; return whether the clock has moved."""
        row, said = self.row, at // TICK_MS * TICK_MS
        self._reached.clear()
        if not row.began:
            most = said if not row.clock else (row.clock + STEP_MS) // TICK_MS * TICK_MS
            row.clock = row.began = max(TICK_MS, min(said, most))
            row.doubled = int(said > most)
            return True
        before, doubled = row.clock, row.doubled
        most = before + (STEP_MS << doubled)
        row.doubled = min(_MOST_DOUBLED, doubled + 1) if said > most else 0
        if said <= before:
            return False
        row.clock = min(said, most)
        self._note_gap(before, behind=doubled > 0)
        return True

    def _note_gap(self, before: int, *, behind: bool) -> None:
        """Note where nothing was witnessed. What catches up goes on with the gap before."""
        row = self.row
        clock, gaps = row.clock, list(row.gaps)
        if behind and gaps and gaps[-1][1] == before:
            gaps[-1] = gaps[-1][0], clock
        elif behind or clock - before > _ORDINARY_MS:
            gaps.append((before, clock))
        row.gaps = tuple(gap for gap in gaps if clock - gap[1] <= _GAP_SHARE * (gap[1] - gap[0]))

    def reached(self, life: int) -> int:
        """Return the time by which is judged what lives for so long: its own less `life` is when
        what now expires had arrived at the latest.
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
        """The first and last time that an outcome can have which arrives now."""
        row = self.row
        return (row.clock, row.clock + TICK_MS - 1) if row.began else (0, LAST_MS)

    def latest(self, at: int) -> int:
        """Return the last time that is not ahead as an event arrives that says `at`."""
        return self.bounds[1] if self.witnessed else at

    def heard(self, at: int) -> int:
        """Return the time of an outcome that says `at`: within the tick in which it arrived.

        One that says another is at a bound of that tick, from which nothing can be said of how much
        time has passed (`learners.context_detectors.elapsed`).
        """
        earliest, latest = self.bounds
        return min(max(at, earliest), latest)

    def now(self, at: int) -> int:
        """Return what time it is as an event arrives that says `at`."""
        return self.row.clock if self.row.began else at

    def is_ahead(self, at: int) -> bool:
        """Return whether a time is one that no outcome can have had by clock records."""
        return self.witnessed and at >= self.row.clock + TICK_MS

    def newest(self, at: int) -> int:
        """Return when a context's newest outcome arrived, `at` being what its row says.

        What was ahead as the first clock record came counts as of that.
        """
        row = self.row
        if not row.began:
            return at
        return at // TICK_MS * TICK_MS if at < row.clock + TICK_MS else row.began

    def arrived(self, at: int) -> int:
        """The same of a start, or a spool's last event: whole ticks, where clock records say so."""
        row = self.row
        if not row.began or (at % TICK_MS == 0 and at <= row.clock):
            return at
        return min(at, row.began)
