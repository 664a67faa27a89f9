"""`headstart status`: shows the system's health, once or until it is healthy."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.support.options import HealthOptions, Json
from cli.support.output import FAILURE, echo, put, show_json, show_table

if TYPE_CHECKING:
    from console.inspection.health import HealthSummary
    from console.inspection.snapshot import SystemSnapshot
    from settings import LoadedSettings


def status(
    watch: Annotated[
        bool, typer.Option("--watch", help="Repeat, one line each time, until Ctrl-C.")
    ] = False,
    exit_when_ready: Annotated[
        bool, typer.Option("--exit-when-ready", help="Repeat until healthy, then exit with 0.")
    ] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two updates.")] = 2.0,
    timeout: Annotated[
        float | None,
        typer.Option(min=0, help="With --exit-when-ready: exit with 1 after this many seconds."),
    ] = None,
    workers: Annotated[
        bool, typer.Option(help="Whether workers must run on this data directory.")
    ] = True,
    *,
    options: HealthOptions,
    json: Json = False,
) -> None:
    """Show whether services and workers are healthy: a summary, then each of them.

    Exits with 0 if healthy, else with 1. `headstart doctor` checks more.

    Examples: headstart status; headstart status --exit-when-ready --timeout 60 && ./executor
    """
    from cli.support.targets import target_of
    from console.inspection.health import assess
    from console.inspection.snapshot import SystemObserver
    from processing.worker_report import WORKERS

    if timeout is not None and not exit_when_ready:
        raise typer.BadParameter("--timeout is for --exit-when-ready")
    expected = WORKERS if workers else ()
    until = None if timeout is None else time.monotonic() + timeout

    async def run() -> HealthSummary:
        while True:
            # Read each time: a stack that is starting publishes its addresses when it is up.
            reading = options.load()
            snapshot = await SystemObserver(target_of(reading.settings), contexts=False).take()
            summary = _without_stack(assess(snapshot, workers=expected), snapshot, reading)
            ended = summary.healthy if exit_when_ready else not watch
            if ended or (until is not None and time.monotonic() > until):
                _show(snapshot, summary, json=json)
                return summary
            _echo_or_print(str(summary), data=watch and not json)
            await asyncio.sleep(every)

    if not asyncio.run(run()).healthy:
        raise typer.Exit(FAILURE)


def _without_stack(
    summary: HealthSummary, snapshot: SystemSnapshot, reading: LoadedSettings
) -> HealthSummary:
    """Return how to start or name a system, if nothing answers at the default addresses."""
    from console.inspection.health import HealthSummary

    services = ("kafka", "postgres", "redis")
    defaults = all(reading.origins[each] == "default" for each in services)
    if not defaults or any(each.ok for each in snapshot.services):
        return summary
    return HealthSummary(
        (
            f"no `headstart up` runs on {reading.settings.data}, and nothing answers at the "
            "default addresses: start it, or name the directory (--data) or your services "
            "(--kafka, --postgres, --redis)",
        )
    )


def _echo_or_print(line: str, *, data: bool) -> None:
    if data:
        put(line)
    else:
        echo(line)


def _show(snapshot: SystemSnapshot, summary: HealthSummary, *, json: bool) -> None:
    if json:
        show_json(described(snapshot, summary))
        return
    from topics.catalogue import DEAD_LETTERS

    put(summary)
    rows: list[tuple[Any, ...]] = [
        (each.service, each.address, each.error or f"answers in {each.took_ms:.0f} ms", "")
        if each.service != "kafka"
        else (each.service, each.address, each.error or "answers", "")
        for each in snapshot.services
    ]
    for worker in snapshot.workers:
        state = worker.trouble or "ready"
        rows.append(
            (f"worker {worker.name}", f"process {worker.pid}", state, f"lag {worker.lag:,}")
        )
        rows += [("", "", note, "") for note in (worker.clock, *worker.redis_notes) if note]
        if worker.degraded:
            rows.append(("", "", f"degraded: {worker.degraded}", ""))
    rows += [
        (group.group, group.topic, "behind" if group.total else "taken in", f"lag {group.total:,}")
        for group in snapshot.groups
    ]
    if snapshot.log:
        rows.append(("dead letters", DEAD_LETTERS.name, *_letters(snapshot.log.waiting_letters)))
    rows += [
        (f"lost by {worker.name}", f"process {worker.pid}", LOST, f"{worker.lost:,} records")
        for worker in snapshot.workers
        if worker.lost
    ]
    show_table(("what", "where", "state", ""), rows)


LOST: Final = "deleted by retention before they were taken in"


def _letters(waiting: int) -> tuple[str, str]:
    if not waiting:
        return "none", ""
    return "see `headstart dead-letters list`", f"{waiting:,} wait"


_WORKER_FIELDS: Final = (
    "instance", "pid", "running", "trouble", "age_s", "silent_s", "lag", "oldest_s", "degraded",
    "clock", "dead_letters", "lost",
)  # fmt: skip


def described(snapshot: SystemSnapshot, summary: HealthSummary) -> dict[str, Any]:
    """Return a snapshot as JSON fields."""
    return {
        "healthy": summary.healthy,
        "reasons": summary.reasons,
        "epoch": snapshot.log.epoch if snapshot.log else None,
        "services": {
            each.service: {"address": each.address, "version": each.version, "error": each.error}
            for each in snapshot.services
        },
        "workers": [
            {"worker": each.name}
            | {name: getattr(each, name) for name in _WORKER_FIELDS}
            | {
                "redis_repaired": dict(each.report.repaired) if each.report else {},
                "redis_contested": each.report.contested if each.report else 0,
                "redis_kept": each.report.kept if each.report else 0,
            }
            for each in snapshot.workers
        ],
        "dead_letters": snapshot.log.waiting_letters if snapshot.log else None,
        "memory": snapshot.memory._asdict() if snapshot.memory else None,
        "lag": {group.group: group.lag for group in snapshot.groups},
        "open_transactions": [
            {name: getattr(each, name) for name in ("topic", "partition", "offset", "records")}
            | {"age_s": each.age_s(snapshot.at)}
            for each in (snapshot.log.open if snapshot.log else ())
        ],
    }
