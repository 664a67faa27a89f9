"""A system whose Redis is a cluster: a master dies, and thresholds and modes go on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.system import System
from headstart import Thresholds
from headstart.keys import redis_key
from tests.clusters import Cluster
from tests.patience import until
from tests.secured import stack_config

pytestmark = [
    pytest.mark.integration,
    pytest.mark.any_broker,
    pytest.mark.plain_only(reason="the Redis Cluster of the test has no TLS"),
]

Event = dict[str, Any]
OUTCOMES = 5


@pytest.fixture
def own(
    broker: str, mortal_cluster: Cluster, messages: list[str], tmp_path: Path
) -> Iterator[System]:
    config = stack_config(data=tmp_path / "own", kafka=broker, redis=mortal_cluster.url)
    with System(config, partitions=2, echo=messages.append) as running:
        yield running


def test_thresholds_and_modes_go_on_after_a_failover(
    own: System,
    mortal_cluster: Cluster,
    messages: list[str],
    judged: Callable[..., Event],
    write_events: Callable[[Sequence[Event]], Path],
    headstart: Any,
    tenant: str,
) -> None:
    at = own.addresses
    where = ("--kafka", at.kafka, "--postgres", at.postgres, "--redis", at.redis)
    given = len(messages)

    def emit() -> None:
        events = [judged(tenant) for _ in range(OUTCOMES)]
        ended = headstart("emit", write_events(events), "--kafka", at.kafka)
        assert ended.returncode == 0, ended.stderr

    def run(*words: object) -> Any:
        ended = headstart(*words, *where)
        assert ended.returncode == 0, ended.stderr
        return ended

    with Thresholds(at.redis, timeout_s=5.0) as reader:

        def outcomes() -> int:
            return reader.get(workflow_type="refund", tenant=tenant).outcomes

        emit()
        until(lambda: outcomes() == OUTCOMES, meanwhile=own.check, seen=outcomes)
        until(lambda: reader.mode(tenant) == "act", meanwhile=own.check)
        headstart("config", "set", "mode", "off", "--tenant", tenant, *where[:2], *where[4:])
        until(lambda: reader.mode(tenant) == "off", meanwhile=own.check)
        mortal_cluster.fail_over(redis_key(tenant, "refund"))
        emit()
        until(lambda: outcomes() == 2 * OUTCOMES, meanwhile=own.check, seen=outcomes)
        until(lambda: reader.mode(tenant) == "off", meanwhile=own.check)
    assert not messages[given:], "no worker ended"

    verified = run("verify", "--json", "--caught-up")
    doctor = headstart("doctor", *where, "--data", own.data, "--json")
    found = [each for each in json.loads(doctor.stdout)["findings"] if each["check"] == "redis"]
    assert len(found) == 3
    assert {each["level"] for each in found} == {"ok"}, found
    assert "secret" not in verified.stdout + verified.stderr + doctor.stdout + doctor.stderr
