"""Suspended workers: ended by the supervisor and started again; nothing lost or double."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from deploy.system import System
from headstart import Emitter
from tests.patience import PATIENCE_S, STALLED, until
from tests.secured import stack_config

pytestmark = [pytest.mark.integration, pytest.mark.slow]

Event = dict[str, Any]
STUCK_AFTER_S = 30.0
TYPES = [f"type-{number}" for number in range(4)]


class Watched:
    """A system of the test's own, quick to take a worker for stuck."""

    def __init__(
        self, system: System, messages: list[str], emit: Callable[[], list[Event]]
    ) -> None:
        assert system.supervisor is not None
        self.system, self.messages, self.emit = system, messages, emit
        self.supervisor = system.supervisor

    @property
    def stalled(self) -> int:
        """How often a worker that got no CPU for a session has ended itself."""
        return sum(f"ended with exit code {STALLED}" in line for line in self.messages)

    def until(self, condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
        """Watch over it, which starts workers again, until the condition holds."""
        until(condition, seconds, 0.1, meanwhile=self.system.check, seen=lambda: self.messages)


@pytest.fixture
def watched(
    broker: str, tmp_path: Path, tenant: str, judged: Callable[..., Event]
) -> Iterator[Watched]:
    messages: list[str] = []
    environment = {"HEADSTART_STUCK_AFTER_S": str(STUCK_AFTER_S)}
    config = stack_config(data=tmp_path / "system", kafka=broker)
    with System(config, partitions=2, environment=environment, echo=messages.append) as system:

        def emit() -> list[Event]:
            events = [judged(tenant, each) for each in TYPES for _ in range(100)]
            with Emitter(system.addresses.kafka) as emitter:
                for event in events:
                    emitter.emit(event)
            return events

        yield Watched(system, messages, emit)


def test_stopped_workers_are_ended_and_started_again(
    watched: Watched,
    counts: Callable[[Sequence[Event]], dict[str, int]],
    stored_at: Callable[[dict[str, Any], str], Any],
    tenant: str,
) -> None:
    supervisor, messages = watched.supervisor, watched.messages
    stored = stored_at(vars(watched.system.addresses), tenant)
    events = watched.emit()
    watched.until(lambda: bool(stored.counted(*TYPES)) and bool(stored.ids()))
    assert watched.system.drain(PATIENCE_S)  # or "it lags" may be printed first
    before = dict(supervisor.pids)
    for pid in before.values():
        os.kill(pid, signal.SIGSTOP)
    events += watched.emit()
    watched.until(
        lambda: all(any(f"worker {n} is stuck" in line for line in messages) for n in before)
    )
    watched.until(lambda: supervisor.restarts >= len(before) and supervisor.ready)
    for name in before:
        assert any(f"worker {name} is stuck: it has not reported" in line for line in messages), (
            messages
        )
        assert any(f"worker {name} was ended by SIGKILL" in line for line in messages), messages
    assert not set(before.values()) & set(supervisor.pids.values())
    assert watched.system.drain(PATIENCE_S)
    assert stored.ids() == sorted(event["id"] for event in events)
    assert stored.counted(*TYPES) == counts(events)
    ended = sum("is stuck" in line for line in messages)  # a starved machine may end one twice
    assert supervisor.restarts == ended + watched.stalled, messages


def test_lag_without_progress_is_noticed_although_everything_answers(
    watched: Watched, stored_at: Callable[[dict[str, Any], str], Any], tenant: str
) -> None:
    supervisor, messages = watched.supervisor, watched.messages
    stored = stored_at(vars(watched.system.addresses), tenant)
    with psycopg.connect(watched.system.addresses.postgres) as connection:
        # The sink's transaction waits for as long as this one lasts; Postgres answers all others.
        connection.execute("LOCK TABLE episodic_events IN ACCESS EXCLUSIVE MODE")
        events = watched.emit()
        watched.until(lambda: any("episodes is stuck: it lags by" in line for line in messages))
    watched.until(lambda: supervisor.restarts >= 1 and supervisor.ready)
    assert watched.system.drain(PATIENCE_S)
    assert stored.ids() == sorted(event["id"] for event in events)
    assert supervisor.restarts == 1 + watched.stalled, messages
