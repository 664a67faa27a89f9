"""Runs one worker process: waits until its services answer, builds its app, runs it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, TypeAlias

import faust
import structlog

from agents.config import WorkerConfig
from agents.health.log_epoch_watch import LogWatch
from agents.health.probes import postgres_probe, redis_probe
from agents.health.reporter import BROKER, HealthReporter
from agents.health.stall_guard import SESSION_TIMEOUT_S
from agents.instance_name import Membership
from agents.join_conditions import HostUnfit, require_room, require_time
from agents.retry_delays import AT_START_S, delay_s
from agents.storage.daily_partitions import create_partitions
from headstart.kafka_producer import BrokerUnreachable
from processing.worker_report import MEMORY, PREDICTIONS, SPANS
from sinks.connections import reporting_lost_connections
from sinks.postgres.migrate import migrate
from sinks.postgres.permissions import REFUSED, PermissionMissing
from topics.catalogue import DECISIONS, MODELS, group_of
from topics.epoch import Epoch, LogInRecreation, read_epoch
from topics.kafka.admin import TopicsMissing, partition_counts

if TYPE_CHECKING:
    from agents.app import App

log = structlog.get_logger()

MakeApp: TypeAlias = "Callable[[WorkerConfig, Epoch], App]"


def _episodes() -> MakeApp:
    from agents.storage.agent import EPISODES, EVENTS_ONLY, sink_app

    return lambda config, epoch: sink_app(config, epoch, EPISODES if config.memory else EVENTS_ONLY)


def _history() -> MakeApp:
    from agents.storage.agent import HISTORY, sink_app

    return lambda config, epoch: sink_app(config, epoch, HISTORY)


def _thresholds() -> MakeApp:
    from agents.thresholds.agent import thresholds_app

    return thresholds_app


def _predictions() -> MakeApp:
    from agents.predictions.agent import predictions_app

    return predictions_app


def _spans() -> MakeApp:
    from agents.spans.agent import spans_app

    return spans_app


APPS: Final[dict[str, Callable[[], MakeApp]]] = {
    "episodes": _episodes,
    "thresholds": _thresholds,
    "history": _history,
    PREDICTIONS: _predictions,
    SPANS: _spans,
}
"""Imports what makes the app of each worker that reads Kafka; registered here and nowhere else. The
worker `memory` reads Postgres only: agents/memory/main.py."""

_WITHOUT_POSTGRES: Final = ("thresholds", PREDICTIONS)
"""Learning needs no Postgres."""
_WAITED_FOR: Final = (
    ConnectionError,
    TopicsMissing,
    LogInRecreation,
    PermissionMissing,
    HostUnfit,
)
"""Errors of the start that pass once a service, or an administrator, has done something."""
_COLLECT_S: Final = 10.0
_COLLECT_ALL_S: Final = 300.0
_COLLECTING_SHARE: Final = 0.001
"""Most of a worker's time that full collections may take."""
_PROBE_S: Final = 0.5
"""Longer than another worker takes to look whether it is held (agents/thresholds/adoption.py)."""
_NAME_S: Final = SESSION_TIMEOUT_S + 5.0
"""How long another member may keep the instance name, in case that it has ended."""


class DataDirectoryTaken(RuntimeError):
    """Another worker uses the data directory."""


class DataDirectoryNotWritable(RuntimeError):
    """The user of this process may not write to the data directory."""


class SpansTopicMissing(TopicsMissing):
    """The topic of spans does not exist; its owner is an OpenTelemetry Collector."""

    def __init__(self, topic: str, kafka: str) -> None:
        LookupError.__init__(
            self,
            f"the topic {topic} (HEADSTART_SPANS_TOPIC) does not exist on the broker at {kafka}; "
            "the Collector's Kafka exporter creates it with its first spans, or you do",
        )


def run_worker(name: str, config: WorkerConfig, *, spare: bool = False) -> int:
    """Run one worker until it ends; return its exit code.

    `spare`: first wait until the worker that uses the data directory ends.
    """
    run = _imported(name)  # first, so that a spare is ready when it gets the lock
    with contextlib.closing(_lock(config.data / "worker.lock", wait=spare)):
        return run(config)


