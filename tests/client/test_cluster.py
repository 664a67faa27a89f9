"""Readers of a Redis Cluster: right answers, or answers marked as stale, whatever moves or dies."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headstart.connections.redis_addresses import cluster_address
from headstart.keys import MODES, PUBLISHED, modes_key, redis_key
from headstart.thresholds.feeds import node_state
from headstart.thresholds.modes import Mode
from headstart.thresholds.reader import AsyncThresholds, Thresholds, redis_address
from tests.cluster_reads import (
    PATIENT_S,
    async_reader,
    check_announcements,
    check_one_round_trip,
    publish,
    thread_reader,
    threshold,
    types_of_masters,
)
from tests.clusters import Cluster
from tests.judged_reads import (
    KEY,
    PATH,
    ReaderKind,
    read_while_a_master_dies,
    read_while_a_slot_moves,
)
from tests.patience import until


def test_every_level_in_one_round_trip(cluster: Cluster) -> None:
    check_one_round_trip(cluster, cluster.url, cluster.url)


def test_announcements_of_every_master_arrive(cluster: Cluster) -> None:
    check_announcements(cluster, cluster.url, cluster.url)


def test_the_default_of_a_tenant_is_on_another_master(cluster: Cluster) -> None:
    default = msgspec.structs.replace(threshold("default", 4), workflow_type="")
    publish(cluster.url, default)
    unknown = next(
        name
        for name in types_of_masters(cluster)
        if cluster.owner(redis_key("default", name)) is not cluster.owner(redis_key("default", ""))
    )
    with Thresholds(cluster.url, timeout_s=PATIENT_S) as reader:
        assert reader.get(workflow_type=unknown).version == (1, 4)


@pytest.mark.parametrize("kind", [thread_reader, async_reader])
def test_a_slot_that_moves_while_a_reader_reads(cluster: Cluster, kind: ReaderKind) -> None:
    read_while_a_slot_moves(cluster, kind, cluster.url, cluster.url)


@pytest.mark.parametrize("kind", [thread_reader, async_reader])
def test_a_master_that_dies_while_a_reader_reads(mortal_cluster: Cluster, kind: ReaderKind) -> None:
    read_while_a_master_dies(mortal_cluster, kind, mortal_cluster.url, mortal_cluster.url)


def test_a_late_writer_overwrites_nothing_after_a_failover(mortal_cluster: Cluster) -> None:
    publish(mortal_cluster.url, threshold(PATH, 7))
    with Thresholds(mortal_cluster.url, staleness_s=0.0, timeout_s=PATIENT_S) as reader:
        assert reader.get(workflow_type="refund").version == (1, 7)
        replica = mortal_cluster.fail_over(KEY)
        publish(mortal_cluster.url, threshold(PATH, 6))
        assert b'"offset":7' in replica.client.hget(KEY, PATH)
        publish(mortal_cluster.url, threshold(PATH, 8))
        assert b'"offset":8' in replica.client.hget(KEY, PATH)
        until(lambda: not reader.get(workflow_type="refund").stale)  # by queries alone
        assert reader.get(workflow_type="refund").version == (1, 8)


def test_a_cluster_that_does_not_serve_gives_what_was_known(cluster: Cluster) -> None:
    owner = cluster.owner(KEY)
    publish(cluster.url, threshold(PATH, 1))
    with Thresholds(cluster.url, staleness_s=0.0, timeout_s=PATIENT_S) as reader:
        assert not reader.get(workflow_type="refund").stale
        slots = next(each for each in owner.run("CLUSTER SLOTS") if each[2][1] == owner.port)
        owner.run("CLUSTER DELSLOTSRANGE", slots[0], slots[1])  # from now on: CLUSTERDOWN
        answer = reader.get(workflow_type="refund")
        assert (answer.stale, answer.version) == (True, (1, 1))
        owner.run("CLUSTER ADDSLOTSRANGE", slots[0], slots[1])
        until(lambda: not reader.get(workflow_type="refund").stale)


def test_a_master_that_hangs_gives_what_was_known(cluster: Cluster) -> None:
    owner = cluster.owner(KEY)
    publish(cluster.url, threshold(PATH, 1))
    with Thresholds(cluster.url, staleness_s=0.0, timeout_s=0.5) as reader:
        until(lambda: not reader.get(workflow_type="refund").stale)
        owner.hang()
        answer = reader.get(workflow_type="refund")
        assert (answer.stale, answer.version) == (True, (1, 1))
        owner.go_on()
        until(lambda: not reader.get(workflow_type="refund").stale)


def test_a_master_that_hangs_keeps_no_other_from_being_asked(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is followed meanwhile, so the kill switch depends on queries alone."""
    of_modes = cluster.owner(MODES)
    of_modes.client.hset(MODES, PUBLISHED, "a run id")
    owners = {name: cluster.owner(redis_key("default", name)) for name in types_of_masters(cluster)}
    hangs = next(name for name, owner in owners.items() if owner is not of_modes)
    serves = next(name for name, owner in owners.items() if owner is not owners[hangs])
    with Thresholds(cluster.url, staleness_s=0.0, timeout_s=0.2) as reader:
        until(lambda: reader.mode() == "act" and not reader.get(workflow_type=hangs).stale)
        caplog.clear()
        owners[hangs].hang()
        of_modes.client.hset(MODES, "*", "off")
        until(lambda: reader.get(workflow_type=hangs).stale and reader.mode() == "off")
        until(lambda: reader.get(workflow_type=hangs).stale
              and not reader.get(workflow_type=serves).stale)  # fmt: skip
        assert caplog.text.count("does not respond") == 1
        assert "responds again" not in caplog.text
        owners[hangs].go_on()


