"""Readers of a Redis Cluster that itself replaces a master: no command lets a replica take over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headstart.keys import redis_key
from headstart.thresholds.reader import Thresholds
from tests.cluster_reads import (
    PATIENT_S,
    STALENESS_S,
    Published,
    Reads,
    async_reader,
    thread_reader,
)
from tests.clusters import Cluster, Node
from tests.patience import until

KEY, PATH = redis_key("default", "refund"), "workflow_type=refund"
TIMEOUT_S = 0.5


@pytest.fixture
def electing(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that elects a replica when a master has not answered for 5 s."""
    made = Cluster(tmp_path, node_timeout_ms=5_000)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def until_elected(cluster: Cluster, replica: Node) -> None:
    """Wait until a replica has been elected, and the others know."""
    cluster.until_master(replica)
    assert "election won" in replica.log()


@pytest.mark.parametrize("kind", [thread_reader, async_reader])
def test_a_master_is_killed(electing: Cluster, kind: Any) -> None:
    published = Published(electing.url, PATH)
    with (
        kind(electing.url, staleness_s=STALENESS_S, timeout_s=PATIENT_S) as get,
        published.going_on() as pause,
    ):
        reads = Reads(published, get)
        with reads.going_on():
            reads.reach(5)
            owner = electing.owner(KEY)
            with pause:  # a write that no replica has would be lost
                replica = electing.replica_of(owner)
                owner.kill()
            before = reads.stale
            until(lambda: reads.stale > before + 5 or reads.wrong)
            with Thresholds(electing.url) as other:
                answer = other.get(workflow_type="refund")
                assert (answer.stale, answer.version) == (True, None), "it has never known any"
            until_elected(electing, replica)
            reads.reach(len(published.moments) + 5)
    assert not reads.wrong
    assert published.failures, "the publisher saw it too"


@pytest.mark.parametrize("kind", [thread_reader, async_reader])
def test_a_master_hangs_and_returns_after_the_election(electing: Cluster, kind: Any) -> None:
    """What it has is old then, and it may not know yet that another is the master."""
    published = Published(electing.url, PATH, timeout_s=2.0)
    with (
        kind(electing.url, staleness_s=STALENESS_S, timeout_s=TIMEOUT_S) as get,
        published.going_on() as pause,
    ):
        reads = Reads(published, get)
        with reads.going_on():
            reads.reach(5)
            owner = electing.owner(KEY)
            with pause:
                replica = electing.replica_of(owner)
                owner.hang()
            until_elected(electing, replica)
            reads.reach(len(published.moments) + 5)
            owner.go_on()
            until(lambda: owner.info().get("master_link_status") == "up")
            reads.reach(len(published.moments) + 5)
    assert not reads.wrong
