"""All topics recreated under two threshold workers, of which the first stopped starts first."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.local import Addresses, Stack, StackConfig
from deploy.system import prepare
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.integration

Event = dict[str, Any]
TYPES = [f"type-{number}" for number in range(8)]


@pytest.fixture
def own(broker: str, tmp_path: Path) -> Iterator[Addresses]:
    """Services whose topics are deleted here, and no workers."""
    if broker != "apache":
        pytest.skip("the topics of the embedded broker end with it, and others are not ours")
    with Stack(StackConfig(data=tmp_path / "own", kafka=broker)) as stack:
        asyncio.run(prepare(stack.addresses, 2))
        yield stack.addresses


def test_what_only_the_last_owner_has_is_not_begun_anew(
    own: Addresses,
    judged: Callable[..., Event],
    write_events: Callable[[Sequence[Event]], Path],
    stored_at: Callable[[dict[str, Any], str], Any],
    counts: Callable[[Sequence[Event]], dict[str, int]],
    headstart: Any,
    launch: Callable[..., Any],
    tenant: str,
) -> None:
    where = ("--kafka", own.kafka, "--postgres", own.postgres, "--redis", own.redis)
    stored, emitted = stored_at(vars(own), tenant), list[Event]()

    def start(instance: str) -> Any:
        return launch("worker", "thresholds", *where, "--data", "w", "--instance", instance)

    def learn() -> None:
        events = [judged(tenant, name) for name in TYPES for _ in range(3)]
        ended = headstart("emit", write_events(events), "--kafka", own.kafka)
        assert ended.returncode == 0, ended.stderr
        emitted.extend(events)
        stored.until(lambda: stored.counted(*TYPES) == counts(emitted))

    first = start("first")
    learn()
    last = start("last")
    assert first.end(signal.SIGTERM) == 0
    learn()
    assert last.end(signal.SIGTERM) == 0
    deleted = headstart("topics", "delete", "--yes", "--discard-unprocessed", *where[:4])
    assert deleted.returncode == 0, deleted.stderr
    created = headstart("topics", "create", *where, "--partitions", "2")
    assert created.returncode == 0, created.stderr

    refusing = start("first")
    assert refusing.process.wait(PATIENCE_S) == 70
    logged = refusing.err.read_text() + refusing.out.read_text()
    assert "CopyNotWhole" in logged
    assert "worker last on" in logged
    start("last")
    start("first")
    learn()
    verified = headstart("verify", *where, "--json")
    assert verified.returncode == 0, verified.stdout
