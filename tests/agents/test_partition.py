"""One partition under one assignment, as others see it while it is taken up again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from agents.dlq_limit_guard import DlqLimitGuard
from agents.environment import Environment, Tuning
from agents.fatal import exit_fatally
from agents.health.metrics import WorkerCounts
from agents.thresholds import store as contexts
from agents.thresholds.clients import Clients
from agents.thresholds.early_publishing import EarlyPublisher
from agents.thresholds.partition import OwnedPartition
from agents.thresholds.redis_publishing import RedisPublishQueue
from agents.thresholds.store import ContextStore
from processing.config import LearningConfig
from processing.control.default_merging import MIN_OUTCOMES
from processing.records.batch import RecordBatch
from processing.records.dlq_limits import DlqLimits
from processing.task import Checkpoint, PartitionTask
from sinks.redis.thresholds import ThresholdPublisher
from tests.patience import until_in_loop
from tests.processing.building import EPOCH, NOW, TD, Table, fetch, judged, run
from topics.schema.json_schema import PublishedThreshold

AT = TP("t", 0)
DEFAULT = Tuning()
TYPES = ("answer", "plan", "refund")


Steps = Callable[[OwnedPartition, list[Checkpoint]], Awaitable[None]]


class Store:
    """A table of one partition, which may be replaced."""

    scan_chunks = ContextStore.scan_chunks

    def __init__(self, table: Table) -> None:
        self.table = table

    def held_offset(self, _partition: int) -> None:
        return None

    def get_row(self, _partition: int, key: bytes) -> bytes | None:
        return self.table.get(key)

    def scan(self, _partition: int) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted(self.table.items()))


def services(store: Store, tuning: Tuning = DEFAULT) -> Any:
    """Return as much of the services as taking a partition up needs."""
    counts = WorkerCounts()
    return SimpleNamespace(
        app=SimpleNamespace(
            consumer_generation_id=1, consumer=SimpleNamespace(pause=lambda _tp, _full: None)
        ),
        store=store,
        counts=counts,
        stall_guard=SimpleNamespace(check=lambda: None),
        publish_queue=RedisPublishQueue(ThresholdPublisher("redis://127.0.0.1:1"), counts),
        env=Environment(tuning=tuning),
        clients=Clients(),
        dlq_guard=DlqLimitGuard(DlqLimits(), Path(), EPOCH),
        rules=LearningConfig(TD),
        new_core=lambda place: PartitionTask(place, 1, EPOCH, LearningConfig(TD), store.table.get),
    )


def owned_partition(around: Any) -> OwnedPartition:
    return OwnedPartition(AT, around, 0, 1, EarlyPublisher(exit_fatally).publish_soon)


def test_evidence_never_follows_from_half_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one place in the log there is one evidence: a second one would not count."""
    monkeypatch.setattr(contexts, "CHUNK_ROWS", 2)
    before, _ = run(judged())
    after, _ = run(*(judged(workflow_type=each) for _ in range(MIN_OUTCOMES) for each in TYPES))

    async def body() -> None:
        store = Store(before)
        owned = owned_partition(services(store))
        await owned.restore()
        store.table = after
        restored = asyncio.create_task(owned.restore())
        sent = []
        while not restored.done():
            sent += owned.evidence.due(NOW)
            await asyncio.sleep(0)
        await restored
        sent += owned.evidence.due(NOW)
        assert [[known.path for known in each.known] for each in sent if each.known] == [
            [f"workflow_type={each}" for each in TYPES]
        ]
        assert owned.core.applied_offset == len(TYPES) * MIN_OUTCOMES - 1
        await owned.queue.close()

    asyncio.run(asyncio.wait_for(body(), 60.0))


def backlog(begin: int, *records: Any, behind: int = 100) -> RecordBatch:
    """Return one fetch of a log that has more."""
    found: RecordBatch = fetch(*records, offsets=range(begin, begin + len(records)))
    found.begin, found.lag = begin, behind
    return found


def delivered(
    steps: Steps,
    published: list[PublishedThreshold] | None = None,
    tuning: Tuning = DEFAULT,
) -> list[Checkpoint]:
    """Return what a partition delivers that is taken through some steps, and then closed.

    `published`: takes what is published ahead of it.
    """
    commits: list[Checkpoint] = []

    async def write(commit: Checkpoint) -> None:
        commits.append(commit)

    def publish(thresholds: Sequence[PublishedThreshold]) -> Awaitable[None]:
        assert published is not None, "a backlog's is overtaken at once"
        published.extend(thresholds)
        return asyncio.sleep(0)

    async def body() -> None:
        owned = owned_partition(services(Store({}), tuning))
        owned._services.dlq_guard.open(AT, 0)
        owned.writer.write = write  # type: ignore[method-assign]
        owned.publisher.publish = publish  # type: ignore[method-assign]
        await steps(owned, commits)
        await owned.queue.close()

    asyncio.run(asyncio.wait_for(body(), 60.0))
    return commits


