"""Workers that are killed or asked to end in mid-stream: nothing lost, nothing double."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from deploy.system import System
from headstart import Emitter
from headstart.keys import DEFAULT_PATH
from processing.worker_report import REPORT_FILE, decode_report
from tests.integration.supervision import until
from tests.niceness import check_niceness, foreground
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

Event = dict[str, Any]
TYPES = [f"type-{number}" for number in range(8)]


@contextmanager
def stream(kafka: str, tenant: str, judged: Callable[..., Event]) -> Iterator[list[Event]]:
    """Emit outcomes steadily from here to the end of the block."""
    events: list[Event] = []
    ended = threading.Event()
    emitter = Emitter(kafka)

    def run() -> None:
        while not ended.wait(0.01):
            for workflow_type in TYPES:
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


def test_each_worker_killed_in_mid_stream(
    system: System,
    stored: Any,
    tenant: str,
    judged: Callable[..., Event],
    counts: Callable[[Sequence[Event]], dict[str, int]],
    messages: list[str],
) -> None:
    assert system.supervisor is not None
    before = dict(system.supervisor.pids)
    restarts = system.supervisor.restarts
    with stream(system.addresses.kafka, tenant, judged) as events:
        for name, pid in before.items():
            seen = len(events)
            # Each is at work when it is killed: something of this stream has been taken in.
            until(system, lambda: bool(stored.counted(*TYPES)) and bool(stored.ids()))
            until(system, lambda seen=seen: len(events) >= seen + 400)
            os.kill(pid, signal.SIGKILL)
            until(
                system,
                lambda n=name: any(f"worker {n} was ended by SIGKILL" in s for s in messages),
            )
        until(system, lambda: system.supervisor.restarts >= restarts + 3)  # type: ignore[union-attr]
        until(system, lambda: system.supervisor.ready)  # type: ignore[union-attr]
    assert not set(before.values()) & set(system.supervisor.pids.values())
    assert system.drain(PATIENCE_S)
    assert stored.ids() == sorted(event["id"] for event in events)
    assert stored.counted(*TYPES) == counts(events)
    history = stored.query(
        'SELECT path, max("offset"), count(*) FROM threshold_history WHERE tenant = %s GROUP BY 1',
        tenant,
    )
    served = stored.served(*TYPES, "")
    default = {DEFAULT_PATH}  # is learned every so often, whatever comes: here or not yet
    assert {path for path, _offset, _count in history} | default == served.keys() | default
    assert all(offset <= served[path]["offset"] for path, offset, _count in history)


def test_serving_workers_stop_first_and_storing_ones_last(system: System) -> None:
    assert system.supervisor is not None
    until(system, lambda: system.supervisor.ready)  # type: ignore[union-attr]
    own = os.getpriority(os.PRIO_PROCESS, 0)
    ahead = foreground()
    for name, pid in system.supervisor.pids.items():
        check_niceness(pid, min(own + (ahead if name == "thresholds" else 10), 19))


def test_storing_workers_load_after_serving_ones(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.supervisor._FIRST_S", 120.0)
    supervisor = system.supervisor
    assert supervisor is not None
    until(system, lambda: supervisor.ready and supervisor.spared)
    before, workers = supervisor.pids, system.data / "workers"
    for lock in (workers / "locks").glob("thresholds-*"):  # the worker and its spare
        os.kill(int(lock.read_text()), signal.SIGKILL)
    os.kill(before["history"], signal.SIGKILL)
    until(system, lambda: supervisor.pids["history"] != before["history"])
    report = decode_report((workers / "thresholds-0" / REPORT_FILE).read_bytes())
    assert report is not None
    assert report.ready
    assert report.pid == supervisor.pids["thresholds"] != before["thresholds"]
    until(system, lambda: supervisor.ready)


def test_a_spare_takes_over_from_a_killed_worker(
    system: System,
    stored: Any,
    tenant: str,
    judged: Callable[..., Event],
    counts: Callable[[Sequence[Event]], dict[str, int]],
    messages: list[str],
) -> None:
    supervisor = system.supervisor
    assert supervisor is not None
    until(system, lambda: supervisor.ready and supervisor.spared)
    with stream(system.addresses.kafka, tenant, judged) as events:
        until(system, lambda: bool(stored.counted(*TYPES)))
        killed = supervisor.pids["thresholds"]
        messages.clear()
        os.kill(killed, signal.SIGKILL)
        until(system, lambda: supervisor.pids["thresholds"] != killed)
        (line,) = [each for each in messages if each.startswith("worker thresholds ")]
        assert f"its spare (pid {supervisor.pids['thresholds']}) takes over" in line
        until(system, lambda: supervisor.ready)
        until(system, lambda: supervisor.spared)
    assert system.drain(PATIENCE_S)
    assert stored.counted(*TYPES) == counts(events)


def test_each_worker_ends_well_when_asked(
    system: System,
    stored: Any,
    tenant: str,
    judged: Callable[..., Event],
    counts: Callable[[Sequence[Event]], dict[str, int]],
    messages: list[str],
) -> None:
    assert system.supervisor is not None
    messages.clear()
    restarts = system.supervisor.restarts
    with stream(system.addresses.kafka, tenant, judged) as events:
        until(system, lambda: bool(stored.counted(*TYPES)) and bool(stored.ids()))
        pids = dict(system.supervisor.pids)
        for pid in pids.values():
            os.kill(pid, signal.SIGTERM)
        until(system, lambda: len(messages) >= len(pids))
        until(system, lambda: system.supervisor.restarts >= restarts + len(pids))  # type: ignore[union-attr]
        until(system, lambda: system.supervisor.ready)  # type: ignore[union-attr]
    for name in pids:
        assert any(f"worker {name} ended with exit code 0" in line for line in messages), messages
    assert system.drain(PATIENCE_S)
    assert stored.ids() == sorted(event["id"] for event in events)
    assert stored.counted(*TYPES) == counts(events)
