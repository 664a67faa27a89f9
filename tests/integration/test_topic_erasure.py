"""Retention and compaction remove from the topics what a purge has left in them.

On a broker that cleans every second: the embedded one deletes and compacts nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from redis import Redis

from deploy.local import Stack, StackConfig
from deploy.local.apache_kafka import Apache, ClusterMember, new_cluster_id
from deploy.system import prepare
from tests.chaos.services import KillableServer
from tests.integration.agent_runs import agent_run
from tests.integration.hosts import Site
from tests.integration.topic_records import read_whole_topic
from tests.patience import until
from topics.catalogue import CHANGELOG, EVENTS, THRESHOLDS, Topic
from topics.kafka.admin import admin_client
from topics.kafka.reader import LogTruncated

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
    "delete.retention.ms": "0",
}
PURGE = b"kpurge\x1f%b\x1fuser_id\x1f" + USER.encode()
"""Key of the row that keeps the purge from being applied twice: the name stays in it."""


@pytest.fixture
def cleaning(tmp_path: Path) -> Iterator[Site]:
    """A log on a broker that deletes and compacts within seconds, if a topic is set so."""
    member = ClusterMember(new_cluster_id(), CLEANING)
    broker = KillableServer(
        lambda group, ports, port: Apache(group, ports, port, member), tmp_path / "broker"
    )
    try:
        with Stack(StackConfig(data=tmp_path / "stack", kafka=broker.start())) as stack:
            made = Site(stack.addresses, asyncio.run(prepare(stack.addresses, 1)), tmp_path)
            try:
                yield made
            finally:
                made.stop()
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
    while True:
        try:
            found = read_whole_topic(kafka, topic.name)
        except LogTruncated:
            continue  # retention was faster
        return [(bytes(each.key or b""), bytes(each.value or b"")) for each in found]


def holding(kafka: str, topic: Topic) -> list[tuple[bytes, bytes]]:
    """Return the records with the user's name or text in them."""
    wanted = (USER.encode(), TEXT.encode())
    return [
        each
        for each in records(kafka, topic)
        if any(text in part for text in wanted for part in each)
    ]


def in_redis(url: str) -> list[bytes]:
    """Return every key of Redis, and of each key all fields and values."""
    with Redis.from_url(url) as redis:
        keys = list(redis.scan_iter())
        return [*keys, *(redis.dump(key) or b"" for key in keys), *_parts(redis, keys)]


def _parts(redis: Any, keys: Sequence[bytes]) -> Iterator[bytes]:
    """Yield fields and values as they were written: a dump has long ones compressed."""
    for key in keys:
        match redis.type(key):
            case b"hash":
                yield from (part for pair in redis.hgetall(key).items() for part in pair)
            case b"string":
                yield redis.get(key)
            case kind:
                raise AssertionError(f"{key!r} is a {kind!r}: read it, too")


def named_in_redis(url: str) -> list[bytes]:
    """Return what in Redis has the user's name or text in it."""
    return [part for part in in_redis(url) if USER.encode() in part or TEXT.encode() in part]


def test_what_a_purge_leaves_in_topics_goes_with_retention_and_compaction(
    cleaning: Site, headstart: Any, write_events: Callable[..., Path], tenant: str
) -> None:
    """The marks of deleted contexts included, which name the user, also if a worker restarts."""
    kafka, redis = cleaning.addresses.kafka, cleaning.addresses.redis
    at = ("--kafka", kafka, "--postgres", cleaning.addresses.postgres)
    wait = partial(until, pause_s=0.5, meanwhile=cleaning.check, seen=lambda: cleaning.messages)
    worker = cleaning.start("a")

    def emit(user: str, name: str, text: str) -> None:
        sent = headstart("emit", write_events(agent_run(tenant, user, name, text)), *at[:2])
        assert sent.returncode == 0, sent.stderr
        cleaning.until(lambda: cleaning.lag() == 0)

    for n in range(3):
        emit(USER, f"mine-{n}", TEXT)
    emit("u2", "other", "of another user")
    mine = ("memory", "purge", "--tenant", tenant, "--user", USER, *at, "--yes", "--json")
    purged = headstart(*mine)
    assert purged.returncode == 0, purged.stderr
    assert EVENTS.name in {each["where"] for each in orjson.loads(purged.stdout)["remains"]}
    assert holding(kafka, EVENTS), "until retention the events are there"
    assert len(holding(kafka, THRESHOLDS)) > 1, "until compaction the values are there"

    configure(kafka, EVENTS, {"retention.ms": "1"})
    wait(lambda: not holding(kafka, EVENTS))
    configure(kafka, EVENTS, {})
    receipt = headstart("memory", "purge", "--status", "--tenant", tenant, *at, "--json")
    (listed,) = orjson.loads(receipt.stdout)["purges"]
    assert EVENTS.name not in {each["where"] for each in listed["remains"]}

    for topic in (THRESHOLDS, CHANGELOG):
        configure(kafka, topic, COMPACTED)
    rounds = iter(range(1_000))

    def compacted() -> bool:
        emit("u2", f"later-{next(rounds)}", "closes the segment before it")
        found = [holding(kafka, topic) for topic in (THRESHOLDS, CHANGELOG)]
        return all(len({key for key, _ in each}) == len(each) for each in found)

    wait(compacted)
    marks = [value for _, value in holding(kafka, THRESHOLDS)]
    assert marks
    assert all(b"deleted" in value for value in marks), marks
    assert named_in_redis(redis), "the mark has the user's name"
    assert not any(TEXT.encode() in part for each in holding(kafka, CHANGELOG) for part in each)

    cleaning.end(worker)
    cleaning.of_host["a"] = {"HEADSTART_DELETION_MARKS_S": "1"}
    cleaning.start("a")

    def gone() -> bool:
        compacted()
        left = [key for key, _value in holding(kafka, CHANGELOG)]
        return not holding(kafka, THRESHOLDS) and left == [PURGE % tenant.encode()]

    wait(gone)
    assert not named_in_redis(redis)
    assert records(kafka, THRESHOLDS), "those of others stay"
    checked = headstart("verify", "--purged", *at, "--redis", redis, "--json")
    assert (checked.returncode, orjson.loads(checked.stdout)["counts"]) == (0, {}), checked.stderr