def _imported(name: str) -> Callable[[WorkerConfig], int]:
    """Import the module that makes this worker, not those of the others; return what runs it."""
    if name == MEMORY:
        from agents.memory.main import run_memory

        return lambda config: asyncio.run(run_memory(config))
    make_app = APPS[name]()
    return lambda config: _run_app(name, config, make_app)


def _run_app(name: str, config: WorkerConfig, make_app: MakeApp) -> int:
    # Faust warns that it may not create topics, as intended.
    logging.getLogger("faust.transport.drivers.aiokafka").setLevel(logging.ERROR)
    health = _health(name, config)
    epoch, partitions = asyncio.run(_until_ready(name, config, health))
    # Until here `worker.retrying` reported its errors.
    logging.getLogger("aiokafka").setLevel(logging.WARNING)
    app = make_app(config, epoch)
    app.used_partitions = None if name == SPANS else epoch.partitions
    app.health = health
    health.attach(app, partitions)
    _collect_rarely()
    app.task(_collect)
    app.log_watch = LogWatch(config.kafka, epoch) if epoch.volatile else None
    worker = faust.Worker(
        app, loglevel="WARNING", quiet=True, redirect_stdouts=False, override_logging=False
    )
    worker.spinner = None  # it writes to the terminal even where there is none
    log.info("worker.started", worker=name, instance=config.instance, epoch=epoch.number)
    try:
        worker.execute_from_commandline()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def _health(name: str, config: WorkerConfig) -> HealthReporter:
    if name == SPANS:
        return HealthReporter(name, config, {}, needs=set())
    if name in _WITHOUT_POSTGRES:  # learning continues without Redis
        return HealthReporter(name, config, {"redis": redis_probe(config.redis)}, needs=set())
    return HealthReporter(
        name, config, {"postgres": postgres_probe(config.postgres)}, needs={"postgres"}
    )


def _collect_rarely() -> None:
    """Collect rarely: objects made per event have no cycles, and the rest is loaded by now."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


async def _collect() -> None:
    """Collect the young generations now and then, and all objects every few minutes.

    Python alone would do neither for long: `_collect_rarely`, and each collection here, put off its
    own. A closed client has cycles: the probes make some 45 such objects a second. One that lived
    for more than two collections is old, and keeps its sockets until all objects are collected.
    """
    last, every_s = time.monotonic(), _COLLECT_ALL_S
    while True:
        await asyncio.sleep(_COLLECT_S)
        begun = time.monotonic()
        if begun - last < every_s:
            gc.collect(1)
            continue
        gc.collect()
        last = time.monotonic()
        every_s = max(_COLLECT_ALL_S, (last - begun) / _COLLECTING_SHARE)


def _lock(path: Path, *, wait: bool) -> IO[str]:
    """Lock a data directory for as long as the process lives; the file holds its process id."""
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+")
        except PermissionError as error:
            raise DataDirectoryNotWritable(_not_writable(path, error)) from None
        try:
            _take(file, wait=wait)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip()
            file.close()
            raise DataDirectoryTaken(
                f"another worker (process {holder or 'unknown'}) runs on {path}; give this one "
                "its own --instance name"
            ) from None
        if _is_at(path, file):
            pid = f"{os.getpid()}\n".encode()
            with contextlib.suppress(OSError):  # a full disk; over what is there it needs no room
                os.truncate(file.fileno(), os.pwrite(file.fileno(), pid, 0))
            return file
        file.close()  # the directory was deleted meanwhile


def _take(file: IO[str], *, wait: bool) -> None:
    """Lock a file. Raises `BlockingIOError` unless `wait`, if it stays locked for `_PROBE_S`."""
    deadline = time.monotonic() + _PROBE_S
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def _not_writable(path: Path, error: PermissionError) -> str:
    """Return what forbids writing to `path`, or to its nearest folder that exists, and the fix."""
    folder = next(each for each in (path, *path.parents) if each.exists())
    user, group = os.getuid(), os.getgid()
    return (
        f"cannot write to {error.filename}: {folder} belongs to user {folder.stat().st_uid}, and "
        f"this process runs as user {user}; change the owner where the folder is (chown -R "
        f"{user}:{group}), or set HEADSTART_DATA to another"
    )


def _is_at(path: Path, file: IO[str]) -> bool:
    """Return whether a file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


