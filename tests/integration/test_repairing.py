"""A running system repairs what another program changed in its Redis, and readers follow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from deploy.system import System
from headstart import Thresholds
from headstart.keys import redis_key
from tests.patience import PATIENCE_S, until
from tests.secured import reading, stack_config

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

Event = dict[str, Any]
PATH = "workflow_type=refund"


@pytest.fixture(scope="module")
def own(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system that looks at its Redis every second."""
    if broker not in ("embedded", "apache"):
        pytest.skip("a broker that runs already is not to be damaged")
    config = stack_config(data=tmp_path_factory.mktemp("repairing"), kafka=broker)
    with System(config, partitions=2, environment={"HEADSTART_CHECK_REDIS_S": "1"}) as running:
        yield running


def test_foreign_values_are_removed_and_readers_follow(
    own: System,
    judged: Callable[..., Event],
    write_events: Callable[[Sequence[Event]], Path],
    headstart: Any,
    tenant: str,
) -> None:
    at = own.addresses
    events = [judged(tenant) for _ in range(40)]
    assert headstart("emit", write_events(events), "--kafka", at.kafka).returncode == 0
    assert own.drain(PATIENCE_S)
    ended = headstart(
        "config", "set", "mode", "observe", "--tenant", tenant, "--kafka", at.kafka,
        "--redis", at.redis,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    key, modes = redis_key(tenant, "refund"), f"headstart:modes:{tenant}"
    with Redis.from_url(at.redis) as redis, Thresholds(reading(at)) as reader:
        right = redis.hgetall(key)
        assert right
        learned = reader.get(workflow_type="refund", tenant=tenant)
        foreign = json.loads(right[PATH.encode()]) | {"epoch": 9_999_999_999, "speculate": 0.01}

        def repaired() -> bool:
            found = redis.hgetall(key) if redis.type(key) == b"hash" else {}
            found.pop(b"!repaired", None)
            return bool(own.check() or found == right)

        for damage in (
            lambda: redis.hset(key, PATH, json.dumps(foreign)),
            lambda: redis.hset(key, PATH, b"\xff{oops"),
            lambda: redis.hset(key, f"{PATH}/domain=retail", "[1]"),
            lambda: redis.hdel(key, PATH),
            lambda: redis.delete(key),
            lambda: (redis.delete(key), redis.set(key, "no hash")),
        ):
            damage()
            until(repaired)
        redis.hset(key, PATH, json.dumps(foreign))
        with Thresholds(reading(at)) as later:
            assert later.get(workflow_type="refund", tenant=tenant).speculate in (
                0.01, learned.speculate
            )  # fmt: skip
            until(repaired)
            for each in (reader, later):
                until(
                    lambda each=each: (
                        each.get(workflow_type="refund", tenant=tenant)[:5] == learned[:5]
                    )
                )
        redis.hset(modes, "*", "act")
        until(lambda: own.check() or redis.hget(modes, "*") == b"observe")
        redis.hset(modes, "*", "off")
        redis.hset("headstart:modes", "*", "off")
        redis.hset(key, PATH, json.dumps(foreign))
        until(repaired)  # it has looked since
        assert redis.hget(modes, "*") == redis.hget("headstart:modes", "*") == b"off"

        def worker() -> dict[str, Any]:
            status = headstart("status", "--kafka", at.kafka, "--redis", at.redis, "--postgres",
                               at.postgres, "--data", own.data, "--json")  # fmt: skip
            workers = {each["worker"]: each for each in json.loads(status.stdout)["workers"]}
            found: dict[str, Any] = workers["thresholds"]
            return found

        until(lambda: own.check() or worker()["redis_kept"] == 2)  # modes are looked at apart
        assert worker()["redis_repaired"]["newer"] >= 2
        redis.delete("headstart:modes")
