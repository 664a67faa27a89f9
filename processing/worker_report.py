"""A worker's report of its progress, and the rule by which it counts as stuck. Pure.

The worker writes the report and applies the rule itself (agents/health/reporter.py); so does the
supervisor, because a worker whose event loop hangs cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

PREDICTIONS: Final = "predictions"
"""The worker of shared models."""
WORKERS: Final = ("episodes", "thresholds", "history", PREDICTIONS)
MEMORY: Final = "memory"
"""The worker that makes episodes of stored events; reads Postgres only. Can be switched off."""
SPANS: Final = "spans"
"""The worker that runs only if a topic of OpenTelemetry spans is configured."""
ALL_WORKERS: Final = (*WORKERS, MEMORY, SPANS)
STUCK_AFTER_S: Final = 30.0
"""Without a report, or without progress while there is work, for so long: stuck."""
REPORT_FILE: Final = "progress"
"""The report's name in a worker's own directory."""
LONG_STATEMENT_S: Final = 1.0
"""From so long on, a statement that Postgres has not answered is waited for, as a service is."""
LONGEST_STEP_S: Final = 5.0
"""Most seconds that one observation may add: between two observations nothing is known."""

START_FACTOR: Final = 4
"""A start may take so many times longer: a kill makes it begin again, on a machine no less busy."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One worker at one moment. Offsets are the next ones, by partition of its source topic."""

    worker: str
    pid: int
    at: int
    """Unix ms."""
    ready: bool = False
    """Partitions are assigned and their rows restored."""
    done: Mapping[int, int] = {}
    """Everything below these took effect."""
    lag: Mapping[int, int] = {}
    """Readable offsets from there on, as last reported by the broker."""
    held_back: Mapping[int, int] = {}
    """Offsets that are not readable yet, because a transaction is open; not lag."""
    restored: Mapping[int, int] = {}
    """The changelog offset that the table has reached; only during recovery."""
    opened: int = 0
    """Partitions opened since the process began."""
    dead_letters: int = 0
    """Records and events rejected since the process began."""
    lost: int = 0
    """Records that retention deleted before they were read, since the process began."""
    away: tuple[str, ...] = ()
    """Services that cannot be reached."""
    repaired: Mapping[str, int] = {}
    """Values in Redis that it replaced, by what was wrong with them."""
    contested: int = 0
    """Contexts whose value something else keeps writing to Redis."""
    kept: int = 0
    """Modes and overrides in Redis that no command set, and that stay because they restrict."""
    waits_for: tuple[str, ...] = ()
    """Services that it cannot continue without, and cannot reach."""
    oldest_s: float = 0.0
    """Seconds for which the oldest of what it lags by has waited; memory only."""
    parts: int = 0
    """Parts of steps done since the process began, such as a run that was read; memory only."""
    statement_s: float = 0.0
    """Seconds for which Postgres has executed its statement, or held it at a lock; memory only."""
    degraded: str = ""
    """What it does less than it should, and why; memory: why it stores no vectors."""
    clock: str = ""
    """By how much its clock differs from a service's by more than five minutes; empty: not."""
    reason: str = ""
    """Why its start waits, if known; without passwords."""

    @property
    def waiting(self) -> str | None:
        """What it waits for, and why if known; None: nothing."""
        if not self.waits_for:
            return None
        return f"waits for {', '.join(self.waits_for)}" + (
            f": {self.reason}" if self.reason else ""
        )

    @property
    def has_work(self) -> bool:
        """Whether it should make progress: it starts up, or lags."""
        return not self.ready or any(lag > 0 for lag in self.lag.values())


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Report).decode


def encode_report(report: Report) -> bytes:
    """Return the JSON of a report."""
    return _encode(report)


def decode_report(raw: bytes) -> Report | None:
    """Return the report in `raw`; None where it is invalid."""
    try:
        return _decode(raw)
    except msgspec.DecodeError:
        return None


class Watchdog:
    """Detects from its reports that a process is silent, or makes no progress on its work.

    Call `observe` regularly: `why = watchdog.observe(now, report, cpu_wait_s)`. Time in which the
    process was ready to run and had no processor does not count: it is slow then, not stuck.
    """

    def __init__(self, stuck_after_s: float, longest_step_s: float = LONGEST_STEP_S) -> None:
        """`stuck_after_s`: seconds; 0: never. `longest_step_s`: most that an observation adds."""
        self._limit, self._longest_step_s = stuck_after_s, longest_step_s
        self._factor = START_FACTOR
        self._last: float | None = None
        self._cpu_wait_s = 0.0
        self._reported_at: int | None = None
        self._reached: dict[tuple[str, int], int] = {}
        self._silent_s = self._still_s = 0.0
        self._had_work = True

    def observe(self, now: float, report: Report | None, cpu_wait_s: float = 0.0) -> str | None:
        """Evaluate the newest report of the process, None before its first.

        `now`: seconds of a monotonic clock. `cpu_wait_s`: seconds for which the process has waited
        for a processor since it began. Returns why the process is stuck; None: it is not.
        """
        step = self._step(now, cpu_wait_s)
        self._silent_s += step
        at = None if report is None else report.at
        if at != self._reported_at:
            self._judge(report)
            self._reported_at, self._silent_s = at, 0.0
        return self._why_stuck(report)

    def _judge(self, report: Report | None) -> None:
        """Note whether a new report shows progress. Time in which none was due does not count."""
        if report is not None and (self._moved(report) or not _should_move(report)):
            self._still_s = 0.0
        elif self._had_work:
            self._still_s += self._silent_s
        self._had_work = report is None or _should_move(report)

    def _step(self, now: float, cpu_wait_s: float) -> float:
        """Return the seconds since the last observation in which the process could run."""
        passed_s = 0.0 if self._last is None else now - self._last
        waited_s = max(0.0, cpu_wait_s - self._cpu_wait_s)
        self._last, self._cpu_wait_s = now, cpu_wait_s
        return min(max(0.0, passed_s - waited_s), self._longest_step_s)

    def _why_stuck(self, report: Report | None) -> str | None:
        if self._limit <= 0:
            return None
        if report is not None and report.ready:
            self._factor = 1
        limit = self._limit * self._factor
        if self._silent_s > limit:
            return f"it has not reported for {self._silent_s:.0f} s"
        if report is None or self._still_s <= limit:
            return None
        if not report.ready:
            return f"it has not come nearer to its start for {self._still_s:.0f} s"
        behind = sum(report.lag.values())
        return f"it lags by {behind} records and has made no progress for {self._still_s:.0f} s"

    def _moved(self, report: Report) -> bool:
        """Return whether anything got further than ever before; repeating work does not count."""
        marks = {("opened", 0): report.opened, ("parts", 0): report.parts}
        marks |= {("done", partition): offset for partition, offset in report.done.items()}
        marks |= {("restored", partition): offset for partition, offset in report.restored.items()}
        further = {key: at for key, at in marks.items() if at > self._reached.get(key, -1)}
        self._reached |= further
        return bool(further)


def _should_move(report: Report) -> bool:
    waits = report.waits_for or report.statement_s >= LONG_STATEMENT_S
    return report.has_work and not waits
