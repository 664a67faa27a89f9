"""`contexts` and `thresholds list` after a pause, while the partition's clock is behind."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from agents.producer import BatchProducer
from deploy.local import Addresses, Stack, StackConfig
from deploy.system import prepare
from processing.records.partitioner import partition_for
from processing.state.clock import TICK_MS
from processing.state.rows import PARTITION_KEY, TaskStateRow, deleted, encode_partition
from sinks.redis.thresholds import ThresholdPublisher
from tests.processes import Ended
from topics.catalogue import CHANGELOG
from topics.schema.json_schema import PublishedThreshold

pytestmark = pytest.mark.integration

HOUR_MS = 3_600_000
PARTITIONS = 2
PATH = "workflow_type=refund"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    with Stack(StackConfig(data=tmp_path_factory.mktemp("stack"))) as running:
        asyncio.run(prepare(running.addresses, PARTITIONS))
        yield running.addresses


def moment(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat("T", "seconds")


def learn(at: Addresses, tenant: str, stored: int, row: TaskStateRow) -> None:
    """Publish a context whose outcome has a stored time; `row`: its partition's own."""
    learned = PublishedThreshold(
        tenant=tenant, workflow_type="refund", path=PATH, speculate=0.8, suggest=0.6, epoch=1,
        offset=1, outcomes=3, learner="ema", at=stored,
    )  # fmt: skip
    rows = [(PARTITION_KEY, encode_partition(row, 1, time.time_ns() // 1_000_000))]
    rows += [(b"more", deleted(1, n)) for n in range(700)]  # as of a table that is rewritten

    async def run() -> None:
        async with ThresholdPublisher(at.redis) as publisher:
            await publisher.publish([learned])
        producer = BatchProducer(at.kafka)
        await producer.start()
        try:
            await producer.send_rows(
                CHANGELOG.name, partition_for(tenant, "refund", PARTITIONS), rows
            )
        finally:
            await producer.stop()

    asyncio.run(run())


def test_a_context_that_learned_after_a_pause_is_shown(
    run: Callable[..., Ended], stack: Addresses, tenant: str
) -> None:
    now = time.time_ns() // 1_000_000 // TICK_MS * TICK_MS
    begun = now - 9 * HOUR_MS
    behind = begun + HOUR_MS
    learn(
        stack, tenant, behind + 7,
        TaskStateRow(behind, began=begun, doubled=1, gaps=((begun, behind),)),
    )  # fmt: skip
    options = ("--tenant", tenant, "--kafka", stack.kafka, "--redis", stack.redis)
    for command in (("contexts",), ("thresholds", "list")):
        ended = run(*command, *options, "--since", "1h", "--json")
        assert json.loads(ended.stdout)["total"] == 1, ended.stderr
    (found,) = json.loads(run("contexts", *options, "--json").stdout)["contexts"]
    assert found["at"] == behind + 7
    assert now <= found["latest"] <= time.time_ns() // 1_000_000
    assert f"{moment(behind)} to {moment(now)[:14]}" in run("contexts", *options).stdout

    caught_up = TaskStateRow(now, began=begun, gaps=((begun, now - 2 * HOUR_MS),))
    learn(stack, tenant, behind + 7, caught_up)
    total = {
        since: json.loads(run("contexts", *options, "--since", since, "--json").stdout)["total"]
        for since in ("1h", "3h")
    }
    assert total == {"1h": 0, "3h": 1}, "it learned at the end of the gap at the latest"


def test_a_note_reports_inexact_times_without_a_broker(
    run: Callable[..., Ended], stack: Addresses, closed: str, tenant: str
) -> None:
    now = time.time_ns() // 1_000_000
    learn(stack, tenant, now, TaskStateRow(now, began=now))
    ended = run("contexts", "--tenant", tenant, "--kafka", closed, "--redis", stack.redis)
    assert moment(now) in ended.stdout
    (note, _count) = ended.stderr.splitlines()
    assert note.startswith("note: contexts that learned after a pause")
    assert closed in note
