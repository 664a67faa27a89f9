"""Commands on a system whose Redis is a cluster: each finds, writes and deletes on every master."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.system import System
from headstart import Thresholds
from headstart.keys import redis_key
from tests.clusters import MASTERS, Cluster
from tests.patience import PATIENCE_S, until
from tests.secured import stack_config

pytestmark = [
    pytest.mark.integration,
    pytest.mark.any_broker,
    pytest.mark.plain_only(reason="the Redis Cluster of the test has no TLS"),
]

Event = dict[str, Any]
Run = Callable[..., Event]
TYPES = [f"type-{number}" for number in range(9)]
OUTCOMES = 4
USER = "u7"


@pytest.fixture
def own(broker: str, cluster: Cluster, messages: list[str], tmp_path: Path) -> Iterator[System]:
    config = stack_config(data=tmp_path / "own", kafka=broker, redis=cluster.url)
    unaided = {"HEADSTART_CHECK_REDIS_S": "0"}  # workers repair nothing by themselves
    with System(config, partitions=2, environment=unaided, echo=messages.append) as running:
        yield running


@pytest.fixture
def run(own: System, headstart: Any) -> Run:
    """Run a command on the system with --json; return the object on the last line of stdout."""

    def run(*words: str) -> Event:
        ended = headstart(*words, "--json", "--data", own.data)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "secret" not in ended.stdout + ended.stderr
        found: Event = json.loads(ended.stdout.splitlines()[-1])
        return found

    return run


class Hashes:
    """The thresholds of a tenant, read from the node that has each."""

    def __init__(self, cluster: Cluster, tenant: str) -> None:
        self.cluster, self.tenant = cluster, tenant

    def of(self, workflow_type: str) -> dict[str, Event]:
        key = redis_key(self.tenant, workflow_type)
        found = self.cluster.owner(key).client.hgetall(key)
        read = {path.decode(): json.loads(raw) for path, raw in found.items() if path[:1] != b"!"}
        return {path: value for path, value in read.items() if not value.get("deleted")}

    def all(self) -> dict[str, dict[str, Event]]:
        return {each: self.of(each) for each in TYPES}


@pytest.fixture
def learned(
    own: System,
    cluster: Cluster,
    judged: Callable[..., Event],
    write_events: Callable[[Sequence[Event]], Path],
    headstart: Any,
    tenant: str,
) -> Hashes:
    """Outcomes of workflow types whose hashes are on every master."""
    owners = {cluster.owner(redis_key(tenant, each)).port for each in TYPES}
    events = [judged(tenant, each, user_id=USER) for each in TYPES for _ in range(OUTCOMES)]
    ended = headstart("emit", write_events(events), "--kafka", own.addresses.kafka)
    assert ended.returncode == 0, ended.stderr
    assert own.drain(PATIENCE_S)
    assert len(owners) == MASTERS
    return Hashes(cluster, tenant)


def test_commands(own: System, run: Run, learned: Hashes, tenant: str) -> None:
    shown(run, learned, tenant)
    configured(own, run, tenant)
    repaired(run, learned, tenant)
    rebuilt(run, learned, tenant)
    deleted(own, run, learned, tenant)
    run("status")
    assert run("verify", "--caught-up")["ok"]


def shown(run: Run, learned: Hashes, tenant: str) -> None:
    """What is served is read from all masters."""
    served = {path for each in learned.all().values() for path in each}
    listed = run("thresholds", "list", "--tenant", tenant)
    assert {each["path"] for each in listed["thresholds"]} == served
    assert listed["total"] == len(served) == 3 * len(TYPES)
    for workflow_type in TYPES:
        one = run(
            "thresholds", "show", "--tenant", tenant, "--workflow-type", workflow_type,
            "--domain", "retail", "--user", USER,
        )  # fmt: skip
        assert one["speculate"] == learned.of(workflow_type)[one["level"]]["speculate"]
    assert run("contexts", "--tenant", tenant)["total"] == len(served)


def configured(own: System, run: Run, tenant: str) -> None:
    """Modes and overrides."""
    where = ("--tenant", tenant, "--workflow-type", TYPES[0])
    with Thresholds(own.addresses.redis, timeout_s=5.0) as reader:
        run("config", "set", "mode", "observe", "--tenant", tenant)
        run("config", "set", "threshold", "--speculate", "0.77", *where)
        until(lambda: reader.mode(tenant) == "observe")
        read = lambda: reader.get(workflow_type=TYPES[0], tenant=tenant).speculate  # noqa: E731
        until(lambda: read() == 0.77, seen=read)
        run("config", "unset", "threshold", *where)
        run("config", "unset", "mode", "--tenant", tenant)
        until(lambda: read() != 0.77, seen=read)
        until(lambda: reader.mode(tenant) == "act")


def repaired(run: Run, learned: Hashes, tenant: str) -> None:
    """A hash of each master is damaged, and written again from the table."""
    right = learned.all()
    for workflow_type in TYPES:
        key = redis_key(tenant, workflow_type)
        client = learned.cluster.owner(key).client
        client.hset(key, f"workflow_type={workflow_type}", "[1]")
        client.hdel(key, f"workflow_type={workflow_type}/domain=retail")
    found = run("thresholds", "republish", "--tenant", tenant)
    assert found["repaired"] == 2 * len(TYPES)
    assert learned.all() == right


def rebuilt(run: Run, learned: Hashes, tenant: str) -> None:
    """Every context is switched to another policy's table."""
    run("rebuild", "--tenant", tenant, "--policy", "ema:alpha=.5", "--yes")
    served = [value for each in learned.all().values() for value in each.values()]
    assert len(served) == 3 * len(TYPES)
    assert {value["learner"].partition(":")[0] for value in served} == {"ema"}


def deleted(own: System, run: Run, learned: Hashes, tenant: str) -> None:
    """Contexts leave the masters that have them."""
    run("thresholds", "reset", f"workflow_type={TYPES[0]}", "--tenant", tenant, "--yes")
    until(lambda: not learned.of(TYPES[0]), meanwhile=own.check)
    run("memory", "purge", "--tenant", tenant, "--user", USER, "--yes")
    assert not [path for each in learned.all().values() for path in each if USER in path]
    run("verify", "--purged")
