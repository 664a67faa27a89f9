"""A worker compares Redis with its table: what is wrong is repaired, what may be right is not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from agents.environment import Environment
from agents.health.metrics import WorkerCounts
from agents.thresholds import redis_repair as checking
from agents.thresholds.clients import Clients
from agents.thresholds.contested_fields import CONTESTED_S, MAX_REPAIRS, WINDOW_S, ContestedFields
from agents.thresholds.redis_repair import RedisChecks
from headstart.keys import redis_key
from processing.contexts.thresholds import threshold_from_row
from processing.records.partitioner import partition_for
from processing.state.rows import (
    PARTITION_KEY,
    ContextRow,
    TaskStateRow,
    context_key,
    default_key,
    deleted,
    encode_context,
    encode_partition,
)
from sinks.redis.stored_fields import Field
from sinks.redis.thresholds import ThresholdPublisher, encode_value
from topics.epoch import Epoch
from topics.schema.json_schema import PublishedThreshold

EPOCH, PARTITIONS = 7, 2
END = 200


BROKER = SimpleNamespace()


async def _topic_state(_kafka: str, _topic: str) -> Any:
    BROKER.asked += 1
    return SimpleNamespace(end=dict.fromkeys(range(PARTITIONS), BROKER.end))


async def _read_epoch(_kafka: str) -> Epoch:
    return Epoch(BROKER.epoch, PARTITIONS)


CLIENTS = Clients(topic_state=_topic_state, read_epoch=_read_epoch)


def row(offset: int, outcomes: int = 3) -> bytes:
    return encode_context(ContextRow(EPOCH, offset, 5, outcomes, 1, 1, 1, "ema", (0.5, 0.4)))


class Worker:
    """What `RedisChecks` needs of a worker: one partition, its rows in a dictionary."""

    def __init__(self, tenant: str, contexts: int, applied_offset: int = 100) -> None:
        self.env, self.clients = Environment(), CLIENTS
        self.epoch, self.kafka, self.counts = Epoch(EPOCH, PARTITIONS), "kafka", WorkerCounts()
        self.publish_queue = SimpleNamespace(waiting=False)
        self.store = self
        self.tenant, self.partition = tenant, partition_for(tenant, "refund", PARTITIONS)
        self.publisher = SimpleNamespace(in_flight=())
        self.targets = self
        self.rows = {
            context_key(tenant, f"workflow_type=refund/n={n}"): row(n) for n in range(contexts)
        }
        self.rows[PARTITION_KEY] = encode_partition(TaskStateRow(), EPOCH, applied_offset)
        self.is_current = True

    def owned(self) -> list[Any]:
        return [self]

    def fetched(self, _partition: int) -> int:
        return 0

    def current(self) -> bool:
        return self.is_current

    def get_row(self, _partition: int, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def page(self, _partition: int, begin: bytes, count: int) -> list[tuple[bytes, bytes]]:
        return [each for each in sorted(self.rows.items()) if each[0] >= begin][:count]

    def thresholds(self) -> list[PublishedThreshold]:
        return [
            threshold_from_row(key, value)
            for key, value in self.rows.items()
            if key[:1] in (b"c", b"d")
        ]


@pytest.fixture(autouse=True)
def only_its_own(request: pytest.FixtureRequest) -> None:
    """What other tests left would be repaired, too."""
    if request.node.get_closest_marker("integration"):
        with redis.Redis.from_url(request.getfixturevalue("redis_url")) as client:
            for key in client.scan_iter("headstart:thresholds:*", count=1000):
                client.delete(key)


@pytest.fixture(autouse=True)
def broker(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The broker's answers, and how often the end of the log is requested."""
    vars(BROKER).update(epoch=EPOCH, end=END, asked=0)
    monkeypatch.setattr(checking, "PAUSE_S", 0.0)
    return BROKER


def rounds(url: str, worker: Worker, count: int = 1) -> None:
    async def run() -> None:
        services: Any = worker
        checks = RedisChecks(services, worker.owned, worker.fetched, url, 60.0)
        for _ in range(count):
            await checks.round()
        await checks.close()

    asyncio.run(run())


def publish(url: str, thresholds: Sequence[PublishedThreshold]) -> None:
    async def run() -> None:
        async with ThresholdPublisher(url) as publisher:
            await publisher.publish(thresholds)

    asyncio.run(run())


def repaired(worker: Worker) -> dict[str, int]:
    return {reason: count for reason, count in worker.counts.repaired.items() if count}


