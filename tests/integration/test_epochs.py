"""`headstart up`, ended and started again on its data directory: it goes on where it was."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

Event = dict[str, Any]


def test_stop_and_start_kill_and_start(  # noqa: PLR0917
    broker: str,
    launch: Callable[..., Any],
    headstart: Any,
    judged: Callable[..., Event],
    counts: Callable[[Sequence[Event]], dict[str, int]],
    write_events: Callable[[Sequence[Event]], Path],
    stored_at: Callable[[dict[str, Any], str], Any],
    wait_gone: Callable[..., None],
    tenant: str,
    tmp_path: Path,
) -> None:
    if broker not in ("embedded", "apache"):
        pytest.skip("a broker that runs already is not started anew")
    data = tmp_path / "data"
    emitted: list[Event] = []
    epochs: list[int] = []

    def up() -> tuple[Any, dict[str, Any]]:
        running = launch("up", "--data", data, "--kafka", broker, "--partitions", "2", "--json")
        ready = json.loads(running.until('"epoch"').splitlines()[-1])
        epochs.append(ready["epoch"])
        return running, ready

    def emit(number: int) -> None:
        events = [judged(tenant, f"type-{place % 3}") for place in range(number)]
        ended = headstart("emit", write_events(events), "--data", data, "--json")
        assert json.loads(ended.stdout) == {"emitted": number, "refused": 0}, ended.stderr
        emitted.extend(events)

    def check(at: dict[str, Any], seconds: float = 0.0) -> None:
        stored = stored_at(at, tenant)
        types = ["type-0", "type-1", "type-2"]
        stored.until(
            lambda: (
                stored.ids() == sorted(event["id"] for event in emitted)
                and stored.counted(*types) == counts(emitted)
            ),
            seconds,
        )
        assert {value["epoch"] for value in stored.served(*types).values()} == {epochs[-1]}

    # Stopped well: what was emitted is taken in before the broker forgets it.
    running, _ = up()
    emit(300)
    assert running.end(signal.SIGINT) == 0
    running, at = up()
    emit(200)
    check(at, seconds=30)

    again = headstart("up", "--data", data)
    assert again.returncode == 1
    assert f"{at['kafka']}" in again.stderr
    assert len(again.stderr.strip().splitlines()) <= 2

    # Killed: no process is left, and the next one works.
    children = running.descendants()
    assert len(children) >= 6, "broker, Postgres, Redis and three workers"
    running.end(signal.SIGKILL)
    wait_gone(children)
    running, at = up()
    emit(100)
    check(at, seconds=30)
    children = running.descendants()
    assert running.end(signal.SIGTERM) == 0
    wait_gone(children, 0)

    forgets = broker == "embedded"
    assert sorted(epochs) == epochs
    assert len(set(epochs)) == (3 if forgets else 1)
