"""`headstart verify`: silent where all agrees, and it names what does not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis import Redis

from deploy.system import System
from headstart.connections.kafka_connections import new_producer
from headstart.keys import event_key, redis_key
from processing.records.partitioner import partition_for
from tests.patience import PATIENCE_S
from tests.secured import stack_config
from topics.catalogue import EVENTS, THRESHOLDS_GROUP
from topics.dead_letters.messages import GROUP_HEADER

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

Event = dict[str, Any]
PATH = "workflow_type=refund"


@pytest.fixture(scope="module")
def own(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system that may be damaged. A running broker belongs to others."""
    if broker not in ("embedded", "apache"):
        pytest.skip("a broker that runs already is not to be damaged")
    config = stack_config(data=tmp_path_factory.mktemp("verified"), kafka=broker)
    unaided = {"HEADSTART_CHECK_REDIS_S": "0"}  # workers repair nothing by themselves
    with System(config, partitions=2, environment=unaided) as running:
        yield running


@pytest.fixture
def filled(
    own: System,
    judged: Callable[..., Event],
    write_events: Callable[[Sequence[Event]], Path],
    headstart: Any,
    tenant: str,
) -> list[Event]:
    events = [judged(tenant, f"{kind}") for kind in ("refund", "order") for _ in range(40)]
    starts = [
        {
            **judged(tenant, "order"),
            "event_type": "speculation_start",
            "task_id": str(number),
            "data": {"prediction": {"tool_id": "search", "speculated": True}},
        }
        for number in range(5)
    ]
    ended = headstart("emit", write_events([*events, *starts]), "--kafka", own.addresses.kafka)
    assert ended.returncode == 0, ended.stderr
    assert own.drain(PATIENCE_S)
    return events


@pytest.fixture
def verify(own: System, headstart: Any) -> Callable[..., dict[str, Any]]:
    at = own.addresses

    def run(*more: str | Path, code: int) -> dict[str, Any]:
        places = ("--kafka", at.kafka, "--postgres", at.postgres, "--redis", at.redis)
        ended = headstart("verify", *places, "--json", *more)
        assert ended.returncode == code, ended.stderr
        found: dict[str, Any] = json.loads(ended.stdout)
        return found

    return run


def test_agreement_is_reported(
    filled: list[Event], verify: Callable[..., dict[str, Any]], own: System
) -> None:
    found = verify(code=0)
    assert found["ok"]
    assert found["counts"] == {}
    assert found["events"] >= 85
    assert found["partitions"] == 2


async def send(kafka: str, tenant: str, value: bytes, group: str) -> None:
    async with new_producer(kafka) as producer:
        await producer.send_and_wait(
            EVENTS.name,
            value,
            key=event_key(tenant, "refund"),
            partition=partition_for(tenant, "refund", 2),
            headers=[(GROUP_HEADER, group.encode())],
        )


def test_records_for_the_thresholds_only_are_not_reported_missing(
    filled: list[Event],
    verify: Callable[..., dict[str, Any]],
    own: System,
    tenant: str,
    judged: Callable[..., Event],
) -> None:
    event = judged(tenant, "refund")
    asyncio.run(send(own.addresses.kafka, tenant, json.dumps(event).encode(), THRESHOLDS_GROUP))
    assert own.drain(PATIENCE_S)
    found = verify(code=0)
    assert found["counts"] == {}


def test_values_changed_in_redis_are_reported_and_repaired(
    filled: list[Event],
    verify: Callable[..., dict[str, Any]],
    own: System,
    tenant: str,
    headstart: Any,
) -> None:
    key, order, far = redis_key(tenant, "refund"), redis_key(tenant, "order"), 9_999_999_999
    finer = f"{PATH}/domain=retail"
    with Redis.from_url(own.addresses.redis) as redis:
        before = redis.hgetall(key)
        value = json.loads(before[PATH.encode()])
        redis.hset(key, PATH, json.dumps({**value, "epoch": far, "speculate": 0.01}))
        redis.hset(key, finer, "{oops")
        redis.hset(key, f"{PATH}/made=up", json.dumps(value))
        redis.hset(key, "someone's", "own")
        redis.hset("headstart:modes", "*", "off")  # by hand: it restricts, so it stays
        redis.delete(order)
        redis.set(order, "no hash")
        found = verify(code=1)
        counts = found["counts"]
        assert counts == {
            "redis_newer": 1, "redis_unreadable": 1, "redis_unknown": 1, "redis_wrong_type": 2,
            "redis_foreign": 1, "redis_restricting": 1,
        }  # fmt: skip
        (newer,) = (each for each in found["named"] if each["finding"] == "redis_newer")
        assert (newer["tenant"], newer["workflow_type"]) == (tenant, "refund")
        assert newer["path"] == PATH
        assert newer["served"].startswith(f"{far}:")
        assert "headstart thresholds republish" in newer["fix"]

        at = own.addresses
        listed = headstart("thresholds", "list", "--redis", at.redis, "--tenant", tenant)
        assert listed.returncode == 0, listed.stderr
        assert PATH in listed.stdout
        assert finer in listed.stderr
        assert "not a hash" in listed.stderr
        ended = headstart(
            "thresholds", "republish", "--kafka", at.kafka, "--redis", at.redis, "--json"
        )
        assert ended.returncode == 0, ended.stderr
        assert json.loads(ended.stdout)["repaired"] == 5
        after = redis.hgetall(key)
        assert after.pop(b"someone's") == b"own"
        assert after.pop(b"!repaired")
        assert after == before
        redis.hdel(key, "someone's")
        redis.delete("headstart:modes")
    verify(code=0)


def test_an_episode_that_is_gone_is_named(
    filled: list[Event], verify: Callable[..., dict[str, Any]], own: System
) -> None:
    lost = filled[3]["id"]
    with psycopg.connect(own.addresses.postgres, autocommit=True) as connection:
        kept = connection.execute(
            "DELETE FROM episodic_events WHERE id = %s RETURNING *", (lost,)
        ).fetchall()
    assert len(kept) == 1
    found = verify(code=1)
    assert found["counts"] == {"episode_missing": 1}
    assert found["named"][0]["id"] == lost
