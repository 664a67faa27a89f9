"""Reports a worker's health: a file written once a second, and HTTP endpoints if configured.

processing/worker_report.py decides when a worker is stuck; agents/health/http.py has the endpoints.
A stuck worker is ended from outside (deploy/supervisor.py, or a liveness probe): one that hangs
cannot end itself.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Protocol

import structlog

from agents.config import WorkerConfig
from agents.fatal import exit_fatally
from agents.health.http import serving
from agents.health.metrics import Exposition, Values, WorkerCounts, values
from agents.health.probes import LogEnds, Probe, ProbeAnswer, asked
from agents.join_conditions import CLOCK_S
from headstart.scrubbing.masking import masked
from processing.worker_report import REPORT_FILE, Report, Watchdog, encode_report

BROKER: Final = "broker"
REPORT_S: Final = 1.0
PROBE_S: Final = 5.0
"""How often the services are probed."""
log = structlog.get_logger()


class ReportedAgent(Protocol):
    """What is reported of an agent; see `agents.config.PartitionAgent`."""

    counts: WorkerCounts

    def away(self) -> set[str]:
        """Return the services that its own work cannot reach."""
        ...


class ReportedApp(Protocol):
    """The app whose progress is reported; see `agents.app.App`."""

    source_topics: frozenset[str]
    ready: bool
    opened: int

    @property
    def runtime(self) -> ReportedAgent:
        """What does the work."""
        ...

    def progress(self) -> dict[int, int]:
        """Return the offset below which everything took effect, by partition."""
        ...

    def restored(self) -> dict[int, int]:
        """Return the changelog offset that the table has reached while it is restored."""
        ...


class WatchedWork(Protocol):
    """What a worker works off, and a service that says how much that is; see `LogEnds`."""

    async def ask(self) -> None:
        """Ask the service. Raises its errors."""
        ...

    def lag(self, done: Mapping[int, int], /) -> dict[int, int]:
        """Return how much is left beyond each offset of `done`."""
        ...

    def held_back(self, done: Mapping[int, int], /) -> dict[int, int]:
        """Return what cannot be worked off yet."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


