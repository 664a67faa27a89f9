"""What is published to a Redis Cluster, and read from all of its masters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.exceptions import NoPermissionError

from console.inspection.doctor.databases import check_redis
from deploy.access.redis_acls import redis_commands
from deploy.access.rights import IDENTITIES, rights
from headstart import Thresholds
from headstart.connections.redis_clients import connect
from headstart.connections.redis_failures import NoServerAnswers
from headstart.keys import MODES, model_key, modes_key, redis_key
from sinks.connections import RedisUnreachable, redis_client
from sinks.epochs import remember_epoch
from sinks.redis.command_authors import AUTHORS_KEY, remember_command
from sinks.redis.commands import CommandPublisher, commands_in_redis
from sinks.redis.comparison import Expected, RedisComparison, Repair
from sinks.redis.known_names import known_names
from sinks.redis.last_owners import LastOwners, PartitionOwner
from sinks.redis.masters import load_script, scan_keys
from sinks.redis.models import ModelPublisher, delete_ahead, served_models
from sinks.redis.publish_markers import PublishMarkers
from sinks.redis.queries import THRESHOLD_KEYS, served_thresholds
from sinks.redis.served_modes import every_mode, served_modes, unsound_modes
from sinks.redis.stored_fields import Field
from sinks.redis.thresholds import encode_value
from tests.cluster_reads import publish, threshold
from tests.clusters import Cluster
from tests.patience import until
from tests.sinks.command_log import Log, override
from topics.commands.messages import CommandTarget, ModeCommand
from topics.schema.json_schema import PublishedThreshold

HASHES = 250
TIMEOUT_S = 30.0


def every(offset: int) -> list[PublishedThreshold]:
    names = (f"type{number}" for number in range(HASHES))
    return [threshold(f"workflow_type={name}", offset, tenant="acme") for name in names]


def served_offsets(url: str) -> list[int]:
    async def read() -> list[int]:
        return [each["offset"] async for each in served_thresholds(url)]

    return asyncio.run(read())


def test_hashes_of_every_master_are_published_and_found(cluster: Cluster) -> None:
    assert publish(cluster.url, *every(5)) == HASHES
    assert publish(cluster.url, *every(4)) == 0, "older ones overwrite nothing"
    assert served_offsets(cluster.url) == [5] * HASHES
    assert len(asyncio.run(known_names(cluster.url))) == HASHES
    assert all(each.client.dbsize() for each in cluster.running_masters())


def test_scripts_that_a_master_forgot_are_loaded_again(cluster: Cluster) -> None:
    publish(cluster.url, *every(1))
    for each in cluster.running_masters():
        each.run("SCRIPT FLUSH")
    assert publish(cluster.url, *every(2)) == HASHES


def test_publishing_while_a_slot_moves(cluster: Cluster) -> None:
    key = redis_key("acme", "type7")
    target = next(each for each in cluster.running_masters() if each is not cluster.owner(key))

    def newest() -> bool:
        return set(served_offsets(cluster.url)) == {number}

    for number, step in enumerate(
        (cluster.begin_move, cluster.move_keys, cluster.end_move), start=1
    ):
        step(key, target)
        assert publish(cluster.url, *every(number)) == HASHES
        assert publish(cluster.url, *every(number - 1)) == 0
        assert newest()


def test_a_master_away_keeps_what_others_have(mortal_cluster: Cluster) -> None:
    publish(mortal_cluster.url, *every(1))
    owner = mortal_cluster.owner(redis_key("acme", "type7"))
    replica = next(
        each for each in mortal_cluster.nodes if each.info().get("master_port") == owner.port
    )
    owner.kill()
    with pytest.raises(RedisUnreachable):
        publish(mortal_cluster.url, *every(2))
    mortal_cluster.take_over(replica)
    publish(mortal_cluster.url, *every(2))
    publish(mortal_cluster.url, *every(1))
    assert served_offsets(mortal_cluster.url) == [2] * HASHES


def marked(url: str, body: Callable[[PublishMarkers], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        markers = PublishMarkers(url, timeout_s=TIMEOUT_S)
        try:
            return await body(markers)
        finally:
            await markers.close()

    return asyncio.run(run())


def test_after_a_failover_everything_is_to_be_published_again(mortal_cluster: Cluster) -> None:
    async def remember(markers: PublishMarkers) -> list[int]:
        run, before = await markers.unpublished([1, 2])
        for partition in before:
            await markers.remember(partition, run, await markers.begin(partition))
        return before

    async def look(markers: PublishMarkers) -> list[int]:
        assert await markers.now_ms() > 0
        return (await markers.unpublished([1, 2]))[1]

    assert marked(mortal_cluster.url, remember) == [1, 2]
    assert marked(mortal_cluster.url, look) == []
    mortal_cluster.fail_over(redis_key("acme", "type7"))
    assert marked(mortal_cluster.url, look) == [1, 2]


def test_a_repair_of_hashes_in_several_slots(cluster: Cluster) -> None:
    publish(cluster.url, *every(1))
    right = every(9)

    async def repair() -> tuple[int, list[bool], int, int]:
        async with RedisComparison(cluster.url, timeout_s=TIMEOUT_S) as comparison:
            expected = [
                Expected(Field(t.tenant, t.workflow_type, t.path), encode_value(t)) for t in right
            ]
            found = await comparison.differing(expected)
            by_type = {each.workflow_type: each for each in right}
            repairs = [Repair(each, by_type[each.field.workflow_type]) for each in found]
            done = await comparison.repair(repairs, 7)
            named = {field async for some in comparison.fields() for field in some}
            return len(found), done, len(await comparison.differing(expected)), len(named)

    assert asyncio.run(repair()) == (HASHES, [True] * HASHES, 0, HASHES)


def test_modes_and_overrides(cluster: Cluster) -> None:
    log = Log()
    log.add(ModeCommand(mode="off", tenant="a{b}:c", by="ann", at=7))
    log.add(ModeCommand(mode="observe", tenant="acme", agent="planner", at=7))
    log.add(override("acme", 0.95))
    state = log.state()

    async def serve() -> None:
        async with CommandPublisher(cluster.url, timeout_s=TIMEOUT_S) as publisher:
            await publisher.serve_all(state, 0)
            assert await publisher.has_all_modes()
            assert await publisher.look(state, 0) == []
            assert await publisher.serve_all(state, 0) == 0

    asyncio.run(serve())
    with Thresholds(cluster.url, timeout_s=TIMEOUT_S) as reader:
        assert reader.mode("a{b}:c") == "off"
        assert reader.mode("acme", "planner") == "observe"
        assert reader.mode("acme") == "act"
        assert reader.get(workflow_type="refund", tenant="acme").speculate == 0.95
    modes = asyncio.run(every_mode(cluster.url))
    assert {(each.tenant, each.field, each.stored) for each in modes} == {
        ("a{b}:c", "*", "off"), ("acme", "agent/planner", "observe")
    }  # fmt: skip
    assert [m.holds for m in asyncio.run(served_modes(cluster.url, "a{b}:c"))] == ["off"]
    previous = asyncio.run(commands_in_redis(cluster.url, 0)())
    assert sorted(previous.commands, key=str) == sorted(state.commands, key=str)
    assert previous.number == 1


def test_all_modes_are_in_one_slot(cluster: Cluster) -> None:
    assert len({cluster.owner(key) for key in (MODES, modes_key("a}b{c", clustered=True))}) == 1
    assert modes_key("acme", clustered=True) == "{headstart:modes}:acme"
    assert modes_key("acme") == "headstart:modes:acme", "on one server it stays the same"


def test_an_override_that_a_cluster_cannot_serve_is_named(cluster: Cluster) -> None:
    log = Log()
    log.add(override("a}b", 0.95))
    log.add(override("acme", 0.95))

    async def serve() -> tuple[int, str | None]:
        async with CommandPublisher(cluster.url, timeout_s=TIMEOUT_S) as publisher:
            changed = await publisher.serve_all(log.state(), 0)
            place = CommandTarget("threshold", "a}b", "refund")
            return changed, await publisher.not_served(log.state(), place, 0)

    changed, reason = asyncio.run(serve())
    assert changed == 1, "the other is served"
    assert "Redis Cluster cannot serve headstart:thresholds:a}b:refund" in str(reason)


def test_authors_models_epochs_and_owners(cluster: Cluster) -> None:
    command = ModeCommand(mode="off", tenant="acme", by="ann", at=7)

    async def run() -> None:
        await remember_command(cluster.url, command)
        async with redis_client(cluster.url) as client:
            assert len(await client.hgetall(AUTHORS_KEY)) == 1
        models = ModelPublisher(cluster.url, timeout_s=TIMEOUT_S)
        names = [("acme", f"type{number}") for number in range(20)]
        for each in names:
            assert await models.publish(*each, (1, 5), (0, -1), b"snapshot")
            assert not await models.publish(*each, (1, 4), (0, -1), b"older")
        assert await models.versions(names) == [(1, 5)] * 20
        await models.close()
        assert [each.names for each in await served_models(cluster.url)] == sorted(names)
        assert await delete_ahead(cluster.url, *names[0], (1, 6)) is None
        assert await delete_ahead(cluster.url, *names[0], (1, 5)) == (1, 5)
        assert len(await served_models(cluster.url)) == 19
        await remember_epoch(cluster.url, 4)
        await remember_epoch(cluster.url, 3)
        owners = LastOwners(cluster.url, timeout_s=TIMEOUT_S)
        noted = {number: PartitionOwner(4, 7, 9, "a", open=True) for number in range(9)}
        await owners.note(noted)
        assert await owners.read() == noted
        await owners.close()

    asyncio.run(run())
    assert cluster.owner("headstart:epoch").client.get("headstart:epoch") == b"4"


def test_doctor_checks_every_master(cluster: Cluster) -> None:
    found, ahead = asyncio.run(check_redis(cluster.url, lambda: 0.0))
    assert [each.level for each in found] == ["ok"] * 3
    assert all(str(each.port) in str(found) for each in cluster.running_masters())
    assert ahead is not None
    assert "secret" not in str(found)
    evicting = cluster.running_masters()[1]
    evicting.client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        found, _ahead = asyncio.run(check_redis(cluster.url, lambda: 0.0))
        (warning,) = (each for each in found if each.level == "warning")
        assert str(evicting.port) in warning.what
        assert "allkeys-lru" in warning.what
    finally:
        evicting.client.config_set("maxmemory-policy", "noeviction")


def test_a_form_of_url_that_does_not_fit_is_named(cluster: Cluster, redis_url: str) -> None:
    def problem(url: str) -> str:
        async def ask() -> None:
            async with redis_client(url) as client:
                for number in range(100):
                    await client.get(f"headstart:{number}")

        with pytest.raises(RedisUnreachable) as caught:
            asyncio.run(ask())
        return str(caught.value)

    node = cluster.url.replace("+cluster", "").replace("127.0.0.1:1,", "").partition(",")[0]
    assert "it is a node of a cluster; use redis+cluster://" in problem(node)
    one = redis_url.replace("redis://", "redis+cluster://")
    assert "it is no node of a cluster; use redis://" in problem(one)


def test_a_refused_login_is_named_although_a_node_is_away(cluster: Cluster) -> None:
    """redis-py gives the error of one node, any of those in the URL, the first of which is away."""

    async def ask() -> str:
        with pytest.raises(RedisUnreachable) as caught:
            async with redis_client(cluster.url_of("default:wrong")) as client:
                await client.get("headstart:any")
        return str(caught.value)

    for _ in range(2):  # redis-py tries for some seconds each time
        assert "the password or user is wrong" in asyncio.run(ask())
        with pytest.raises(NoServerAnswers, match="invalid username-password"):
            connect(cluster.url_of("default:wrong"))


def of_each_identity(cluster: Cluster) -> dict[str, str]:
    """Make a user for each process; return their URLs."""
    users = {identity: f"of-{identity}" for identity in IDENTITIES}
    for node in cluster.nodes:
        for command in redis_commands(rights(), users):
            node.run(*command.split(), ">pass")
    return {name: cluster.url_of(f"{user}:pass") for name, user in users.items()}


def test_a_refusal_leaves_no_task_behind(cluster: Cluster) -> None:
    """One that still waits for another master would print its error when the loop ends."""
    of = of_each_identity(cluster)
    last = max(cluster.running_masters(), key=lambda node: f"127.0.0.1:{node.port}")

    async def read() -> None:
        with pytest.raises(RedisUnreachable, match="its ACL refuses"):
            await refused()
        assert len(asyncio.all_tasks()) == 1

    async def refused() -> None:
        async with redis_client(of["executor"]) as client:
            await client.initialize()  # which asks one of the masters, any of them
            last.hang()
            with pytest.raises(NoPermissionError):
                await anext(scan_keys(client, THRESHOLD_KEYS))
            assert len(asyncio.all_tasks()) == 1
            with pytest.raises(NoPermissionError):
                await unsound_modes(client)
            assert len(asyncio.all_tasks()) == 1
            await load_script(client, "return 1")

    try:
        asyncio.run(read())
    finally:
        last.go_on()


def test_the_rights_that_are_printed_suffice(cluster: Cluster) -> None:
    of = of_each_identity(cluster)
    log = Log()
    log.add(ModeCommand(mode="off", tenant="acme", at=7))

    async def serve() -> None:
        async with CommandPublisher(of["thresholds"], timeout_s=TIMEOUT_S) as publisher:
            await publisher.serve_all(log.state(), 0)
        models = ModelPublisher(of["predictions"], timeout_s=TIMEOUT_S)
        assert await models.publish("acme", "refund", (1, 5), (0, -1), b"snapshot")
        await models.close()
        async with RedisComparison(of["operator"], timeout_s=TIMEOUT_S) as comparison:
            assert [field async for some in comparison.fields() for field in some]

    publish(of["thresholds"], *every(1))
    marked(of["thresholds"], lambda markers: markers.unpublished([1]))
    asyncio.run(serve())
    assert [each.level for each in asyncio.run(check_redis(of["operator"], lambda: 0.0))[0]] == [
        "ok"
    ] * 3
    with Thresholds(of["executor"], timeout_s=TIMEOUT_S, staleness_s=TIMEOUT_S) as reader:
        assert reader.mode("acme") == "off"
        assert reader.get(workflow_type="type1", tenant="acme").version == (1, 1)
        until(lambda: reader.stats()["connections"])
        publish(of["thresholds"], *every(2))
        until(lambda: reader.stats()["announcements"])
    with connect(of["executor"], socket_timeout=TIMEOUT_S) as client:
        assert client.hmget(model_key("acme", "refund"), "version") == [b"1:5"]
