"""`headstart status`: whether everything runs, once or until it does."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.support.options import Data, Health, Json, Kafka, Postgres, Redis
from cli.support.output import FAILURE, put, say, show_json, show_table

if TYPE_CHECKING:
    from console.inspection.health import HealthSummary
    from console.inspection.snapshot import SystemSnapshot
    from settings import LoadedSettings


def status(
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on, a line per look, until Ctrl-C.")
    ] = False,
    exit_when_ready: Annotated[
        bool, typer.Option("--exit-when-ready", help="Go on until all is well, then end with 0.")
    ] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="With --exit-when-ready: end with 1 after seconds.")
    ] = None,
    workers: Annotated[
        bool, typer.Option(help="Whether workers must run on this data directory.")
    ] = True,
    kafka: Kafka = None,
    postgres: Postgres = None,
    redis: Redis = None,
    data: Data = None,
    health: Health = None,
    json: Json = False,
) -> None:
    """Say whether services and workers are well: the verdict first, then each of them.

    Exits with 0 where all is well, with 1 where it is not. `headstart doctor` looks closer.

    Examples: headstart status; headstart status --exit-when-ready --timeout 60 && ./executor
    """
    from cli.support.targets import target_of
    from console.inspection.health import assess
    from console.inspection.snapshot import SystemObserver
    from processing.worker_report import WORKERS
    from settings import read_with_origins

    if timeout is not None and not exit_when_ready:
        raise typer.BadParameter("--timeout is for --exit-when-ready")
    given = {"kafka": kafka, "postgres": postgres, "redis": redis, "data": data, "health": health}
    expected = WORKERS if workers else ()
    until = None if timeout is None else time.monotonic() + timeout

    async def run() -> HealthSummary:
        while True:
            # Each time anew: a stack that starts now says where it is when it is there.
            reading = read_with_origins(**given)
            look = await SystemObserver(target_of(reading.settings), contexts=False).look()
            verdict = _without_stack(assess(look, workers=expected), look, reading)
            ended = verdict.healthy if exit_when_ready else not watch
            if ended or (until is not None and time.monotonic() > until):
                _show(look, verdict, json=json)
                return verdict
            _say_or_print(str(verdict), data=watch and not json)
            await asyncio.sleep(every)

    if not asyncio.run(run()).healthy:
        raise typer.Exit(FAILURE)


def _without_stack(
    verdict: HealthSummary, look: SystemSnapshot, reading: LoadedSettings
) -> HealthSummary:
    """Return what to say where no address is known but the defaults, at which nothing answers."""
    from console.inspection.health import HealthSummary

    services = ("kafka", "postgres", "redis")
    defaults = all(reading.origins[each] == "default" for each in services)
    if not defaults or any(each.ok for each in look.services):
        return verdict
    return HealthSummary(
        (
            f"no `headstart up` runs on {reading.settings.data}, and nothing answers at the "
            "default addresses: start it, or name the directory (--data) or your services "
            "(--kafka, --postgres, --redis)",
        )
    )


def _say_or_print(line: str, *, data: bool) -> None:
    if data:
        put(line)
    else:
        say(line)


def _show(look: SystemSnapshot, verdict: HealthSummary, *, json: bool) -> None:
    if json:
        show_json(described(look, verdict))
        return
    from topics.catalogue import DEAD_LETTERS

    put(verdict)
    rows: list[tuple[Any, ...]] = [
        (each.service, each.address, each.error or f"answers in {each.took_ms:.0f} ms", "")
        if each.service != "kafka"
        else (each.service, each.address, each.error or "answers", "")
        for each in look.services
    ]
    for worker in look.workers:
        state = worker.trouble or "ready"
        rows.append(
            (f"worker {worker.name}", f"process {worker.pid}", state, f"lag {worker.lag:,}")
        )
        rows += [("", "", note, "") for note in worker.redis_notes]
    rows += [
        (group.group, group.topic, "behind" if group.total else "taken in", f"lag {group.total:,}")
        for group in look.groups
    ]
    if look.log:
        rows.append(("dead letters", DEAD_LETTERS.name, *_letters(look.log.waiting_letters)))
    rows += [
        (f"lost by {worker.name}", f"process {worker.pid}", LOST, f"{worker.lost:,} records")
        for worker in look.workers
        if worker.lost
    ]
    show_table(("what", "where", "state", ""), rows)


LOST: Final = "deleted by retention before they were taken in"


def _letters(waiting: int) -> tuple[str, str]:
    if not waiting:
        return "none", ""
    return "see `headstart dead-letters list`", f"{waiting:,} wait"


def described(look: SystemSnapshot, verdict: HealthSummary) -> dict[str, Any]:
    """Return a look as JSON shows it."""
    return {
        "healthy": verdict.healthy,
        "reasons": verdict.reasons,
        "epoch": look.log.epoch if look.log else None,
        "services": {
            each.service: {"address": each.address, "version": each.version, "error": each.error}
            for each in look.services
        },
        "workers": [
            {
                "worker": each.name,
                "instance": each.instance,
                "pid": each.pid,
                "running": each.running,
                "trouble": each.trouble,
                "age_s": each.age_s,
                "silent_s": each.silent_s,
                "lag": each.lag,
                "dead_letters": each.dead_letters,
                "lost": each.lost,
                "redis_repaired": dict(each.report.repaired) if each.report else {},
                "redis_contested": each.report.contested if each.report else 0,
                "redis_kept": each.report.kept if each.report else 0,
            }
            for each in look.workers
        ],
        "dead_letters": look.log.waiting_letters if look.log else None,
        "lag": {group.group: group.lag for group in look.groups},
        "open_transactions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "offset": each.offset,
                "records": each.records,
                "age_s": each.age_s(look.at),
            }
            for each in (look.log.open if look.log else ())
        ],
    }
