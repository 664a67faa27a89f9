"""What a worker says of itself, and when it is taken for stuck. Pure: the time is passed in.

The worker writes the report and judges itself by it (agents/health/reporter.py); the supervisor
reads it and judges too, because a worker whose loop hangs cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

WORKERS: Final = ("episodes", "thresholds", "history")
STUCK_AFTER_S: Final = 30.0
"""Without a report, or without progress while there is work, for so long: stuck."""
REPORT_FILE: Final = "progress"
"""The report's name in a worker's own directory."""
LONGEST_STEP_S: Final = 5.0
"""Most seconds that one look may add: while nobody looked, nothing is known."""

FIRST_REPORT: Final = 4
"""So many times longer may the first report take: a start killed early makes the next one slow."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One worker at one moment. Offsets are the next ones, by partition of its source topic."""

    worker: str
    pid: int
    at: int
    """Unix ms."""
    ready: bool = False
    """Partitions are assigned and their rows restored."""
    done: Mapping[int, int] = {}
    """Everything below took effect."""
    lag: Mapping[int, int] = {}
    """Offsets beyond that can be read; as the broker last said."""
    held_back: Mapping[int, int] = {}
    """Offsets that cannot be read yet, because a transaction is open: no work to be done."""
    restored: Mapping[int, int] = {}
    """The changelog offset that the table has come to; only while it is restored."""
    opened: int = 0
    """Partitions taken up since the process began."""
    dead_letters: int = 0
    """Records and events refused since the process began."""
    lost: int = 0
    """Records that retention deleted before they were taken in, since the process began."""
    away: tuple[str, ...] = ()
    """Services that do not answer."""
    repaired: Mapping[str, int] = {}
    """Values of Redis that it has replaced, by what was wrong with them."""
    contested: int = 0
    """Contexts whose value something else keeps writing to Redis."""
    kept: int = 0
    """Modes and overrides in Redis that no command set, and that stay because they restrict."""
    waits_for: tuple[str, ...] = ()
    """What it cannot go on without, and does not have."""
    reason: str = ""
    """Why its start waits, as far as it knows; without passwords."""

    @property
    def waiting(self) -> str | None:
        """What it waits for, and why where that is known; None: for nothing."""
        if not self.waits_for:
            return None
        return f"waits for {', '.join(self.waits_for)}" + (
            f": {self.reason}" if self.reason else ""
        )

    @property
    def has_work(self) -> bool:
        """Whether it should be moving: starting up, or behind."""
        return not self.ready or any(lag > 0 for lag in self.lag.values())


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Report).decode


def encode_report(report: Report) -> bytes:
    """Return the JSON of a report."""
    return _encode(report)


def decode_report(raw: bytes) -> Report | None:
    """Return the report in `raw`, or None where there is none."""
    try:
        return _decode(raw)
    except msgspec.DecodeError:
        return None


class Watchdog:
    """Judges one process by its reports: silent, or standing still with work to do.

    Example: `why = Watchdog(30.0).observe(now, report)`, again and again; a text says why it is
    stuck, None that it is not.
    """

    def __init__(self, stuck_after_s: float) -> None:
        """`stuck_after_s`: seconds; 0: never."""
        self._limit = stuck_after_s
        self._looked: float | None = None
        self._said: int | None = None
        self._reached: dict[tuple[str, int], int] = {}
        self._silent_s = self._still_s = 0.0

    def observe(self, now: float, report: Report | None) -> str | None:
        """Look at the newest report of the process, None if it has made none yet.

        `now`: seconds of any clock that never goes back.
        """
        step = 0.0 if self._looked is None else min(max(0.0, now - self._looked), LONGEST_STEP_S)
        self._looked = now
        said = None if report is None else report.at
        self._silent_s = self._silent_s + step if said == self._said else 0.0
        self._said = said
        if report is not None and (self._moved(report) or not _should_move(report)):
            self._still_s = 0.0
        else:
            self._still_s += step
        return self._verdict(report)

    def _verdict(self, report: Report | None) -> str | None:
        if self._limit <= 0:
            return None
        if self._silent_s > self._limit * (FIRST_REPORT if report is None else 1):
            return f"it has not reported for {self._silent_s:.0f} s"
        if report is None or self._still_s <= self._limit:
            return None
        if not report.ready:
            return f"it has not come nearer to its start for {self._still_s:.0f} s"
        behind = sum(report.lag.values())
        return f"it lags by {behind} records and has made no progress for {self._still_s:.0f} s"

    def _moved(self, report: Report) -> bool:
        """Return whether anything is further than it ever was: going round in circles is not."""
        marks = {("opened", 0): report.opened}
        marks |= {("done", partition): offset for partition, offset in report.done.items()}
        marks |= {("restored", partition): offset for partition, offset in report.restored.items()}
        further = {key: at for key, at in marks.items() if at > self._reached.get(key, -1)}
        self._reached |= further
        return bool(further)


def _should_move(report: Report) -> bool:
    return report.has_work and not report.waits_for
