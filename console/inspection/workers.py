"""Finds workers by the reports in a data directory, or by their health endpoints.

Reads files only: trying a worker's lock could make a worker fail that starts at that moment.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from deploy.last_error import why_ended
from deploy.supervisor import health_address
from processing.worker_report import ALL_WORKERS, REPORT_FILE, WORKERS, Report, decode_report

SILENT_AFTER_S: Final = 10.0
"""A worker reports once a second; on a busy machine a few may be late."""
_REFUSED: Final = "refused.json"
"""Written when the dead-letter limits stop a worker (agents/dlq_limit_guard.py)."""
_HTTP_S: Final = 2.0


@dataclass(frozen=True)
class Worker:
    """A worker's last known state. Times in seconds.

    `age_s`: since it locked its data directory; `silent_s`: since its last report; None if
    unknown.
    """

    name: str
    instance: str
    pid: int
    running: bool
    report: Report | None
    age_s: float | None = None
    silent_s: float | None = None
    stuck: str | None = None
    refused: bool = False
    """Whether the dead-letter limits stopped it."""
    ended_by: str | None = None
    """The error that ended it, or its predecessor, before anything else was logged."""

    @property
    def lag(self) -> int:
        """Records after its last applied offsets, as reported by the worker."""
        return sum(self.report.lag.values()) if self.report else 0

    @property
    def dead_letters(self) -> int:
        """Records and events refused since it started."""
        return self.report.dead_letters if self.report else 0

    @property
    def lost(self) -> int:
        """Records deleted by retention before it read them, since it started."""
        return self.report.lost if self.report else 0

    @property
    def done(self) -> int:
        """Sum of applied offsets, which grows as the worker makes progress."""
        return sum(self.report.done.values()) if self.report else 0

    @property
    def redis_notes(self) -> list[str]:
        """Problems that it found in Redis."""
        if self.report is None:
            return []
        found = []
        # Values of an earlier log epoch, and marks of deletions, are this system's own.
        own = ("outdated", "expired")
        repaired = {name: n for name, n in self.report.repaired.items() if name not in own}
        if repaired:
            each = ", ".join(f"{name} {count:,}" for name, count in sorted(repaired.items()))
            found.append(f"replaced {sum(repaired.values()):,} values in Redis ({each})")
        if self.report.contested:
            found.append(f"{self.report.contested:,} values that something else keeps writing")
        if self.report.kept:
            found.append(f"{self.report.kept:,} modes or overrides that no command set")
        return found

    @property
    def degraded(self) -> str:
        """What it does less than it should, and why; empty: nothing."""
        return self.report.degraded if self.report else ""

    @property
    def clock(self) -> str:
        """By how much its clock differs from a service's; empty: not by much."""
        return self.report.clock if self.report else ""

    @property
    def oldest_s(self) -> float:
        """Seconds for which the oldest of its lag has waited, as reported; memory only."""
        return self.report.oldest_s if self.report else 0.0

    @property
    def trouble(self) -> str | None:
        """Its problem, or None."""
        if not self.running and self.refused:
            return (
                "has ended because too many records were refused: see its log, `headstart "
                "dead-letters list` and HEADSTART_REFUSED_RATIO"
            )
        if not self.running:
            return f"has ended: {self.ended_by}" if self.ended_by else "has ended"
        if self.stuck:
            return self.stuck
        if self.silent_s is not None and self.silent_s > SILENT_AFTER_S:
            return f"has not reported for {self.silent_s:.0f} s"
        if self.report is None or (not self.report.ready and not self.report.waits_for):
            again = f" again, after it ended: {self.ended_by}" if self.ended_by else ""
            return f"is starting{again}"
        if self.report.waiting:
            return self.report.waiting
        if self.report.away:
            return f"gets no answer from {', '.join(self.report.away)}"
        return None


