"""Thresholds in Redis: only newer versions are written, and what is written is announced."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import uuid4

import msgspec
import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart import Thresholds
from headstart.keys import redis_key
from sinks.connections import RedisUnreachable
from sinks.redis.pending import PendingThresholds
from sinks.redis.thresholds import MAX_CALL, ThresholdPublisher
from topics.schema.json_schema import PublishedThreshold

versions = st.tuples(st.integers(0, 2**40), st.integers(0, 2**52)) | st.tuples(
    st.sampled_from([1, 2**31 - 1, 2**31, 2**31 + 1]), st.sampled_from([0, 9, 10, 2**52])
)


def threshold(tenant: str, epoch: int = 1, offset: int = 1, **fields: Any) -> PublishedThreshold:
    values = {
        "tenant": tenant,
        "workflow_type": "refund",
        "path": "workflow_type=refund",
        "speculate": 0.8,
        "suggest": 0.6,
        "epoch": epoch,
        "offset": offset,
        "outcomes": 3,
        "learner": "ema",
        "at": 1_750_000_000_000,
    }
    return PublishedThreshold(**{**values, **fields})


async def publish(url: str, *batches: list[PublishedThreshold]) -> list[int]:
    async with ThresholdPublisher(url) as publisher:
        return [await publisher.publish(batch) for batch in batches]


def stored(url: str, tenant: str, workflow_type: str = "refund") -> dict[str, Any]:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        fields = client.hgetall(redis_key(tenant, workflow_type))
    return {path: json.loads(value) for path, value in fields.items()}


@pytest.mark.integration
def test_a_lower_version_never_overwrites(redis_url: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.lists(versions, min_size=1, max_size=4), min_size=1, max_size=5))
    def law(batches: list[list[tuple[int, int]]]) -> None:
        tenant, highest, expected = uuid4().hex, (-1, -1), []
        for batch in batches:
            higher = 0
            for version in batch:
                higher += version > highest
                highest = max(highest, version)
            expected.append(higher)
        thresholds = [[threshold(tenant, *version) for version in batch] for batch in batches]
        assert asyncio.run(publish(redis_url, *thresholds)) == expected
        value = stored(redis_url, tenant)["workflow_type=refund"]
        assert (value["epoch"], value["offset"]) == highest

    law()


@pytest.mark.integration
def test_the_value_holds_what_key_and_field_do_not(redis_url: str, tenant: str) -> None:
    assert asyncio.run(publish(redis_url, [threshold(tenant, 2**33, 2**52)])) == [1]
    assert stored(redis_url, tenant) == {
        "workflow_type=refund": {
            "speculate": 0.8,
            "suggest": 0.6,
            "epoch": 2**33,
            "offset": 2**52,
            "outcomes": 3,
            "learner": "ema",
            "at": 1_750_000_000_000,
        }
    }


@pytest.mark.integration
def test_written_thresholds_are_announced_on_the_key(redis_url: str, tenant: str) -> None:
    path = 'workflow_type=refund/domain="é\\✓'
    key = redis_key(tenant, "refund")
    with redis.Redis.from_url(redis_url) as client, client.pubsub() as subscriber:
        subscriber.subscribe(key)
        assert subscriber.get_message(timeout=60)["type"] == "subscribe"
        first = [threshold(tenant, 1, 5), threshold(tenant, 1, 5, path=path)]
        second = [threshold(tenant, 1, 4), threshold(tenant, 1, 6, path=path)]
        assert asyncio.run(publish(redis_url, first, first, second)) == [2, 0, 1]
        messages = [subscriber.get_message(timeout=60) for _ in range(2)]
        assert subscriber.get_message(timeout=0.05) is None
    announced = [
        [(r["path"], r["epoch"], r["offset"], r["speculate"]) for r in json.loads(m["data"])]
        for m in messages
    ]
    assert announced == [
        [("workflow_type=refund", 1, 5, 0.8), (path, 1, 5, 0.8)],
        [(path, 1, 6, 0.8)],
    ]


@pytest.mark.integration
@pytest.mark.parametrize("corrupt", ["", "no json", "[]", "5", '{"epoch":"x","offset":1}', "{}"])
def test_a_corrupt_value_is_overwritten(redis_url: str, tenant: str, corrupt: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.hset(redis_key(tenant, "refund"), "workflow_type=refund", corrupt)
    assert asyncio.run(publish(redis_url, [threshold(tenant)])) == [1]


@pytest.mark.integration
def test_many_contexts_of_many_owners_go_in_one_batch(redis_url: str, tenant: str) -> None:
    batch = [
        threshold(tenant, workflow_type=workflow_type, path=f"workflow_type={workflow_type}/n={n}")
        for workflow_type in ("a", "b")
        for n in range(MAX_CALL + 1)
    ]
    with redis.Redis.from_url(redis_url) as client:
        client.script_flush()  # as after a restart: the script must be loaded again
    assert asyncio.run(publish(redis_url, batch, [])) == [len(batch), 0]
    assert len(stored(redis_url, tenant, "a")) == len(stored(redis_url, tenant, "b")) == 101


@pytest.mark.integration
def test_a_key_of_another_type_is_set_aside_and_hinders_nothing(
    redis_url: str, tenant: str
) -> None:
    types = ["a", "refund", "z"]
    with redis.Redis.from_url(redis_url) as client, client.pubsub() as subscriber:
        key = redis_key(tenant, "refund")
        client.set(key, "not a hash")
        subscriber.psubscribe(redis_key(tenant, "*"))
        assert subscriber.get_message(timeout=60)["type"] == "psubscribe"
        batch = [
            threshold(tenant, workflow_type=each, path=f"workflow_type={each}") for each in types
        ]
        assert asyncio.run(publish(redis_url, batch)) == [3]
        channels = {subscriber.get_message(timeout=60)["channel"].decode() for _ in range(3)}
        assert channels == {redis_key(tenant, each) for each in types}
        assert all(stored(redis_url, tenant, each) for each in types)
        aside = f"headstart:set-aside:{{{key}}}"
        assert client.get(aside) == b"not a hash"
        assert 0 < client.ttl(aside) <= 7 * 86_400


@pytest.mark.integration
def test_an_invalid_version_is_overwritten(redis_url: str, tenant: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.hset(redis_key(tenant, "refund"), "workflow_type=refund", '{"epoch":NaN,"offset":1}')
    assert asyncio.run(publish(redis_url, [threshold(tenant)])) == [1]


def test_redis_away_is_one_clear_line_without_the_password() -> None:
    with pytest.raises(RedisUnreachable) as caught:
        asyncio.run(publish("redis://:secret@127.0.0.1:1/0", [threshold("t")]))
    message = str(caught.value)
    assert "127.0.0.1:1/0" in message
    assert "headstart up" in message
    assert "HEADSTART_REDIS" in message
    assert "secret" not in message
    assert "\n" not in message


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), versions)))
def test_the_newest_of_each_context_waits(arrivals: list[tuple[str, str, tuple[int, int]]]) -> None:
    pending = PendingThresholds()
    newest: dict[tuple[str, str], tuple[int, int]] = {}
    for tenant, path, version in arrivals:
        pending.add([threshold(tenant, *version, path=path)])
        newest[tenant, path] = max(version, newest.get((tenant, path), version))
    assert len(pending) == len(newest)
    drained = pending.drain()
    assert {(t.tenant, t.path): (t.epoch, t.offset) for t in drained} == newest
    assert not pending
    assert pending.drain() == []


def test_thresholds_put_back_do_not_overwrite_newer_ones() -> None:
    pending = PendingThresholds()
    old, new = threshold("t", 1, 1), threshold("t", 2, 0)
    pending.add([old])
    failed = pending.drain()
    pending.add([new])
    pending.add(failed)
    assert [msgspec.to_builtins(t) for t in pending.drain()] == [msgspec.to_builtins(new)]


@pytest.mark.integration
def test_a_deleted_context_leaves_its_version_until_its_tombstone(redis_url: str) -> None:
    tenant, path = uuid4().hex, "workflow_type=refund"
    gone = threshold(tenant, offset=5, deleted=True)

    async def run() -> None:
        async with ThresholdPublisher(redis_url) as publisher:
            await publisher.publish([threshold(tenant, offset=4)])
            await publisher.publish([gone])
            await publisher.publish([threshold(tenant, offset=4)])  # a late writer
            assert stored(redis_url, tenant) == {path: {"epoch": 1, "offset": 5, "deleted": True}}
            with Thresholds(redis_url) as reader:
                assert not reader.get(tenant=tenant, workflow_type="refund").known
            await publisher.delete_expired([gone])
            assert stored(redis_url, tenant) == {}
            await publisher.publish([threshold(tenant, offset=6)])
            await publisher.delete_expired([gone])  # it is back
            assert stored(redis_url, tenant)[path]["offset"] == 6

    asyncio.run(run())


@pytest.mark.integration
def test_a_server_that_has_become_a_replica_is_left(redis_url: str) -> None:
    """Its name may lead to another by now; a connection that stays would never know."""
    tenant = uuid4().hex

    async def body(client: redis.Redis) -> None:
        def connected() -> set[str]:
            return {each["id"] for each in client.client_list()}

        async with ThresholdPublisher(redis_url) as publisher:
            others = connected()
            await publisher.publish([threshold(tenant)])
            ours = connected() - others
            assert ours
            client.replicaof("127.0.0.1", 1)
            try:
                for count in (1, 3 * MAX_CALL):  # one call, and several in one request
                    with pytest.raises(RedisUnreachable):
                        await publisher.publish([threshold(tenant, offset=2)] * count)
                    assert not ours & connected()
                    ours = connected() - others
            finally:
                client.replicaof("NO", "ONE")
            assert await publisher.publish([threshold(tenant, offset=2)]) == 1

    with redis.Redis.from_url(redis_url) as client:
        asyncio.run(body(client))