class HealthReporter:
    """Reports the health of one worker, from its first second on."""

    def __init__(
        self,
        worker: str,
        config: WorkerConfig,
        probes: Mapping[str, Probe],
        needs: set[str],
        *,
        source: str = BROKER,
    ) -> None:
        """`probes`: by service, besides `source`, from which its work comes.

        `needs`: those it cannot run without, besides the source.
        """
        self._worker, self._config = worker, config
        self._file = config.data / REPORT_FILE
        self._writing = threading.Lock()
        self._full = False
        # A process without a processor observes itself rarely: that time is not its fault.
        self._watchdog = Watchdog(config.stuck_after_s, longest_step_s=2 * REPORT_S)
        self._source = source
        self._probes, self._needs = probes, {source, *needs}
        self._away: set[str] = set()
        self._clock = ""
        self._starting: tuple[str, ...] = ()
        self._reason = ""
        self._app: ReportedApp | None = None
        self._log: WatchedWork | None = None
        self._more: Callable[[], Mapping[str, Any]] = dict
        self._exposition: Exposition | None = None
        self.report = self._now()
        self.stuck: str | None = None
        """Why this worker is stuck; None if it is not."""

    def wait_for(self, *what: str, reason: str = "") -> None:
        """Report what the start waits for, and why; without arguments: nothing any more."""
        self._starting, self._reason = what, masked(reason)
        self.write_report()

    def attach(self, app: ReportedApp, partitions: int) -> None:
        """Report the progress of `app` from now on."""
        (topic,) = app.source_topics
        self._app, self._starting, self._reason = app, (), ""
        self._log = LogEnds(self._config.kafka, topic, partitions)

    def attach_work(
        self, app: ReportedApp, work: WatchedWork, more: Callable[[], Mapping[str, Any]]
    ) -> None:
        """Report the progress of `app` in what is no log; `more`: further fields of the report."""
        self._app, self._starting, self._reason = app, (), ""
        self._log, self._more = work, more

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Report, and serve health checks, while the block lasts. Raises `AddressTaken`."""
        self.write_report()
        async with serving(self._config.health, self):
            loops = [asyncio.create_task(_every(REPORT_S, self._report))]
            if self._log is not None:
                loops.append(asyncio.create_task(_every(PROBE_S, self._probe)))
            try:
                yield
            finally:
                for loop in loops:
                    loop.cancel()
                await asyncio.gather(*loops, return_exceptions=True)
                if self._log is not None:
                    await self._log.close()
                self.write_report()  # the final progress

    def write_report(self) -> None:
        """Write the report, whole or not at all; a full disk does not end the worker."""
        self._observe()
        self._write()

    def _observe(self) -> None:
        self.report = self._now()
        self.stuck = self._watchdog.observe(time.monotonic(), self.report)

    def _write(self) -> None:
        with self._writing:
            fresh, report = self._file.with_name(f"{REPORT_FILE}.new"), encode_report(self.report)
            try:
                fresh.write_bytes(report)
                fresh.replace(self._file)
                self._full = False
            except OSError as error:
                if not self._full:
                    log.warning("health_report.disk_full", error=str(error))
                self._full = True
                self._write_over(report)

    def _write_over(self, report: bytes) -> None:
        """Overwrite the previous report: a full disk has no room for a second file."""
        with suppress(OSError), self._file.open("r+b", buffering=0) as file:
            before = file.read()
            file.seek(0)
            if file.write(report) < len(report):  # longer than the space of the file
                file.seek(0)
                file.write(before)
                report = before
            file.truncate(len(report))

    def metrics(self) -> bytes:
        """Return the worker's metrics, in Prometheus's text format."""
        if self._exposition is None:
            self._exposition = Exposition(self._values)
        return self._exposition.text()

    def _values(self) -> list[Values]:
        counts = WorkerCounts() if self._app is None else self._app.runtime.counts
        return values(self.report, self.stuck, {self._source, *self._probes}, counts)

    async def _report(self) -> None:
        self._observe()
        # In a thread: replacing a file may take a busy disk 15 ms.
        await asyncio.to_thread(self._write)

    async def _probe(self) -> None:
        assert self._log is not None
        probes: dict[str, Probe] = {self._source: self._log.ask, **self._probes}
        answers = await asyncio.gather(*(asked(probe) for probe in probes.values()))
        found = dict(zip(probes, answers, strict=True))
        self._compare_clocks(found)
        away = {name for name, answer in found.items() if not answer.there}
        for name in sorted(away - self._away):
            log.warning("service.unavailable", service=name)
        for name in sorted(self._away - away):
            log.info("service.available", service=name)
        self._away = away

    def _compare_clocks(self, found: Mapping[str, ProbeAnswer]) -> None:
        """Note by how much the clock of this host differs from that of a service."""
        known = {name: each.ahead_s for name, each in found.items() if each.ahead_s is not None}
        if not known:
            return
        name, ahead_s = max(known.items(), key=lambda each: abs(each[1]))
        clock = ""
        if abs(ahead_s) > CLOCK_S:
            side = "ahead of" if ahead_s > 0 else "behind"
            clock = f"its clock is {abs(ahead_s) / 60:.0f} minutes {side} that of {name}"
        if clock and not self._clock:
            log.warning("clock.differs", service=name, ahead_s=round(ahead_s))
        elif self._clock and not clock:
            log.info("clock.agrees", service=name)
        self._clock = clock

    def _now(self) -> Report:
        more: dict[str, Any] = {}
        away = self._away
        if self._app is not None and self._log is not None:
            done, counts = self._app.progress(), self._app.runtime.counts
            away = away | self._app.runtime.away()
            more = {
                "ready": self._app.ready,
                "done": done,
                "lag": self._log.lag(done),
                "held_back": self._log.held_back(done),
                "restored": self._app.restored(),
                "opened": self._app.opened,
                "dead_letters": counts.dead_letters,
                "lost": counts.lost,
                "repaired": {reason: n for reason, n in counts.repaired.items() if n},
                "contested": counts.contested,
                "kept": counts.kept,
                **self._more(),
            }
        return Report(
            worker=self._worker,
            pid=os.getpid(),
            at=time.time_ns() // 1_000_000,
            away=tuple(sorted(away)),
            waits_for=(*self._starting, *sorted(away & self._needs)),
            reason=self._reason,
            clock=self._clock,
            **more,
        )


async def _every(interval_s: float, work: Callable[[], Awaitable[None]]) -> None:
    """Call `work` at intervals, beginning now; an error in it ends the process."""
    try:
        while True:
            await work()
            await asyncio.sleep(interval_s)
    except Exception as error:
        exit_fatally("health", error)
