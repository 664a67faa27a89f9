"""A Redis Cluster over TLS with client certificates, by users that may do what they need only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from deploy.local import StackError
from headstart.connections.redis_clients import connect
from headstart.keys import redis_key
from headstart.thresholds.reader import AsyncThresholds, Threshold, Thresholds
from tests.cluster_reads import (
    PATIENT_S,
    STALENESS_S,
    Published,
    Reads,
    async_reader,
    publish,
    queries,
    thread_reader,
    threshold,
    types_of_masters,
)
from tests.clusters import Cluster
from tests.patience import until
from tests.secure.certificates import Certificates
from tests.secure.redis_users import login, make_users
from tests.transports import tls_only


@pytest.fixture(scope="module")
def over_tls(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Three masters with a replica each. One test ends a master, the last one."""
    try:
        made = Cluster(tmp_path_factory.mktemp("redis-cluster"), tls_only(certificates))
    except StackError as error:
        pytest.skip(str(error))
    try:
        made.start()
        make_users(*(node.run for node in made.nodes))
        yield made
    finally:
        made.stop()


@pytest.fixture
def cluster(over_tls: Cluster) -> Cluster:
    """The same, emptied."""
    for each in over_tls.running_masters():
        each.client.flushall()
    return over_tls


@pytest.fixture
def writer(cluster: Cluster) -> str:
    """The URL of a worker of thresholds."""
    return cluster.url_of(login("thresholds"))


@pytest.fixture
def reader_url(cluster: Cluster) -> str:
    """The URL of an executor."""
    return cluster.url_of(login("executor"))


def test_every_level_in_one_round_trip(cluster: Cluster, writer: str, reader_url: str) -> None:
    names = types_of_masters(cluster)
    paths = [f"workflow_type={name}" for name in names]
    finer = [f"{path}/domain=retail/user_id=u7" for path in paths]
    publish(writer, *(threshold(each, 1) for each in (*paths, *finer)))
    with Thresholds(reader_url, staleness_s=0.0, timeout_s=PATIENT_S) as reader:
        before = queries(cluster)
        for name, path in zip(names, finer, strict=True):
            given = {"workflow_type": name, "domain": "retail"}
            assert reader.get(given, user_id="u7").level == path
            assert reader.get(given, user_id="another").level == f"workflow_type={name}"
        assert queries(cluster) - before == 2 * len(names)

    async def read() -> list[Threshold]:
        async with AsyncThresholds(reader_url, staleness_s=0.0, timeout_s=PATIENT_S) as other:
            gets = (other.get(workflow_type=n, domain="retail", user_id="u7") for n in names)
            return list(await asyncio.gather(*gets))

    before = queries(cluster)
    assert [each.level for each in asyncio.run(read())] == finer
    assert queries(cluster) - before == len(names)


def test_what_the_feed_announces_needs_no_query(
    cluster: Cluster, writer: str, reader_url: str
) -> None:
    names = types_of_masters(cluster)
    with Thresholds(reader_url, staleness_s=PATIENT_S, timeout_s=PATIENT_S) as reader:
        publish(writer, *(threshold(f"workflow_type={name}", 1) for name in names))
        for name in names:
            assert reader.get(workflow_type=name).version == (1, 1)
        for name in names:
            key = redis_key("default", name)
            until(lambda: cluster.owner(key).run("PUBSUB NUMSUB", key)[0][1] == 1)  # noqa: B023
        misses = reader.stats()["misses"]
        publish(writer, *(threshold(f"workflow_type={name}", 2) for name in names))
        for name in names:
            until(lambda: reader.get(workflow_type=name).version == (1, 2))  # noqa: B023
        assert reader.stats()["misses"] == misses
        assert reader.stats()["announcements"] >= len(names)


def test_an_executor_cannot_write(cluster: Cluster, reader_url: str) -> None:
    with (
        connect(reader_url, socket_timeout=PATIENT_S) as client,
        pytest.raises(Exception, match="no permissions"),
    ):
        client.hset(redis_key("default", "refund"), "workflow_type=refund", "{}")


def test_a_slot_that_moves_while_a_reader_reads(
    cluster: Cluster, writer: str, reader_url: str
) -> None:
    key = redis_key("default", "refund")
    published = Published(writer, "workflow_type=refund")
    target = next(each for each in cluster.masters if each is not cluster.owner(key))
    with (
        async_reader(reader_url, staleness_s=STALENESS_S, timeout_s=PATIENT_S) as get,
        published.going_on(),
    ):
        reads = Reads(published, get)
        with reads.going_on():
            reads.reach(5)
            cluster.begin_move(key, target)
            cluster.move_keys(key, target)
            reads.reach(len(published.moments) + 5)
            cluster.end_move(key, target)
            reads.reach(len(published.moments) + 5)
    assert cluster.owner(key) is target
    assert not reads.wrong


def test_a_master_that_dies_while_a_reader_reads(
    cluster: Cluster, writer: str, reader_url: str
) -> None:
    key = redis_key("default", "refund")
    published = Published(writer, "workflow_type=refund")
    with (
        thread_reader(reader_url, staleness_s=STALENESS_S, timeout_s=PATIENT_S) as get,
        published.going_on() as pause,
    ):
        reads = Reads(published, get)
        with reads.going_on():
            reads.reach(5)
            with pause:  # a write that no replica has would be lost
                cluster.fail_over(key)
            reads.reach(len(published.moments) + 5)
    assert not reads.wrong