def path(number: int) -> str:
    return f"workflow_type=refund/n={number}"


@pytest.mark.integration
def test_only_foreign_values_are_repaired(redis_url: str, tenant: str) -> None:
    worker, key = Worker(tenant, 250), redis_key(tenant, "refund")
    worker.rows[context_key(tenant, path(9))] = deleted(EPOCH, 50)
    publish(redis_url, worker.thresholds())
    with redis.Redis.from_url(redis_url) as client:
        before = client.hgetall(key)
        rounds(redis_url, worker)
        assert repaired(worker) == {}
        assert client.hgetall(key) == before
        newer = {**json.loads(before[path(1).encode()]), "epoch": 9_999_999_999, "speculate": 0.01}
        client.hset(key, path(1), json.dumps(newer))
        client.hset(key, path(2), json.dumps({**newer, "epoch": EPOCH, "offset": 90}))
        client.hset(key, path(3), json.dumps({**newer, "epoch": EPOCH, "offset": END}))
        client.hset(key, path(4), json.dumps({**newer, "epoch": EPOCH, "offset": 4}))
        client.hset(key, path(5), b"{oops")
        client.hset(key, path(9), json.dumps(newer))
        client.hset(key, f"{path(1)}/made=up", json.dumps(newer))
        client.hset(key, "someone's", "own")
        client.hset(key, "!overrides", "[]")
        client.hdel(key, path(6), path(7))
        rounds(redis_url, worker)
        assert repaired(worker) == {
            "newer": 4, "differing": 1, "unreadable": 1, "unknown": 1, "missing": 2
        }  # fmt: skip
        after = client.hgetall(key)
    assert after.pop(b"!repaired")
    assert after == {**before, b"someone's": b"own", b"!overrides": b"[]"}


@pytest.mark.integration
def test_a_mark_without_a_row_is_removed_without_a_warning(redis_url: str, tenant: str) -> None:
    """Its path may name a user that was purged; a Redis from a snapshot may bring it back."""
    worker, key = Worker(tenant, 3), redis_key(tenant, "refund")
    marked = context_key(tenant, path(1))
    worker.rows[marked] = deleted(EPOCH, 50)
    publish(redis_url, worker.thresholds())
    with redis.Redis.from_url(redis_url) as client, capture_logs() as logged:
        rounds(redis_url, worker)
        assert client.hexists(key, path(1)), "the table has the mark, too"
        del worker.rows[marked]
        late = encode_value(threshold_from_row(marked, deleted(EPOCH, 101)))
        client.hset(key, path(9), late)  # published ahead of its row, perhaps
        rounds(redis_url, worker)
        left = {each.decode() for each in client.hkeys(key)}
    assert left == {path(0), path(2), path(9), "!repaired"}
    assert repaired(worker) == {"expired": 1}
    assert [(each["event"], each["log_level"]) for each in logged] == [
        ("redis_check.expired_removed", "info")
    ]


@pytest.mark.integration
def test_values_of_an_earlier_log_epoch_are_removed_without_a_warning(
    redis_url: str, tenant: str
) -> None:
    """As after a change of partitions: the new table is empty until the import."""
    before, key = Worker(tenant, 3), redis_key(tenant, "refund")
    publish(redis_url, before.thresholds())
    with redis.Redis.from_url(redis_url) as client:
        for name, raw in client.hgetall(key).items():
            client.hset(key, name, json.dumps({**json.loads(raw), "epoch": EPOCH - 1}))
        worker = Worker(tenant, 0)
        with capture_logs() as logged:
            rounds(redis_url, worker)
        assert client.hkeys(key) == [b"!repaired"]
    assert repaired(worker) == {"outdated": 3}
    assert {each["event"] for each in logged} == {"redis_check.outdated_removed"}
    assert {each["log_level"] for each in logged} == {"info"}


@pytest.mark.integration
def test_a_key_of_another_type_and_a_lost_default_come_back(redis_url: str, tenant: str) -> None:
    worker = Worker(tenant, 3)
    with redis.Redis.from_url(redis_url) as client:
        client.rpush(redis_key(tenant, "refund"), "x")
        rounds(redis_url, worker)
        assert client.hlen(redis_key(tenant, "refund")) == 4
    assert repaired(worker) == {"missing": 3}


