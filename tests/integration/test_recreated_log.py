"""Topics deleted and created again by hand, below two workers: none begins from older rows."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.local import Addresses, Stack
from deploy.system import prepare
from deploy.worker_reports import read_report
from tests.patience import until
from tests.secured import environment, of_worker, stack_config
from topics.catalogue import OF_ONE_LOG
from topics.kafka.admin import delete_topics

pytestmark = pytest.mark.integration

Event = dict[str, Any]
TYPES = [f"type-{number}" for number in range(12)]


@pytest.fixture
def services(broker: str, tmp_path: Path) -> Iterator[Addresses]:
    if broker != "apache":
        pytest.skip("the embedded broker's topics end with it, and others are not ours to delete")
    with Stack(stack_config(data=tmp_path / "stack", kafka=broker)) as stack:
        asyncio.run(prepare(stack.addresses, 2))
        yield stack.addresses


@pytest.fixture
def emit(
    services: Addresses,
    headstart: Any,
    judged: Callable[..., Event],
    write_events: Callable[[Sequence[Event]], Path],
    tenant: str,
) -> Callable[[], list[Event]]:
    """Emit events of every workflow type; return all that were emitted."""
    emitted: list[Event] = []

    def emit() -> list[Event]:
        events = [judged(tenant, each) for each in TYPES for _ in range(3)]
        ended = headstart("emit", write_events(events), "--kafka", services.kafka)
        assert ended.returncode == 0, ended.stderr
        emitted.extend(events)
        return emitted

    return emit


def test_a_worker_waits_for_rows_that_another_ones_directory_has(
    services: Addresses,
    launch: Callable[..., Any],
    emit: Callable[[], list[Event]],
    stored_at: Callable[[dict[str, Any], str], Any],
    counts: Callable[[Sequence[Event]], dict[str, int]],
    tenant: str,
    tmp_path: Path,
) -> None:
    stored = stored_at(vars(services), tenant)
    redis, own = of_worker("thresholds", services).redis, environment("thresholds")
    where = ("--kafka", services.kafka, "--redis", redis, "--data", tmp_path / "data")

    def start(instance: str) -> Any:
        return launch("worker", "thresholds", "--instance", instance, *where, environment=own)

    def learned(emitted: list[Event]) -> None:
        stored.until(lambda: stored.counted(*TYPES) == counts(emitted))

    a = start("a")
    learned(emit())
    b = start("b")
    b.until("partition.opened")
    assert a.end(signal.SIGTERM) == 0
    learned(emit())  # b alone has all of it
    assert b.end(signal.SIGTERM) == 0

    asyncio.run(delete_topics(services.kafka, [topic.name for topic in OF_ONE_LOG]))
    asyncio.run(prepare(services, 2))
    emitted = emit()
    a = start("a")
    a.until("waits for the rows of partition 0, partition 1: partition 0 was learned last by")

    def says_why() -> bool:
        report = read_report(tmp_path / "data/workers/thresholds-a", a.process.pid)
        return report is not None and "instance 'b'" in (report.waiting or "")

    until(says_why)
    b = start("b")
    learned(emitted)
    learned(emit())
    assert a.process.poll() is None, "it went on when it was given the rows"
