"""Values of Redis that differ from the table: found, classified, replaced, and announced."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import orjson
import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from headstart import Thresholds
from headstart.keys import redis_key
from sinks.redis.comparison import REPAIRED_KEPT_MS, Expected, RedisComparison, Repair, StoredField
from sinks.redis.known_names import known_names
from sinks.redis.queries import (
    UnreadableFields,
    served_chain,
    served_thresholds,
)
from sinks.redis.stored_fields import (
    MOST_BYTES,
    Field,
    Reach,
    UnreadableValue,
    classify,
    classify_ahead,
    field_of,
    owner_of,
    read_stored,
)
from sinks.redis.thresholds import ThresholdPublisher, encode_value
from tests.patience import until
from topics.schema.json_schema import PublishedThreshold

PATH = "workflow_type=refund"
REACH = Reach(epoch=7, applied_offset=100)

UNREADABLE = {
    "not json": b"{oops",
    "empty": b"",
    "list": b"[1]",
    "number": b"5",
    "null": b"null",
    "binary": b"\xff\xfe\x00",
    "no threshold": b'{"epoch":7,"offset":1,"suggest":0.5,"outcomes":1}',
    "text": b'{"speculate":"0.1","suggest":0.5,"epoch":7,"offset":1,"outcomes":1}',
    "negative": b'{"speculate":-5,"suggest":0.5,"epoch":7,"offset":1,"outcomes":1}',
    "nan": b'{"speculate":NaN,"suggest":0.5,"epoch":7,"offset":1,"outcomes":1}',
    "truth": b'{"speculate":0.1,"suggest":0.5,"epoch":7,"offset":1,"outcomes":true}',
    "no version": b'{"speculate":0.1,"suggest":0.5,"outcomes":1}',
    "text version": b'{"speculate":0.1,"suggest":0.5,"epoch":"7","offset":1,"outcomes":1}',
    "negative outcomes": b'{"speculate":0.1,"suggest":0.5,"epoch":7,"offset":1,"outcomes":-7}',
    "endless outcomes": b'{"speculate":0.1,"suggest":0.5,"epoch":7,"offset":1,"outcomes":1e400}',
    "wide counts": b'{"speculate":0.1,"suggest":0.5,"epoch":7,"offset":1,"outcomes":1,'
    b'"counts":[1,1e308]}',
    "negative counts": b'{"speculate":0.1,"suggest":0.5,"epoch":7,"offset":1,"outcomes":1,'
    b'"counts":[-1]}',
    "cut counts": b'{"speculate":0.1,"suggest":0.5,"epoch":7,"offset":1,"outcomes":1,'
    b'"counts":[1,1]}',
    "empty counts": b'{"speculate":0.1,"suggest":0.5,"epoch":7,"offset":1,"outcomes":1,'
    b'"counts":[]}',
    "late": b'{"speculate":0.1,"suggest":0.5,"epoch":7,"offset":1,"outcomes":1,"at":4e18}',
    "huge": b'{"pad":"' + b"x" * MOST_BYTES + b'"}',
    "deep": b'{"a":' * 5000 + b"1" + b"}" * 5000,
}


def threshold(
    tenant: str = "t", epoch: int = 7, offset: int = 50, **fields: Any
) -> PublishedThreshold:
    values = {
        "tenant": tenant, "workflow_type": "refund", "path": PATH, "speculate": 0.8,
        "suggest": 0.6, "epoch": epoch, "offset": offset, "outcomes": 3, "learner": "ema", "at": 5,
    }  # fmt: skip
    return PublishedThreshold(**{**values, **fields})


def value(**fields: Any) -> bytes:
    return orjson.dumps({**orjson.loads(encode_value(threshold())), **fields})


@pytest.mark.parametrize("raw", UNREADABLE.values(), ids=UNREADABLE)
def test_invalid_values_are_unreadable(raw: bytes) -> None:
    with pytest.raises(UnreadableValue):
        read_stored(raw)
    assert classify(threshold(), raw, REACH) == "unreadable"
    assert classify(None, raw, REACH) == "unreadable"


GONE = threshold(deleted=True)
JUDGED: list[tuple[PublishedThreshold | None, bytes | None, str | None]] = [
    (threshold(), encode_value(threshold()), None),
    (threshold(), value(gain=0.0), None),  # a version that writes out its defaults
    (threshold(), value(gain=1.0), "differing"),
    (threshold(), value(later="x"), None),  # a field of a later version
    (threshold(), value(speculate=0.01), "differing"),
    (threshold(), orjson.dumps(dict(reversed(orjson.loads(value()).items()))), None),
    (threshold(), None, "missing"),
    (threshold(), value(offset=49), "behind"),
    (threshold(), value(epoch=6, offset=900), "behind"),
    (threshold(), value(offset=51), "newer"),  # the row would have it: it is of offset 100
    (threshold(), value(offset=100), "newer"),
    (threshold(), value(offset=101), "ahead"),
    (threshold(), value(epoch=8, offset=0), "newer"),
    (threshold(), value(epoch=9_999_999_999), "newer"),
    (threshold(), encode_value(threshold(offset=60, deleted=True)), "newer"),
    (GONE, None, None),
    (GONE, encode_value(GONE), None),
    (GONE, value(offset=49), "behind"),
    (GONE, value(), "differing"),
    (None, None, None),
    (None, value(), "unknown"),
    (None, value(offset=101), "ahead"),
    (None, value(epoch=8), "unknown"),
    (None, value(epoch=6), "outdated"),  # of this system, before its partitions were changed
    (None, value(epoch=6, offset=900), "outdated"),
    (None, encode_value(GONE), None),  # the mark outlives the row
    (None, encode_value(threshold(epoch=6, deleted=True)), None),
    (None, encode_value(threshold(epoch=8, deleted=True)), "unknown"),
    (None, encode_value(threshold(offset=101, deleted=True)), "ahead"),
]


@pytest.mark.parametrize(("expected", "raw", "found"), JUDGED)
def test_classification_of_a_value(
    expected: PublishedThreshold | None, raw: bytes | None, found: str | None
) -> None:
    assert classify(expected, raw, REACH) == found
    if expected is None and raw and b"deleted" in raw and found is None:
        assert classify(expected, raw, REACH, marks=True) == "expired"
    else:
        assert classify(expected, raw, REACH, marks=True) == found


def test_a_newer_version_is_wrong_only_beyond_the_end_of_the_log() -> None:
    raw = value(offset=120)
    assert classify_ahead(raw, 121, known=True) is None
    assert classify_ahead(raw, 120, known=True) == "newer"
    assert classify_ahead(raw, 120, known=False) == "unknown"


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_no_bytes_break_the_judgement(raw: bytes) -> None:
    assert classify(threshold(), raw, REACH) == "unreadable"
    field_of(redis_key("t", "refund").encode(), raw)
    owner_of(raw)
    owner_of(b"headstart:thresholds:" + raw)


def test_which_fields_are_contexts() -> None:
    key = redis_key("a:b", "re/fund").encode()
    path = b"workflow_type=re%2Ffund"
    assert field_of(key, path) == Field("a:b", "re/fund", path.decode())
    assert field_of(key, path + b"/domain=x/user_id=y") is not None
    others = (b"!overrides", b"default", b"workflow_type=other", path + b"/domain", path + b"/=x")
    assert not any(field_of(key, name) for name in (*others, b"\xff", b""))
    assert field_of(redis_key("t", "").encode(), b"default") == Field("t", "", "default")
    assert owner_of(key) == ("a:b", "re/fund")
    for foreign in (b"headstart:thresholds:x", b"headstart:thresholds:a:b:c", b"headstart:modes"):
        assert owner_of(foreign) is None
    assert owner_of(b"headstart:thresholds:%41:x") is None  # of two spellings one is ours


def compared(url: str, body: Callable[[RedisComparison], Any]) -> Any:
    async def run() -> Any:
        async with RedisComparison(url) as comparison:
            return await body(comparison)

    return asyncio.run(run())


def differing(url: str, *thresholds: PublishedThreshold) -> list[StoredField]:
    expected = [
        Expected(Field(t.tenant, t.workflow_type, t.path), encode_value(t)) for t in thresholds
    ]
    found: list[StoredField] = compared(url, lambda comparison: comparison.differing(expected))
    return found


def repair(url: str, *repairs: Repair, now: int = 0) -> list[bool]:
    done: list[bool] = compared(url, lambda comparison: comparison.repair(repairs, now))
    return done


def publish(url: str, *batch: PublishedThreshold) -> None:
    async def run() -> None:
        async with ThresholdPublisher(url) as publisher:
            await publisher.publish(batch)

    asyncio.run(run())


@pytest.mark.integration
def test_only_differing_fields_are_replaced(redis_url: str, tenant: str) -> None:
    right = [
        threshold(tenant, workflow_type=kind, path=f"workflow_type={kind}/n={n}")
        for kind in ("a", "b")
        for n in range(120)
    ]
    publish(redis_url, *right)
    assert differing(redis_url, *right) == []
    with redis.Redis.from_url(redis_url) as client:
        for number, raw in enumerate(UNREADABLE.values()):
            client.hset(redis_key(tenant, "a"), right[number].path, raw)
        client.hdel(redis_key(tenant, "b"), right[130].path)
    found = differing(redis_url, *right)
    assert len(found) == len(UNREADABLE) + 1
    wrong = {each.field.path: each for each in found}
    assert wrong[right[130].path].raw is None
    assert {len(each.raw) for each in found if each.raw and len(each.raw) > 50_000} == {
        MOST_BYTES + 1
    }
    by_path = {each.path: each for each in right}
    repairs = [Repair(each, by_path[each.field.path]) for each in found]
    assert repair(redis_url, *repairs) == [True] * len(found)
    assert differing(redis_url, *right) == []
    assert repair(redis_url, *repairs) == [False] * len(found)  # it is no longer what was seen


@pytest.mark.integration
def test_a_value_that_is_newer_by_then_is_not_replaced(redis_url: str, tenant: str) -> None:
    old = threshold(tenant, offset=1)
    (missing,) = differing(redis_url, old)
    publish(redis_url, threshold(tenant, offset=2))
    assert repair(redis_url, Repair(missing, old)) == [False]
    (behind,) = differing(redis_url, old)
    publish(redis_url, threshold(tenant, offset=3))
    assert repair(redis_url, Repair(behind, old), Repair(behind, None)) == [False, False]
    assert differing(redis_url, threshold(tenant, offset=3)) == []


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["string", "list", "set", "zset", "stream"])
def test_a_key_of_another_type_is_replaced(redis_url: str, tenant: str, kind: str) -> None:
    key = redis_key(tenant, "refund")
    with redis.Redis.from_url(redis_url) as client:
        writes: dict[str, Callable[[], Any]] = {
            "string": lambda: client.set(key, "x"),
            "list": lambda: client.rpush(key, "x"),
            "set": lambda: client.sadd(key, "x"),
            "zset": lambda: client.zadd(key, {"x": 1}),
            "stream": lambda: client.xadd(key, {"x": "1"}),
        }
        writes[kind]()
        right = [threshold(tenant), threshold(tenant, path=f"{PATH}/domain=d")]
        found = differing(redis_url, *right)
        assert {each.other_type for each in found} == {kind}
        unread: list[UnreadableFields] = []
        assert listed(redis_url, tenant, unread) == []
        assert [(each.workflow_type, kind in each.why) for each in unread] == [("refund", True)]
        assert repair(redis_url, *map(Repair, found, right)) == [True, True]
        assert differing(redis_url, *right) == []
        assert client.type(f"headstart:set-aside:{{{key}}}") == kind.encode()


@pytest.mark.integration
def test_all_fields_that_may_be_contexts_are_named(redis_url: str, tenant: str) -> None:
    mine = [threshold(tenant, path=f"{PATH}/n={n}") for n in range(700)]
    publish(redis_url, *mine, threshold(tenant, workflow_type="", path="default"))
    with redis.Redis.from_url(redis_url) as client:
        client.hset(redis_key(tenant, "refund"), "!overrides", "[]")
        client.hset(redis_key(tenant, "refund"), "someone's", "own")
        client.set(redis_key(tenant, "string"), "x")

    async def names(comparison: RedisComparison) -> set[Field]:
        return {each async for some in comparison.fields() for each in some}

    found = {each.path for each in compared(redis_url, names) if each.tenant == tenant}
    assert found == {each.path for each in mine} | {"default"}


@pytest.mark.integration
@pytest.mark.parametrize("wrong", ["newer", "differing", "unknown"])
def test_a_reader_follows_a_repair_to_a_lower_version(
    redis_url: str, tenant: str, wrong: str
) -> None:
    """Whether it receives the announcement, starts later, or asks each time."""
    right, key = threshold(tenant), redis_key(tenant, "refund")
    publish(redis_url, right)
    foreign = json.loads(encode_value(right)) | {"speculate": 0.01}
    if wrong != "differing":
        foreign |= {"epoch": 9_999_999_999}
    context = {"workflow_type": "refund", "tenant": tenant}
    with redis.Redis.from_url(redis_url) as client:
        client.hset(key, PATH, json.dumps(foreign))
        with (
            Thresholds(redis_url) as following,
            Thresholds(redis_url, staleness_s=0) as asking,
            Thresholds(redis_url) as later,
        ):
            assert {r.get(context).speculate for r in (following, asking, later)} == {0.01}
            until(lambda: following.get(context) and following.stats()["hits"] > 5)
            (found,) = differing(redis_url, right)
            assert repair(redis_url, Repair(found, None if wrong == "unknown" else right)) == [True]
            expected = 0.92 if wrong == "unknown" else 0.8
            assert asking.get(context).speculate == expected
            for reader in (following, later):
                until(lambda reader=reader: reader.get(context).speculate == expected)
            publish(redis_url, threshold(tenant, offset=51, speculate=0.7))
            until(lambda: following.get(context).speculate == 0.7)
            assert asking.get(context).speculate == 0.7


@pytest.mark.integration
def test_each_repair_of_a_hash_has_a_higher_number(redis_url: str, tenant: str) -> None:
    key, now = redis_key(tenant, "refund"), time.time_ns() // 1_000_000
    with redis.Redis.from_url(redis_url) as client:
        numbers = []
        for at in (now, now, now - 5_000):
            client.hdel(key, PATH)
            (missing,) = differing(redis_url, threshold(tenant))
            assert repair(redis_url, Repair(missing, threshold(tenant)), now=at) == [True]
            numbers.append(int(client.hget(key, "!repaired") or 0))
    assert numbers == [now, now + 1, now + 2]


@pytest.mark.integration
def test_the_number_of_a_repair_outlives_the_last_path_for_a_week(
    redis_url: str, tenant: str
) -> None:
    """So that readers that were away notice that a path has gone; nothing is served there."""
    key, now = redis_key(tenant, "refund"), time.time_ns() // 1_000_000
    publish(redis_url, threshold(tenant))

    async def tidied(comparison: RedisComparison, at: int) -> None:
        async for _fields in comparison.fields(tidy_at=at):
            pass

    with redis.Redis.from_url(redis_url) as client:
        client.hset(key, PATH, "{oops")
        (unknown,) = differing(redis_url, threshold(tenant))
        assert repair(redis_url, Repair(unknown, None), now=now) == [True]
        assert client.hkeys(key) == [b"!repaired"]
        assert not {each for each in asyncio.run(known_names(redis_url)) if each[0] == tenant}
        for at in (0, now, now + REPAIRED_KEPT_MS):
            compared(redis_url, lambda comparison, at=at: tidied(comparison, at))
            assert client.exists(key)
        publish(redis_url, threshold(tenant, path=f"{PATH}/domain=d"))
        later = now + REPAIRED_KEPT_MS + 1
        compared(redis_url, lambda comparison: tidied(comparison, later))
        assert client.hlen(key) == 2
        assert (tenant, "refund") in asyncio.run(known_names(redis_url))
        client.hdel(key, f"{PATH}/domain=d")
        compared(redis_url, lambda comparison: tidied(comparison, later))
        assert not client.exists(key)


def listed(url: str, tenant: str, unread: list[UnreadableFields]) -> list[str]:
    async def run() -> list[str]:
        return [e["path"] async for e in served_thresholds(url, tenant, unreadable=unread)]

    return sorted(asyncio.run(run()))


@pytest.mark.integration
def test_unreadable_values_are_named_and_the_rest_listed(redis_url: str, tenant: str) -> None:
    publish(redis_url, threshold(tenant), threshold(tenant, path=f"{PATH}/domain=d"))
    key = redis_key(tenant, "refund")
    with redis.Redis.from_url(redis_url) as client:
        for name, raw in UNREADABLE.items():
            client.hset(key, f"{PATH}/domain={name}", raw)
        client.hset(key, b"\xff\xfe", b"{}")
        client.hset(key, "!overrides", "{oops")
        client.hset(key, "!repaired", "12")
    unread: list[UnreadableFields] = []
    assert listed(redis_url, tenant, unread) == [PATH, f"{PATH}/domain=d"]
    assert len(unread) == len(UNREADABLE) + 1
    assert {each.tenant for each in unread} == {tenant}
    chain = [PATH, f"{PATH}/domain=list"]
    unread.clear()
    values, overrides = asyncio.run(served_chain(redis_url, tenant, "refund", chain, unread))
    assert values[0] is not None
    assert (values[1], overrides) == (None, b"{oops")
    assert [each.path for each in unread] == [chain[1], "!overrides"]


@pytest.mark.integration
def test_keys_that_are_no_hash_of_ours_break_nothing(redis_url: str) -> None:
    name = uuid4().hex
    keys = [f"headstart:thresholds:{name}", f"headstart:thresholds:{name}:b:c"]
    with redis.Redis.from_url(redis_url) as client:
        try:
            for key in (*keys, b"headstart:thresholds:\xff:" + name.encode()):
                client.hset(key, "a", "b")
            unread: list[UnreadableFields] = []

            async def run() -> None:
                async for _each in served_thresholds(redis_url, unreadable=unread):
                    pass

            asyncio.run(run())
            assert sum(name in each.workflow_type for each in unread) == 3
        finally:
            client.delete(*keys, b"headstart:thresholds:\xff:" + name.encode())