def test_no_node_answers_gives_the_default() -> None:
    with Thresholds("redis+cluster://127.0.0.1:1,127.0.0.1:2") as reader:
        answer = reader.get(workflow_type="refund")
        assert (answer.stale, answer.version) == (True, None)
        assert reader.mode("acme") == "observe"


def test_modes_are_lost_together_with_their_marker(cluster: Cluster) -> None:
    tenants = [f"tenant{number}" for number in range(20)]
    owner = cluster.owner(MODES)
    for tenant in tenants:
        key = modes_key(tenant, clustered=True)
        assert cluster.owner(key) is owner
        owner.client.hset(key, "*", "act")
    owner.client.hset(MODES, PUBLISHED, "a run id")
    owner.client.hset(modes_key("off", clustered=True), "*", "off")

    def modes(reader: Thresholds) -> tuple[Mode, Mode]:
        return reader.mode(tenants[0]), reader.mode("off")

    with Thresholds(cluster.url, staleness_s=0.0, timeout_s=PATIENT_S) as reader:
        assert modes(reader) == ("act", "off")
    owner.client.flushall()
    with Thresholds(cluster.url, staleness_s=0.0, timeout_s=PATIENT_S) as reader:
        assert modes(reader) == ("observe", "observe")


def test_a_mode_is_announced_to_readers_of_every_master(cluster: Cluster) -> None:
    owner = cluster.owner(MODES)
    owner.client.hset(MODES, PUBLISHED, "a run id")
    with Thresholds(cluster.url, staleness_s=PATIENT_S, timeout_s=PATIENT_S) as reader:
        assert reader.mode("acme") == "act"
        owner.client.hset(modes_key("acme", clustered=True), "*", "off")
        owner.client.publish(MODES, "{}")
        until(lambda: reader.mode("acme") == "off")


@pytest.mark.parametrize(
    "url",
    [
        "redis+cluster://",
        "redis+cluster://localhost:0",
        "redis+cluster://localhost:port",
        "redis+cluster://localhost,",
        "redis+cluster://localhost/1",
        "redis+cluster://localhost/name",
        "redis+cluster://localhost?no_such_option=1",
        "redis+cluster://local host",
    ],
)
@pytest.mark.parametrize("reader", [Thresholds, AsyncThresholds])
def test_an_invalid_url_is_named(reader: Any, url: str) -> None:
    with pytest.raises(ValueError, match=r"^redis_url: .*redis://127.0.0.1:6379/0"):
        reader(url)


def test_the_parts_of_a_url() -> None:
    url = "rediss+cluster://me:p%40ss@[::1]:7000,other.example/0?ssl_ca_certs=/ca.crt"
    found = cluster_address(url)
    assert found.nodes == [("::1", 7000), ("other.example", 6379)]
    assert found.options == {
        "username": "me", "password": "p@ss", "ssl": True, "ssl_ca_certs": "/ca.crt"
    }  # fmt: skip
    assert redis_address(url) == "[::1]:7000,other.example"


@pytest.mark.parametrize(
    ("state", "flags", "migrations"),
    [("fail", "myself,master", []), ("ok", "myself,slave", []), ("ok", "myself,master", [{}])],
)
def test_what_a_node_cannot_announce(state: str, flags: str, migrations: list[Any]) -> None:
    own = {
        "node_id": "a", "flags": "myself,master", "epoch": "3", "slots": [["0", "5"], ["9"]],
        "migrations": [],
    }  # fmt: skip
    other = {**own, "node_id": "b", "flags": "master"}
    sound = node_state({"cluster_state": "ok"}, {"b": other, "a": own})
    assert sound == ("a", "3", ((0, 5), (9, 9)))
    with pytest.raises(Exception, match=r"master|moved"):
        node_state(
            {"cluster_state": state}, {"a": {**own, "flags": flags, "migrations": migrations}}
        )
