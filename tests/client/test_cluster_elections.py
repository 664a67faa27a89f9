"""Readers of a Redis Cluster that itself replaces a master: no command lets a replica take over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headstart.thresholds.reader import Thresholds
from tests.cluster_reads import async_reader, thread_reader
from tests.clusters import Cluster, Node, running_cluster
from tests.judged_reads import KEY, ReaderKind, reading
from tests.patience import until


@pytest.fixture
def electing(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that elects a replica when a master has not answered for 5 s."""
    with running_cluster(tmp_path, node_timeout_ms=5_000) as made:
        yield made


def until_elected(cluster: Cluster, replica: Node) -> None:
    """Wait until a replica has been elected, and the others know."""
    cluster.until_master(replica)
    assert "election won" in replica.log()


@pytest.mark.parametrize("kind", [thread_reader, async_reader])
def test_a_master_is_killed(electing: Cluster, kind: ReaderKind) -> None:
    with reading(kind, electing.url, electing.url) as reads:
        owner = electing.owner(KEY)
        with reads.published.pause:  # a write that no replica has would be lost
            replica = electing.replica_of(owner)
            owner.kill()
        before = reads.stale
        until(lambda: reads.stale > before + 5 or reads.wrong)
        with Thresholds(electing.url) as other:
            answer = other.get(workflow_type="refund")
            assert (answer.stale, answer.version) == (True, None), "it has never known any"
        until_elected(electing, replica)
        reads.reach_newer()
    assert reads.published.failures, "the publisher saw it too"


@pytest.mark.parametrize("kind", [thread_reader, async_reader])
def test_a_master_hangs_and_returns_after_the_election(electing: Cluster, kind: ReaderKind) -> None:
    """What it has is old then, and it may not know yet that another is the master."""
    url = electing.url
    with reading(kind, url, url, timeout_s=0.5, publish_timeout_s=2.0) as reads:
        owner = electing.owner(KEY)
        with reads.published.pause:
            replica = electing.replica_of(owner)
            owner.hang()
        until_elected(electing, replica)
        reads.reach_newer()
        owner.go_on()
        until(lambda: owner.info().get("master_link_status") == "up")
        reads.reach_newer()
