"""`headstart up` beside services that run already: each of them on its own."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.local import Addresses, Stack
from tests.processes import wait_gone
from tests.secured import ALLOWED, addresses_of, environment, everything_allowed, stack_config

pytestmark = pytest.mark.integration

Event = dict[str, Any]
PARTS = ("kafka", "postgres", "redis")


@pytest.fixture
def existing(broker: str, tmp_path: Path) -> Iterator[Addresses]:
    """Services that were started elsewhere."""
    data = tmp_path / "existing"
    with Stack(stack_config(data=data, kafka=broker)) as stack, everything_allowed(data):
        yield stack.addresses


Up = Callable[..., tuple[Any, dict[str, Any]]]


@pytest.fixture
def up(launch: Callable[..., Any], existing: Addresses, tmp_path: Path) -> Up:
    """Start `headstart up` with one part given; return it and where its parts are."""

    login = environment(ALLOWED)

    def start(part: str, *options: str) -> tuple[Any, dict[str, Any]]:
        given = getattr(existing, part)
        where = ("--data", tmp_path / part, "--partitions", "2", "--json")
        # Workers of a broker elsewhere have one login, which needs the rights of each.
        running = launch("up", f"--{part}", given, *where, *options, environment=login)
        at = json.loads(running.until('"epoch"').splitlines()[-1])
        at |= vars(addresses_of(tmp_path / part))
        assert [name for name in PARTS if at[name] == getattr(existing, name)] == [part]
        return running, at

    return start


def end(running: Any, least: int) -> None:
    children = running.descendants()
    assert len(children) >= least
    assert running.end(signal.SIGTERM) == 0
    wait_gone(children, 0)


def test_a_broker(
    up: Up,
    existing: Addresses,
    headstart: Any,
    judged: Callable[..., Event],
    write_events: Callable[[Sequence[Event]], Path],
    stored_at: Callable[[dict[str, Any], str], Any],
    tenant: str,
) -> None:
    running, at = up("kafka")
    event = judged(tenant)
    ended = headstart("emit", write_events([event]), "--kafka", existing.kafka)
    assert ended.returncode == 0, ended.stderr
    stored = stored_at(at, tenant)
    stored.until(lambda: stored.ids() == [event["id"]])
    stored.until(lambda: stored.counted("refund").get("workflow_type=refund") == 1)
    end(running, 5)
    shown = headstart("events", "tail", "--kafka", existing.kafka, "--json")
    assert [each["id"] for each in json.loads(shown.stdout)["events"]] == [event["id"]]


@pytest.mark.any_broker
def test_a_postgres_and_a_redis(
    up: Up,
    existing: Addresses,
    headstart: Any,
    judged: Callable[..., Event],
    write_events: Callable[[Sequence[Event]], Path],
    stored_at: Callable[[dict[str, Any], str], Any],
    tenant: str,
) -> None:
    """Both run at once, each beside its own broker: most of their start is waiting for it."""
    running = {part: up(part, "--no-workers") for part in ("postgres", "redis")}
    stored = stored_at(vars(existing), tenant)
    assert stored.query("SELECT count(*) FROM episodic_events") == [(0,)], "it was migrated"
    _, at = running["redis"]
    assert stored.remembered() == at["epoch"]
    assert at["epoch"] >= running["postgres"][1]["epoch"]
    for each, _at in running.values():
        end(each, 2)
    assert stored.remembered() == at["epoch"], "it goes on, and keeps what was ours"