@pytest.mark.integration
@pytest.mark.parametrize("why", ["ahead", "under way", "another epoch", "no longer ours"])
def test_values_that_may_be_correct_are_kept(
    redis_url: str, tenant: str, why: str, broker: SimpleNamespace
) -> None:
    """Another owner, or this one ahead of its rows, may have published it."""
    worker, key = Worker(tenant, 3), redis_key(tenant, "refund")
    publish(redis_url, worker.thresholds())
    version = {"epoch": EPOCH, "offset": END - 1} if why == "ahead" else {"epoch": EPOCH + 1}
    with redis.Redis.from_url(redis_url) as client:
        value = json.loads(client.hget(key, path(1)) or "")
        raw = json.dumps({**value, **version}).encode()
        client.hset(key, path(1), raw)
        if why == "under way":
            worker.publisher.in_flight = worker.thresholds()
        elif why == "another epoch":
            broker.epoch = EPOCH + 1
        elif why == "no longer ours":
            worker.is_current = False
        rounds(redis_url, worker)
        assert client.hget(key, path(1)) == raw
    assert repaired(worker) == {}


@pytest.mark.integration
def test_contexts_of_other_partitions_are_not_compared(redis_url: str, tenant: str) -> None:
    names = [f"{tenant}-{n}" for n in range(99)]
    # Not in partition 0, which publishes the defaults as well.
    tenant = next(name for name in names if partition_for(name, "refund", PARTITIONS) == 1)
    other = next(
        kind for kind in map(str, range(99)) if partition_for(tenant, kind, PARTITIONS) == 0
    )
    worker = Worker(tenant, 2)
    worker.rows[context_key(tenant, f"workflow_type={other}")] = row(5)
    worker.rows[default_key(tenant)] = row(5)
    rounds(redis_url, worker)
    with redis.Redis.from_url(redis_url) as client:
        assert not client.exists(redis_key(tenant, other))
        assert not client.exists(redis_key(tenant, ""))


@pytest.mark.integration
def test_another_installation_is_not_fought(redis_url: str, tenant: str) -> None:
    worker, key = Worker(tenant, 2), redis_key(tenant, "refund")
    theirs = b'{"speculate":0.1,"suggest":0.1,"epoch":9000000000,"offset":1,"outcomes":1}'

    async def run() -> None:
        services: Any = worker
        checks = RedisChecks(services, worker.owned, worker.fetched, redis_url, 60.0)
        with redis.Redis.from_url(redis_url) as client:
            for _ in range(MAX_REPAIRS + 3):
                client.hset(key, path(1), theirs)
                await checks.round()
            assert client.hget(key, path(1)) == theirs
            client.hset(key, path(0), b"{oops")
            await checks.round()
            assert client.hget(key, path(0)) == encode_value(worker.thresholds()[0])
        await checks.close()

    asyncio.run(run())
    assert worker.counts.repaired["newer"] == MAX_REPAIRS
    assert worker.counts.contested == 1


def test_a_contested_value_is_still_repaired_now_and_then() -> None:
    contested, field = ContestedFields(), Field("t", "w", "p")
    for count in range(1, MAX_REPAIRS + 1):
        assert contested.may_repair(field, "newer", count)
        assert contested.repaired(field, "newer", count) == (count == MAX_REPAIRS)
    assert not contested.may_repair(field, "behind", MAX_REPAIRS + 1)
    assert contested.may_repair(field, "missing", MAX_REPAIRS + 1)
    assert contested.may_repair(field, "newer", MAX_REPAIRS + CONTESTED_S)
    assert contested.count(MAX_REPAIRS) == 1
    assert contested.may_repair(field, "newer", WINDOW_S + 2)
    assert contested.count(WINDOW_S + 2) == 0


def worked(url: str, worker: Worker, body: Callable[[RedisChecks], Awaitable[None]]) -> None:
    async def run() -> None:
        services: Any = worker
        checks = RedisChecks(services, worker.owned, worker.fetched, url, 60.0)
        checks.request_round()
        await body(checks)
        await checks.close()

    asyncio.run(run())


def test_a_redis_that_is_away_is_asked_again_later() -> None:
    worker = Worker("t", 3)

    async def body(checks: RedisChecks) -> None:
        await checks.work()
        assert checks._away

    worked("redis://127.0.0.1:1/0", worker, body)


def test_while_thresholds_wait_for_redis_nothing_is_compared() -> None:
    worker = Worker("t", 3)
    worker.publish_queue.waiting = True

    async def body(checks: RedisChecks) -> None:
        await checks.work()
        assert not checks._away

    worked("redis://127.0.0.1:1/0", worker, body)
