"""Retention and compaction remove from the topics what a purge has left in them.

On a broker that cleans every second: the embedded one deletes and compacts nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from deploy.local.apache_kafka import Apache, ClusterMember, new_cluster_id
from deploy.system import System
from tests.chaos.services import KillableServer
from tests.integration.agent_runs import agent_run
from tests.integration.topic_records import read_whole_topic
from tests.patience import PATIENCE_S, until
from tests.secured import stack_config
from topics.catalogue import CHANGELOG, EVENTS, THRESHOLDS, Topic
from topics.kafka.admin import admin_client

pytestmark = [
    pytest.mark.integration,
    pytest.mark.apache,
    pytest.mark.slow,
    pytest.mark.plain_only(reason="a broker of the test's own, which cleans topics every second"),
]

USER = "canary-c3a0"
TEXT = "canary-91f7"
CLEANING = """\
log.retention.check.interval.ms=500
log.initial.task.delay.ms=500
log.cleaner.backoff.ms=500
log.segment.delete.delay.ms=100
"""
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.001",
    "min.compaction.lag.ms": "0",
    "segment.ms": "500",
}


@pytest.fixture
def cleaning(tmp_path: Path) -> Iterator[System]:
    """A system on a broker that deletes and compacts within seconds, if a topic is set so."""
    member = ClusterMember(new_cluster_id(), CLEANING)
    broker = KillableServer(
        lambda group, ports, port: Apache(group, ports, port, member), tmp_path / "broker"
    )
    try:
        config = stack_config(data=tmp_path / "system", kafka=broker.start())
        with System(config, partitions=1) as running:
            yield running
    finally:
        broker.close()


def configure(kafka: str, topic: Topic, changes: Mapping[str, str]) -> None:
    settings = topic.configuration() | dict(changes)

    async def run() -> None:
        async with admin_client(kafka) as admin:
            resource = ConfigResource(ConfigResourceType.TOPIC, topic.name, settings)
            for answer in await admin.alter_configs([resource]):
                assert all(code == 0 for code, *_ in answer.resources), answer

    asyncio.run(run())


def records(kafka: str, topic: Topic) -> list[tuple[bytes, bytes]]:
    """Return keys and values of all records that the topic still has."""
    found = read_whole_topic(kafka, topic.name)
    return [(bytes(each.key or b""), bytes(each.value or b"")) for each in found]


def holding(kafka: str, topic: Topic) -> list[tuple[bytes, bytes]]:
    """Return the records with the user's name or text in them."""
    wanted = (USER.encode(), TEXT.encode())
    return [
        each
        for each in records(kafka, topic)
        if any(text in part for text in wanted for part in each)
    ]


def test_what_a_purge_leaves_in_topics_goes_with_retention_and_compaction(
    cleaning: System,
    headstart: Any,
    write_events: Callable[[Sequence[dict[str, Any]]], Path],
    tenant: str,
) -> None:
    kafka = cleaning.addresses.kafka
    at = ("--kafka", kafka, "--postgres", cleaning.addresses.postgres)

    def emit(user: str, name: str, text: str) -> None:
        sent = headstart("emit", write_events(agent_run(tenant, user, name, text)), *at[:2])
        assert sent.returncode == 0, sent.stderr
        assert cleaning.drain(PATIENCE_S)

    for n in range(3):
        emit(USER, f"mine-{n}", TEXT)
    emit("u2", "other", "of another user")
    mine = ("memory", "purge", "--tenant", tenant, "--user", USER, *at, "--yes", "--json")
    purged = headstart(*mine)
    assert purged.returncode == 0, purged.stderr
    assert EVENTS.name in {each["where"] for each in orjson.loads(purged.stdout)["remains"]}
    assert holding(kafka, EVENTS), "until retention the events are there"
    before = holding(kafka, THRESHOLDS)
    assert len(before) > 1, "until compaction the values are there"

    configure(kafka, EVENTS, {"retention.ms": "1"})
    until(lambda: not holding(kafka, EVENTS), PATIENCE_S, 0.5)
    configure(kafka, EVENTS, {})
    receipt = headstart("memory", "purge", "--status", "--tenant", tenant, *at, "--json")
    (listed,) = orjson.loads(receipt.stdout)["purges"]
    assert EVENTS.name not in {each["where"] for each in listed["remains"]}

    for topic in (THRESHOLDS, CHANGELOG):
        configure(kafka, topic, COMPACTED)
    rounds = iter(range(100))

    def compacted() -> bool:
        emit("u2", f"later-{next(rounds)}", "closes the segment before it")
        found = [holding(kafka, topic) for topic in (THRESHOLDS, CHANGELOG)]
        return all(len({key for key, _ in each}) == len(each) for each in found)

    until(compacted, PATIENCE_S, 0.5)
    marks = [value for _, value in holding(kafka, THRESHOLDS)]
    assert all(b"deleted" in value for value in marks), marks
    assert not any(TEXT.encode() in part for each in holding(kafka, CHANGELOG) for part in each)
    assert records(kafka, THRESHOLDS), "those of others stay"
