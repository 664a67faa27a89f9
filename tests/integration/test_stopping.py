"""Workers that are asked to end under load: in time, with what is done committed, and one after the
other without a long pause in thresholds.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from deploy.local import Addresses, Stack
from deploy.system import prepare
from headstart import Emitter
from headstart.keys import redis_key
from processing.worker_report import Report, decode_report
from tests import patience
from tests.patience import PATIENCE_S, STALLED
from tests.secured import environment, of_worker, reading, stack_config
from topics.kafka.groups import committed_offsets

Event = dict[str, Any]
Services = Callable[[str], Addresses]
PARTITIONS = 4
TYPES = [f"type-{number}" for number in range(8)]
GROUPS = {
    "episodes": ("headstart-episodes", "headstart.events"),
    "thresholds": ("headstart-thresholds", "headstart.events"),
    "history": ("headstart-history", "headstart.thresholds"),
}
LONGEST_STOP_S = 60
"""Nothing here is about speed: a supervisor, or Kubernetes, may give it 10."""


@contextmanager
def stream(kafka: str, tenant: str, judged: Callable[..., Event]) -> Iterator[list[Event]]:
    """Emit outcomes of every type steadily, from here to the end of the block."""
    events: list[Event] = []
    ended = threading.Event()
    emitter = Emitter(kafka)

    def run() -> None:
        while not ended.wait(0.02):
            for workflow_type in TYPES * 5:
                events.append(judged(tenant, workflow_type))
                emitter.emit(events[-1])

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield events
    finally:
        ended.set()
        thread.join()
        emitter.close()


class Announcements:
    """When thresholds of each workflow type were published, as executors receive it."""

    def __init__(self, redis: str, tenant: str) -> None:
        self.announced: dict[bytes, list[float]] = {}
        self._ended = threading.Event()
        self._redis = Redis.from_url(redis)
        self._channels = [redis_key(tenant, workflow_type) for workflow_type in TYPES]
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Announcements:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._redis.close()

    def _run(self) -> None:
        with self._redis.pubsub(ignore_subscribe_messages=True) as pubsub:
            pubsub.subscribe(*self._channels)
            while not self._ended.is_set():
                if message := pubsub.get_message(timeout=0.2):
                    self.announced.setdefault(message["channel"], []).append(time.monotonic())

    def everywhere_since(self, moment: float) -> bool:
        return len(self.announced) == len(TYPES) and all(
            times[-1] > moment for times in self.announced.values()
        )

    def longest_pause_s(self) -> float:
        return max(b - a for times in self.announced.values() for a, b in pairwise(times))


class Worker:
    """One worker process of an instance name; may be started again."""

    def __init__(self, launch: Callable[..., Any], at: Addresses, name: str, data: Path) -> None:
        self.name, self._launch, self._at, self._data = name, launch, at, data
        self._processes: list[Any] = []

    def start(self, instance: str = "0") -> None:
        at = of_worker(self.name, self._at)
        where = ("--kafka", at.kafka, "--postgres", at.postgres, "--redis", at.redis)
        more = ("--data", str(self._data), "--instance", instance)
        self._instance = instance
        self._folder = self._data / "workers" / f"{self.name}-{instance}"
        login = environment(self.name)
        self._processes.append(self._launch("worker", self.name, *where, *more, environment=login))

    def report(self) -> Report | None:
        """The newest of the process that runs or ran last."""
        path = self._folder / "progress"
        found = decode_report(path.read_bytes()) if path.exists() else None
        return found if found and found.pid == self._processes[-1].process.pid else None

    def ready(self) -> bool:
        report = self.report()
        return report is not None and report.ready

    def stop(self) -> float:
        """Ask it to end, see that it does so well; return the seconds it took."""
        if self._processes[-1].process.poll() == STALLED:
            self.start(self._instance)
            until(self.ready)
        begun = time.monotonic()
        assert self._processes[-1].end(signal.SIGTERM, LONGEST_STOP_S) == 0
        return time.monotonic() - begun

    def was_cut(self) -> bool:
        """Whether ending well took too long, and it just ended."""
        return "worker.shutdown_timeout" in self._processes[-1].err.read_text()

    def committed(self) -> dict[int, int]:
        group, topic = GROUPS[self.name]
        return asyncio.run(committed_offsets(self._at.kafka, group, topic, PARTITIONS))


def until(
    condition: Callable[[], bool], seconds: float = PATIENCE_S, workers: Sequence[Worker] = ()
) -> None:
    patience.until(condition, seconds, seen=lambda: [each.report() for each in workers])


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    """Start a broker, Postgres and Redis of this test's own."""
    stacks: list[Stack] = []

    def start(kafka: str) -> Addresses:
        stacks.append(Stack(stack_config(data=tmp_path / "stack", kafka=kafka)))
        asyncio.run(prepare(stacks[0].start(), PARTITIONS))
        return stacks[0].addresses

    yield start
    for stack in stacks:
        stack.stop()


