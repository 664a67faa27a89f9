"""A Redis Cluster over TLS with client certificates, by users that may do what they need only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.local import StackError
from headstart.connections.redis_clients import connect
from tests.cluster_reads import (
    PATIENT_S,
    async_reader,
    check_announcements,
    check_one_round_trip,
    thread_reader,
)
from tests.clusters import Cluster, running_cluster
from tests.judged_reads import KEY, PATH, read_while_a_master_dies, read_while_a_slot_moves
from tests.secure.certificates import Certificates
from tests.secure.redis_users import login, make_users
from tests.transports import tls_only


@pytest.fixture(scope="module")
def over_tls(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Three masters with a replica each. One test ends a master, the last one."""
    try:
        transport = tls_only(certificates)
    except StackError as error:
        pytest.skip(str(error))
    with running_cluster(tmp_path_factory.mktemp("redis-cluster"), transport) as made:
        make_users(*(node.run for node in made.nodes))
        yield made


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
    check_one_round_trip(cluster, reader_url, writer)


def test_announcements_of_every_master_arrive(
    cluster: Cluster, writer: str, reader_url: str
) -> None:
    check_announcements(cluster, reader_url, writer)


def test_an_executor_cannot_write(cluster: Cluster, reader_url: str) -> None:
    with (
        connect(reader_url, socket_timeout=PATIENT_S) as client,
        pytest.raises(Exception, match="no permissions"),
    ):
        client.hset(KEY, PATH, "{}")


def test_a_slot_that_moves_while_a_reader_reads(
    cluster: Cluster, writer: str, reader_url: str
) -> None:
    read_while_a_slot_moves(cluster, async_reader, reader_url, writer)


def test_a_master_that_dies_while_a_reader_reads(
    cluster: Cluster, writer: str, reader_url: str
) -> None:
    read_while_a_master_dies(cluster, thread_reader, reader_url, writer)
