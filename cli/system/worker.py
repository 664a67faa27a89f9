"""`headstart worker`: runs one worker in this process, or all under supervision."""

from __future__ import annotations

import signal
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from cli.support.options import LearnerOptions
from cli.support.output import echo
from cli.support.stop_signals import SignalFlag

if TYPE_CHECKING:
    from settings import Settings


class Name(StrEnum):
    """Names of the workers."""

    EPISODES = "episodes"
    THRESHOLDS = "thresholds"
    HISTORY = "history"
    PREDICTIONS = "predictions"
    MEMORY = "memory"
    SPANS = "spans"
    ALL = "all"


def worker(
    name: Annotated[Name, typer.Argument(help="Which worker; all: one supervised child each.")],
    instance: Annotated[
        str | None, typer.Option(help="Name within the group, one per process [default: 0].")
    ] = None,
    health: Annotated[
        str | None,
        typer.Option(
            help="Answer /healthz and /readyz at host:port [default: off]; all: episodes there, "
            "thresholds at port + 1, history at port + 2, predictions at port + 3, "
            "memory at port + 4, spans at port + 5."
        ),
    ] = None,
    stuck_after_s: Annotated[
        float | None,
        typer.Option(help="Seconds without progress that make it stuck [default: 30]; 0: never."),
    ] = None,
    spare: Annotated[
        bool,
        typer.Option("--spare", help="Wait, loaded, until the worker of this data directory ends."),
    ] = False,
    watched: Annotated[
        bool,
        typer.Option(
            "--watched",
            help="Run it in a child process, and end both if it is stuck. For container engines, "
            "which restart what ends.",
        ),
    ] = False,
    *,
    options: LearnerOptions,
) -> None:
    """Run a worker: events to Postgres, outcomes to thresholds, decisions to shared models.

    It waits for its services with back-off and logs which are missing. On SIGTERM it commits its
    progress and exits. all: workers that end or are stuck are restarted; a spare threshold worker
    waits to take over at once. memory makes episodes of stored events; it needs Postgres only, and
    HEADSTART_MEMORY=false leaves it out. spans makes events of an OpenTelemetry Collector's spans:
    it needs HEADSTART_SPANS_TOPIC; all includes it if that is set.

    Examples: headstart worker thresholds --instance b; headstart worker all;
    headstart worker all --health 127.0.0.1:8080
    """

    settings = options.read(instance=instance, health=health, stuck_after_s=stuck_after_s)
    if name is Name.SPANS and not settings.spans_topic:
        raise typer.BadParameter(
            "the worker spans needs a topic: set HEADSTART_SPANS_TOPIC, for example to otlp_spans"
        )
    if watched and (spare or name is Name.ALL):
        raise typer.BadParameter("--watched is for one worker that is not a spare")
    if name is Name.ALL:
        _supervise(settings)
    elif watched:
        raise typer.Exit(_watch(name.value, settings))
    else:
        raise typer.Exit(_run(name.value, settings, spare=spare))


def _run(name: str, settings: Settings, *, spare: bool) -> int:
    from cli.support.logs import configure_worker_logs
    from deploy.process_priority import BACKGROUND, FOREGROUND, add_niceness

    configure_worker_logs()
    add_niceness(FOREGROUND if name == Name.THRESHOLDS.value else BACKGROUND)
    from agents.config import WorkerConfig
    from agents.worker import run_worker
    from processing.records.dlq_limits import DlqLimits
    from settings import embedding_of, retention_of, rules_of, writes_of

    config = WorkerConfig(
        kafka=settings.kafka,
        postgres=settings.postgres,
        redis=settings.redis,
        data=settings.data / "workers" / f"{name}-{settings.instance}",
        rules=rules_of(settings),
        instance=settings.instance,
        limits=DlqLimits(settings.refused_ratio, settings.refused_window, settings.refused_run),
        stuck_after_s=settings.stuck_after_s,
        health=settings.health,
        memory=settings.memory,
        embedding=embedding_of(settings),
        pack_after_days=settings.pack_after_days,
        retention=retention_of(settings),
        writes=writes_of(settings),
        spans_topic=settings.spans_topic,
        weigh_floods=settings.weigh_floods,
        notices_days=settings.notices_days,
        retrievals_days=settings.retrievals_days,
        check_redis_s=settings.check_redis_s,
        deletion_marks_s=settings.deletion_marks_s,
    )
    return run_worker(name, config, spare=spare)


def _watch(name: str, settings: Settings) -> int:
    from cli.support.logs import configure_worker_logs
    from deploy.watched_worker import run_watched
    from settings import environment

    configure_worker_logs()
    data = settings.data / "workers" / f"{name}-{settings.instance}"
    return run_watched(name, data, environment(settings), settings.stuck_after_s)


def _supervise(settings: Settings) -> None:
    from deploy.supervisor import Supervisor
    from settings import environment

    ended = SignalFlag()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    supervisor = Supervisor(settings.data / "workers", environment(settings))
    supervisor.start()
    echo(f"workers: {', '.join(f'{k} (pid {v})' for k, v in supervisor.pids.items())}")
    try:
        while not ended.wait(0.5):
            for line in supervisor.check():
                echo(line)
    finally:
        supervisor.stop()