def test_a_commit_takes_in_more_of_a_backlog() -> None:
    """Until nothing more comes; then it is as if it had come at once."""

    async def steps(owned: OwnedPartition, commits: list[Checkpoint]) -> None:
        for begin in range(3):
            await owned.queue.put(AT, backlog(begin, judged(workflow_type=TYPES[begin])))
            await until_in_loop(lambda: owned.core.applied_offset == begin)  # noqa: B023 - awaited here
            assert not commits
            assert not owned.queue.idle, "its offset may not be committed"
        await owned.queue.put(AT, backlog(3, judged()))
        await until_in_loop(lambda: owned.queue.idle)  # nothing more comes after all
        counts = owned._services.counts
        assert (counts.batches, counts.records, counts.events) == (1, 4, 4)

    (commit,) = delivered(steps)
    assert (commit.end, commit.events) == (4, 4)
    together, whole = run(*(judged(workflow_type=each) for each in TYPES), judged())
    assert dict(commit.rows).keys() == together.keys()
    assert len(commit.thresholds) == len(whole.thresholds)


def test_slow_records_are_published_at_once_and_their_rows_follow() -> None:
    published: list[PublishedThreshold] = []
    patient = Tuning(checkpoint_s=2.0, idle_s=2.0)  # on a busy machine .25 s are soon over

    async def steps(owned: OwnedPartition, commits: list[Checkpoint]) -> None:
        for begin in range(3):
            await owned.queue.put(AT, backlog(begin, judged(), behind=0))
            await until_in_loop(lambda: len(published) == 2 * (begin + 1))  # noqa: B023 - awaited here
            assert published[-1].offset == begin
            assert not commits
            assert not owned.queue.idle, "its offset may not be committed"
        counts = owned._services.counts
        await until_in_loop(lambda: sum(counts.delay.counts) == 3)
        assert counts.batches == 0
        await until_in_loop(lambda: owned.queue.idle)
        assert (sum(counts.delay.counts), counts.batches, counts.records) == (3, 1, 3)

    (commit,) = delivered(steps, published, patient)
    assert (commit.end, commit.events, commit.thresholds) == (3, 3, [])
    together, whole = run(judged(), judged(), judged())
    assert dict(commit.rows) == together
    assert commit.moved == whole.moved


def test_gathered_records_are_delivered_when_the_partition_is_revoked() -> None:
    async def steps(owned: OwnedPartition, commits: list[Checkpoint]) -> None:
        await owned.queue.put(AT, backlog(0, judged()))
        await until_in_loop(lambda: owned.core.applied_offset == 0)
        assert not commits

    (commit,) = delivered(steps)
    assert commit.end == 1


def test_a_refusal_waits_for_nothing() -> None:
    async def steps(owned: OwnedPartition, commits: list[Checkpoint]) -> None:
        await owned.queue.put(AT, backlog(0, judged(), judged()))
        await owned.queue.put(AT, backlog(2, b"broken"))
        await until_in_loop(lambda: owned.queue.idle)
        assert len(commits) == 1

    (commit,) = delivered(steps)
    assert (commit.end, len(commit.dead_letters)) == (3, 1)


def test_a_commit_that_is_well_filled_waits_for_nothing() -> None:
    async def steps(owned: OwnedPartition, commits: list[Checkpoint]) -> None:
        await owned.queue.put(AT, backlog(0, *(judged() for _ in range(200)), behind=1000))
        await until_in_loop(lambda: owned.queue.idle)
        assert len(commits) == 1

    delivered(steps)


def test_offsets_without_a_record_are_done_and_make_no_row() -> None:
    done = list[tuple[int, bool]]()
    around = services(Store({}))
    around.app.consumer.done = lambda _tp, end, *, commit: done.append((end, commit))
    around.dlq_guard.open(AT._replace(topic="headstart.events"), 0)

    async def body() -> None:
        owned = owned_partition(around)
        owned.writer.write = lambda commit: _append(owned, commit)  # type: ignore[method-assign]
        markers, records = RecordBatch("t", 0, 0, 4, [], [], [], []), fetch(judged(), offsets=[4])
        await owned._handle([(AT, markers)])
        assert done == [(4, True)]
        await owned._handle([(AT, records), (AT, RecordBatch("t", 0, 5, 9, [], [], [], []))])
        while owned._buffer is not None:
            await owned._handle([])
        assert done == [(4, True), (9, True)], "also what came while a commit took in more"
        await owned._handle([(AT, markers)])
        assert len(done) == 2, "what was fetched once more is done already"
        await owned.queue.close()

    async def _append(owned: OwnedPartition, commit: Checkpoint) -> None:
        assert commit.end == 5
        owned.targets.done(commit.end)

    asyncio.run(body())


def test_a_lost_partition_publishes_nothing_ahead_of_its_rows() -> None:
    around = services(Store({}))
    around.dlq_guard.open(AT, 0)

    async def body() -> None:
        owned = owned_partition(around)
        await owned._apply(fetch(judged(), offsets=[0]))
        around.app.consumer_generation_id += 1
        assert owned.take_answers().thresholds == ()
        await owned.queue.close()

    asyncio.run(body())
