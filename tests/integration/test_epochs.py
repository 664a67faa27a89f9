"""`headstart up`, ended and started again on its data directory: it goes on where it was."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.processes import wait_gone
from tests.secured import addresses_of, up_options

pytestmark = pytest.mark.integration

Event = dict[str, Any]
TYPES = ["type-0", "type-1", "type-2"]


class Lives:
    """One data directory and the systems that run on it one after the other."""

    def __init__(self, data: Path, broker: str, launch: Callable[..., Any], headstart: Any) -> None:
        self.data, self._broker = data, broker
        self._launch, self.headstart = launch, headstart
        self.emitted: list[Event] = []
        self.epochs: list[int] = []

    def up(self) -> tuple[Any, dict[str, Any]]:
        options = ["--data", self.data, "--partitions", "2", "--json"]
        running = self._launch("up", *up_options(self.data, self._broker), *options)
        ready = json.loads(running.until('"epoch"').splitlines()[-1])
        self.epochs.append(ready["epoch"])
        return running, ready | vars(addresses_of(self.data))

    def emit(self, events: Sequence[Event], file: Path) -> None:
        ended = self.headstart("emit", file, "--data", self.data, "--json")
        assert json.loads(ended.stdout) == {"emitted": len(events), "refused": 0}, ended.stderr
        self.emitted.extend(events)


@pytest.fixture
def lives(broker: str, launch: Callable[..., Any], headstart: Any, tmp_path: Path) -> Lives:
    if broker not in ("embedded", "apache"):
        pytest.skip("a broker that runs already is not restarted")
    return Lives(tmp_path / "data", broker, launch, headstart)


@pytest.fixture
def emit(
    lives: Lives,
    judged: Callable[..., Event],
    write_events: Callable[[Sequence[Event]], Path],
    tenant: str,
) -> Callable[[int], None]:
    def emit(number: int) -> None:
        events = [judged(tenant, TYPES[place % 3]) for place in range(number)]
        lives.emit(events, write_events(events))

    return emit


@pytest.fixture
def check(
    lives: Lives,
    counts: Callable[[Sequence[Event]], dict[str, int]],
    stored_at: Callable[[dict[str, Any], str], Any],
    tenant: str,
) -> Callable[[dict[str, Any]], None]:
    """Nothing lost, nothing double, and what is served is of the log epoch in force."""

    def check(at: dict[str, Any]) -> None:
        stored = stored_at(at, tenant)
        stored.until(
            lambda: (
                stored.ids() == sorted(event["id"] for event in lives.emitted)
                and stored.counted(*TYPES) == counts(lives.emitted)
            ),
        )
        served = {value["epoch"] for value in stored.served(*TYPES).values()}
        assert served == {lives.epochs[-1]}

    return check


def test_stop_and_start_kill_and_start(
    broker: str,
    lives: Lives,
    emit: Callable[[int], None],
    check: Callable[[dict[str, Any]], None],
) -> None:
    # Stopped well: what was emitted is taken in before the broker forgets it.
    running, _ = lives.up()
    emit(300)
    assert running.end(signal.SIGINT) == 0
    running, at = lives.up()
    emit(200)
    check(at)

    again = lives.headstart("up", "--data", lives.data)
    assert again.returncode == 1
    assert f"{at['kafka']}" in again.stderr
    assert len(again.stderr.strip().splitlines()) <= 2

    # Killed: no process is left, and the next one works.
    children = running.descendants()
    assert len(children) >= 6, "broker, Postgres, Redis and three workers"
    running.end(signal.SIGKILL)
    wait_gone(children)
    running, at = lives.up()
    emit(100)
    check(at)
    children = running.descendants()
    assert running.end(signal.SIGTERM) == 0
    wait_gone(children, 0)

    forgets = broker == "embedded"
    assert sorted(lives.epochs) == lives.epochs
    assert len(set(lives.epochs)) == (3 if forgets else 1)