def find_workers(
    data: Path, now: float | None = None, configured: Collection[str] = ()
) -> list[Worker]:
    """Return the workers of a data directory that have a report or a log, in order of their names.

    A worker that fails at start has only a log. An optional one that ended before all that run
    began is left out unless `configured` names it. `now`: Unix seconds, default: the clock.
    """
    moment, workers = time.time() if now is None else now, data / "workers"
    labels = {file.parent.name for file in workers.glob(f"*/{REPORT_FILE}")}
    labels |= {log.stem for log in workers.glob("logs/*.log") if not log.stem.endswith("-spare")}
    found, last = [], dict[str, float]()
    for label in labels:
        name, _, instance = label.partition("-")
        if name in ALL_WORKERS:
            file = workers / label / REPORT_FILE
            found.append(_worker(name, instance, file, moment))
            last[label] = _last_seen(file)
    ages = [each.age_s for each in found if each.running and each.age_s is not None]
    begun = moment - max(ages) if ages else 0.0
    kept = (*WORKERS, *configured)
    found = [
        each
        for each in found
        if each.name in kept or each.running or last[f"{each.name}-{each.instance}"] >= begun
    ]
    return sorted(found, key=lambda each: (ALL_WORKERS.index(each.name), each.instance))


def _last_seen(file: Path) -> float:
    """Return when a worker last reported or was started, in Unix seconds; 0: never."""
    started = file.parents[1] / "locks" / f"{file.parent.name}.lock"
    times = [0.0]
    for each in (file, file.with_name("worker.lock"), started):
        with contextlib.suppress(OSError):
            times.append(each.stat().st_mtime)
    return max(times)


def _worker(name: str, instance: str, file: Path, now: float) -> Worker:
    report, held, since = _report(file), 0, None
    try:
        lock = file.with_name("worker.lock")
        held, since = int(lock.read_text() or 0), lock.stat().st_mtime
    except (OSError, ValueError):
        pass  # it has not locked its directory or written its id yet
    pid = held or (report.pid if report else 0) or _spawned(file)
    mine = report is not None and report.pid == pid  # else its predecessor wrote the report
    running, own = _alive(pid), report if mine else None
    up = running and own is not None and own.ready
    return Worker(
        name,
        instance,
        pid,
        running,
        own,
        None if since is None else max(0.0, now - since),
        max(0.0, now - report.at / 1000) if report is not None and mine else None,
        refused=file.with_name(_REFUSED).exists(),
        ended_by=None if up else why_ended(file.parents[1], f"{name}-{instance}"),
    )


def _spawned(file: Path) -> int:
    """Return the process that a supervisor started last, or 0."""
    try:
        return int((file.parents[1] / "locks" / f"{file.parent.name}.lock").read_text() or 0)
    except (OSError, ValueError):
        return 0


def _report(file: Path) -> Report | None:
    try:
        return decode_report(file.read_bytes())
    except OSError:
        return None


def _alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def ask_workers(health: str) -> list[Worker]:
    """Ask the health endpoints of workers, the first at `health`; return those that answer.

    Blocks for up to two seconds per worker.
    """
    found = []
    for place in range(len(ALL_WORKERS)):
        address = health_address(health, place)
        if (body := _healthz(address)) is None:
            continue
        report = msgspec.convert(
            {key: value for key, value in body.items() if key in Report.__struct_fields__},
            Report,
            strict=False,
        )
        stuck = None if body.get("ok", True) else str(body.get("why"))
        found.append(Worker(report.worker, address, report.pid, True, report, stuck=stuck))
    return found


def _healthz(address: str) -> dict[str, object] | None:
    try:
        with urllib.request.urlopen(f"http://{address}/healthz", timeout=_HTTP_S) as answer:
            raw = answer.read()
    except urllib.error.HTTPError as refused:  # 503 has a body too
        raw = refused.read()
    except (OSError, ValueError):
        return None
    try:
        body = json.loads(raw)
    except ValueError:
        return None
    return body if isinstance(body, dict) and "worker" in body else None
