"""What was set by hand, in Redis: never older than it was, and all of it again after a loss."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.keys import MODES, model_key, modes_key, redis_key
from headstart.thresholds.overrides import OVERRIDES_FIELD as OVERRIDES
from sinks.connections import RedisUnreachable
from sinks.redis.commands import CommandPublisher, commands_in_redis, version_key
from sinks.redis.known_names import known_names
from sinks.redis.queries import (
    served_chain,
    served_thresholds,
)
from sinks.redis.served_modes import holding, served_agents, served_modes
from sinks.redis.thresholds import ThresholdPublisher
from tests.sinks.command_log import PATH, Log, override, serve
from topics.commands.messages import (
    CommandState,
    CommandTarget,
    ModeCommand,
    ThresholdOverride,
    command_key,
    encode_command,
)
from topics.schema.json_schema import PublishedThreshold

pytestmark = pytest.mark.integration


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(redis_url, decode_responses=True) as opened:
        yield opened


def test_overrides_beside_the_thresholds(redis_url: str, client: Any, tenant: str) -> None:
    log = Log()
    log.add(override(tenant, path=PATH, tool="pay", suggest=0.5, until=99, by="ann", reason="slow"))
    client.set(redis_key(tenant, "foreign"), "not a hash")
    key = redis_key(tenant, "refund")
    learned = PublishedThreshold(
        tenant=tenant, workflow_type="refund", path=PATH, speculate=0.8, suggest=0.6, epoch=1,
        offset=1, outcomes=3, learner="ema", at=1,
    )  # fmt: skip

    async def publish() -> list[dict[str, Any]]:
        async with ThresholdPublisher(redis_url) as publisher:
            await publisher.publish([learned])
        return [each async for each in served_thresholds(redis_url, tenant)]

    with client.pubsub(ignore_subscribe_messages=True) as subscription:
        subscription.subscribe(key)
        subscription.get_message(timeout=60)
        assert serve(redis_url, log.state()) == [1]
        message = subscription.get_message(timeout=60)
    expected = [
        {"path": PATH, "tool": "pay", "speculate": 0.9, "suggest": 0.5, "until": 99, "by": "ann",
         "reason": "slow"}
    ]  # fmt: skip
    assert json.loads(message["data"]) == {"overrides": expected}
    assert json.loads(client.hget(key, OVERRIDES)) == expected
    listed = asyncio.run(publish())
    assert [each["path"] for each in listed] == [PATH]
    assert asyncio.run(served_chain(redis_url, tenant, "refund", []))[1] == expected
    assert asyncio.run(served_chain(redis_url, tenant, "order", []))[1] == []
    client.hset(model_key(tenant, "claims"), "snapshot", "x")
    theirs = {each for each in asyncio.run(known_names(redis_url)) if each[0] == tenant}
    assert theirs == {(tenant, "refund"), (tenant, "claims")}
    client.delete(model_key(tenant, "claims"))
    assert set(client.hkeys(key)) == {PATH, OVERRIDES}


def test_unset_and_expired_overrides_are_removed(redis_url: str, client: Any, tenant: str) -> None:
    log, key = Log(), redis_key(tenant, "refund")
    log.add(override(tenant, until=50))
    log.add(override(tenant, path=PATH))
    serve(redis_url, log.state(), now=49)
    assert len(json.loads(client.hget(key, OVERRIDES))) == 2
    assert serve(redis_url, log.state(), now=50) == [1]
    assert [each["path"] for each in json.loads(client.hget(key, OVERRIDES))] == [PATH]
    log.add(override(tenant, path=PATH), kept=False)
    assert serve(redis_url, log.state(), log.state(), now=50) == [1, 0]
    assert not client.exists(key)


def test_modes_of_a_tenant_and_of_everybody(redis_url: str, client: Any, tenant: str) -> None:
    log = Log()
    log.add(ModeCommand(mode="observe", tenant=tenant, at=1))
    log.add(ModeCommand(mode="act", tenant=tenant, agent="a:b/c", at=1))
    with client.pubsub(ignore_subscribe_messages=True) as subscription:
        subscription.subscribe(MODES)
        subscription.get_message(timeout=60)
        assert serve(redis_url, log.state(), log.state()) == [1, 0]
        message = json.loads(subscription.get_message(timeout=60)["data"])
    served = {"*": "observe", "agent/a:b/c": "act"}
    assert message == {"tenant": tenant, "modes": served}
    assert client.hgetall(modes_key(tenant)) == served
    log.add(ModeCommand(mode="observe", tenant=tenant, at=1), kept=False)
    serve(redis_url, log.state())
    assert client.hgetall(modes_key(tenant)) == {"agent/a:b/c": "act"}


def test_a_key_of_another_type_is_replaced(redis_url: str, client: Any, tenant: str) -> None:
    client.set(modes_key(tenant), "off")
    client.set(redis_key(tenant, "refund"), "off")
    log = Log()
    log.add(ModeCommand(mode="observe", tenant=tenant, at=1))
    log.add(override(tenant))
    serve(redis_url, log.state())
    assert client.hgetall(modes_key(tenant)) == {"*": "observe"}
    assert client.hkeys(redis_key(tenant, "refund")) == [OVERRIDES]


def test_modes_as_they_are_served(redis_url: str, client: Any, tenant: str) -> None:
    key = modes_key(tenant)
    client.hset(key, mapping={"*": "Off", "agent/a": "act", "agent/b": b"\xff"})
    found = asyncio.run(served_modes(redis_url, tenant, "a"))
    theirs = [each for each in found if each.tenant == tenant]
    assert [(each.field, each.stored, each.holds) for each in theirs] == [
        ("*", "Off", "off"),
        ("agent/a", "act", "act"),
    ]
    assert asyncio.run(served_agents(redis_url, tenant)) == {"a", "b"}
    assert holding(theirs) == "off"
    assert holding([]) is None
    client.delete(key)
    client.set(key, "off")
    (broken,) = (e for e in asyncio.run(served_modes(redis_url, tenant)) if e.tenant == tenant)
    assert (broken.sound, broken.holds) == (False, "off")
    assert "WRONGTYPE" in broken.stored
    client.delete(key)


def test_the_kill_switch(redis_url: str, client: Any) -> None:
    client.delete(MODES, version_key(MODES))
    log = Log()
    log.add(ModeCommand(mode="off", at=1))
    assert serve(redis_url, log.state()) == [1]
    assert client.hgetall("headstart:modes") == {"*": "off"}
    log.add(ModeCommand(mode="off", at=1), kept=False)
    assert serve(redis_url, log.state(2), log.state(), log.state(2)) == [0, 1, 0]
    assert not client.exists(MODES)
    client.delete(version_key(MODES))


def test_an_older_state_never_undoes_a_newer_one(redis_url: str, client: Any) -> None:
    steps = st.lists(
        st.tuples(st.sampled_from(["", PATH]), st.sampled_from([0.1, 0.2, 0.3]), st.booleans()),
        min_size=1,
        max_size=6,
    )

    @settings(max_examples=40, deadline=None)
    @given(steps, st.lists(st.integers(2, 7), min_size=1, max_size=6))
    def law(made: list[tuple[str, float, bool]], writers: list[int]) -> None:
        tenant, log = f"law-{uuid4().hex}", Log()
        for path, speculate, kept in made:
            log.add(override(tenant, speculate, path=path), kept=kept)
        lengths = [min(length, len(log.records)) for length in writers]
        serve(redis_url, *[log.state(length) for length in lengths])
        newest = log.state(max(lengths)).overrides(CommandTarget("threshold", tenant, "refund"), 0)
        served = json.loads(client.hget(redis_key(tenant, "refund"), OVERRIDES) or "[]")
        assert [(each["path"], each["speculate"]) for each in served] == [
            (each.path, each.speculate) for each in newest
        ]

    law()


def test_a_later_log_wins_at_any_offset(redis_url: str, client: Any, tenant: str) -> None:
    old, new = Log(1), Log(2)
    for speculate in (0.1, 0.2, 0.3):
        old.add(override(tenant, speculate))
    new.add(override(tenant, 0.4))
    assert serve(redis_url, old.state(), new.state(), old.state()) == [1, 1, 0]
    (served,) = json.loads(client.hget(redis_key(tenant, "refund"), OVERRIDES))
    assert served["speculate"] == 0.4


def test_lost_fields_of_the_hash_are_restored(redis_url: str, client: Any, tenant: str) -> None:
    log = Log()
    log.add(override(tenant))
    log.add(ModeCommand(mode="off", tenant=tenant, at=1))
    assert serve(redis_url, log.state()) == [2]
    client.delete(redis_key(tenant, "refund"), modes_key(tenant))
    assert serve(redis_url, log.state(), log.state()) == [2, 0]


def test_values_from_an_old_snapshot_are_removed(redis_url: str, client: Any, tenant: str) -> None:
    """Unset so long ago that compaction deleted its record."""
    log = Log()
    log.add(override(tenant))
    log.add(ModeCommand(mode="off", tenant=tenant, at=1))
    serve(redis_url, log.state())
    compacted = CommandState()
    compacted.apply(*log.records[0], offset=0)
    later = ModeCommand(mode="act", tenant=f"{tenant}:%", at=1)
    compacted.apply(command_key(later), encode_command(later), offset=9)

    async def serve_all() -> None:
        async with CommandPublisher(redis_url) as publisher:
            await publisher.serve_all(compacted, 0)

    asyncio.run(serve_all())
    assert not client.exists(redis_key(tenant, "refund"))
    assert not client.exists(modes_key(tenant))
    assert client.hgetall(modes_key(f"{tenant}:%")) == {"*": "act"}
    serve(redis_url, log.state())
    assert not client.exists(modes_key(tenant)), "the older state does not undo it"
    asyncio.run(serve_all())
    assert client.hgetall(modes_key(f"{tenant}:%")) == {"*": "act"}


def test_served_commands_are_restored_in_a_new_log(
    redis_url: str, client: Any, tenant: str
) -> None:
    strange = b'[1, {"path": 7}, {"speculate": 0.1, "unless": "x"}]'
    for place, broken in enumerate((b"{", b"7", strange)):
        client.hset(redis_key(tenant, f"broken-{place}"), OVERRIDES, broken)
    client.hset(modes_key(tenant), "agent/b", b"\xff")
    client.set(redis_key(tenant, "foreign"), "not a hash")
    log = Log(number=5_000_000_000)
    log.add(override(tenant, path=PATH, by="ann", reason="slow"))
    log.add(override(tenant, until=10))
    log.add(ModeCommand(mode="off", tenant=tenant, agent="planner", at=1))
    serve(redis_url, log.state())
    commands, number = asyncio.run(commands_in_redis(redis_url, 20)())
    mine = [each for each in commands if each.tenant == tenant]
    assert sorted(map(command_key, mine)) == sorted(
        [
            command_key(override(tenant, path=PATH)),
            command_key(ModeCommand(mode="off", tenant=tenant, agent="planner", at=1)),
        ]
    )
    assert number >= 5_000_000_000
    (kept,) = (each for each in mine if isinstance(each, ThresholdOverride))
    assert (kept.by, kept.reason, kept.at) == ("ann", "slow", 20)


def test_redis_away() -> None:
    log = Log()
    log.add(override("t"))
    with pytest.raises(RedisUnreachable, match="--redis URL or HEADSTART_REDIS"):
        serve("redis://127.0.0.1:1/0", log.state())


def test_a_place_of_which_redis_has_a_newer_version_is_named(
    redis_url: str, client: Any, tenant: str
) -> None:
    log, place = Log(), CommandTarget("mode", tenant)
    log.add(ModeCommand(mode="act", tenant=tenant, at=1))
    serve(redis_url, log.state())
    version = version_key(modes_key(tenant))
    client.set(version, "4000000000 3")
    log.add(ModeCommand(mode="off", tenant=tenant, at=2))

    async def run() -> tuple[str | None, str | None, str | None]:
        async with CommandPublisher(redis_url) as publisher:
            await publisher.serve(log.state(), [place], 0)
            refused = await publisher.not_served(log.state(), place, 0)
            client.delete(version)  # as the message advises
            await publisher.serve(log.state(), [place], 0)
            done = await publisher.not_served(log.state(), place, 0)
            client.hset(modes_key(tenant), "*", "act")
            return refused, done, await publisher.not_served(log.state(), place, 0)

    refused, done, changed = asyncio.run(run())
    assert refused is not None
    assert f"redis-cli DEL '{version}'" in refused
    assert done is None
    assert changed is not None
    assert "run the command again" in changed


@pytest.mark.parametrize("number", [2**63 - 1, 10**12 + 1])
def test_a_version_that_no_log_can_have_is_replaced(
    redis_url: str, client: Any, tenant: str, number: int
) -> None:
    log = Log()
    log.add(ModeCommand(mode="act", tenant=tenant, at=1))
    serve(redis_url, log.state())
    client.set(version_key(modes_key(tenant)), f"{number} 1")
    log.add(ModeCommand(mode="off", tenant=tenant, at=2))
    assert serve(redis_url, log.state()) == [1]
    assert client.hgetall(modes_key(tenant)) == {"*": "off"}