async def _until_ready(
    name: str, config: WorkerConfig, health: HealthReporter
) -> tuple[Epoch, int]:
    """Return the log epoch, and the number of partitions of the worker's topic, once broker and
    Postgres answer; log each time what is missing."""
    async with health.running():
        attempt = 0
        while True:
            try:
                require_room(config.data)
                epoch = await read_epoch(config.kafka)
                partitions = await _prepared(name, config, health, epoch)
                if not epoch.volatile:  # the embedded broker takes any time, and
                    await _require_time(name, config)  # keeps members that have ended
                    await _require_own_name(name, config, health)
                    if await read_epoch(config.kafka) != epoch:  # all that may have taken minutes
                        continue
                return epoch, partitions
            except _WAITED_FOR as error:
                delay = delay_s(AT_START_S, attempt)
                log.warning("worker.retrying", worker=name, reason=str(error), retry_s=delay)
                health.wait_for(_missing(error), reason=" ".join(str(error).split()))
                if isinstance(error, HostUnfit):
                    await _leave_group(name, config)
                await asyncio.sleep(delay)
                attempt += 1


async def _prepared(name: str, config: WorkerConfig, health: HealthReporter, epoch: Epoch) -> int:
    """Return the number of partitions of the worker's topic, once it has what it needs."""
    if name == SPANS:
        return await _partitions_of(config.kafka, config.spans_topic)
    if name == PREDICTIONS:
        await _require_topics(config.kafka, {DECISIONS.name, MODELS.name})
    if name not in _WITHOUT_POSTGRES:
        health.wait_for("migration")  # no limit on its duration
        await _prepare_postgres(name, config.postgres)
    return epoch.partitions


async def _require_time(name: str, config: WorkerConfig) -> None:
    """Raise `ClockAhead` if the broker would refuse this host's time."""
    if name in _WITHOUT_POSTGRES:
        await require_time(config.kafka, "Redis", redis_probe(config.redis))
    elif name != SPANS:
        await require_time(config.kafka, "Postgres", postgres_probe(config.postgres))


async def _require_own_name(name: str, config: WorkerConfig, health: HealthReporter) -> None:
    """Raise `InstanceNameTaken` if another worker has this one's instance name."""
    said = False

    def wait(reason: str) -> None:
        nonlocal said
        if not said:
            log.warning("worker.retrying", worker=name, reason=reason, retry_s=_NAME_S)
        said = True
        health.wait_for(f"its instance name {config.instance}", reason=reason)

    await _membership(name, config).require_own_name(wait, _NAME_S)


def _membership(name: str, config: WorkerConfig) -> Membership:
    return Membership(config.kafka, group_of(name), config.instance, config.data)


async def _leave_group(name: str, config: WorkerConfig) -> None:
    """Let others have the partitions of this worker's predecessor, if the broker answers."""
    with contextlib.suppress(ConnectionError):
        if await _membership(name, config).leave():
            log.info("group.left", worker=name)


async def _partitions_of(kafka: str, topic: str) -> int:
    """Return the number of partitions of a topic of spans. Raises `SpansTopicMissing`."""
    found = (await partition_counts(kafka, [topic])).get(topic)
    if not found:
        raise SpansTopicMissing(topic, kafka)
    return found


async def _require_topics(kafka: str, names: set[str]) -> None:
    """Raise `TopicsMissing` if a topic does not exist: it is newer than the installation."""
    if missing := names - (await partition_counts(kafka, names)).keys():
        raise TopicsMissing(kafka, missing)


def _missing(error: Exception) -> str:
    if isinstance(error, HostUnfit):
        return error.lacks
    if isinstance(error, TopicsMissing | LogInRecreation):
        return "topics"
    return BROKER if isinstance(error, BrokerUnreachable) else "postgres"


async def _prepare_postgres(name: str, dsn: str) -> None:
    await migrate(dsn)
    if name != "episodes":
        return
    try:
        with reporting_lost_connections(dsn):
            await create_partitions(dsn)
    except REFUSED as error:
        raise PermissionMissing(dsn, error) from error