@pytest.fixture
def worker(launch: Callable[..., Any], tmp_path: Path) -> Callable[[Addresses, str], Worker]:
    return lambda at, name: Worker(launch, at, name, tmp_path / "data")


@pytest.mark.integration
def test_each_worker_commits_what_is_done_when_asked_to_end(
    broker: str,
    services: Services,
    worker: Callable[[Addresses, str], Worker],
    tenant: str,
    judged: Callable[..., Event],
    capsys: pytest.CaptureFixture[str],
) -> None:
    at = services(broker)
    workers = [worker(at, name) for name in GROUPS]
    for each in workers:
        each.start()
    until(lambda: all(each.ready() for each in workers))
    with stream(at.kafka, tenant, judged):
        until(lambda: all(_has_done(each, 20) for each in workers), workers=workers)
        took = {each.name: round(each.stop(), 2) for each in workers}
    with capsys.disabled():
        print(f"\nstopped under load within (s): {took}")
    for each in workers:
        last = each.report()
        assert last is not None
        committed = each.committed()
        if each.was_cut():
            assert all(offset <= last.done[place] for place, offset in committed.items()), each.name
        else:
            assert committed == last.done, each.name


def _has_done(worker: Worker, records: int) -> bool:
    report = worker.report()
    return report is not None and sum(report.done.values()) > records


@pytest.mark.apache
@pytest.mark.integration
def test_a_rolling_restart_of_two_threshold_workers(
    services: Services,
    worker: Callable[[Addresses, str], Worker],
    tenant: str,
    judged: Callable[..., Event],
    counts: Callable[[Sequence[Event]], dict[str, int]],
    stored_at: Callable[[dict[str, Any], str], Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    at = services("apache")
    stored = stored_at(vars(at), tenant)
    both = {instance: worker(at, "thresholds") for instance in ("a", "b")}
    for instance, each in both.items():
        each.start(instance)
    until(lambda: all(each.ready() and _has_done(each, -1) for each in both.values()))
    took = []
    with (
        Announcements(reading(at), tenant) as announced,
        stream(at.kafka, tenant, judged) as events,
    ):
        begun = time.monotonic()
        until(lambda: announced.everywhere_since(0))
        for instance, each in both.items():
            took.append(round(each.stop(), 2))
            each.start(instance)
            until(each.ready)
            moment = time.monotonic()
            until(lambda m=moment: announced.everywhere_since(m))  # type: ignore[misc]
        enough = len(events) + 5_000
        until(lambda: len(events) > enough)
        rate = len(events) / (time.monotonic() - begun)
    stored.until(lambda: stored.counted(*TYPES) == counts(events))
    pause = announced.longest_pause_s()
    with capsys.disabled():
        print(
            f"\nrolling restart: stops {took} s, {rate:.0f} events/s, longest pause {pause:.1f} s"
        )
    assert pause < PATIENCE_S
