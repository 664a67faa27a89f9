"""A kill switch that was set in Redis by hand is not undone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from headstart.keys import modes_key, redis_key
from headstart.thresholds.modes import most_restrictive
from headstart.thresholds.overrides import OVERRIDES_FIELD, UNREACHABLE, decode_overrides
from sinks.redis.commands import CommandPublisher, version_key
from sinks.redis.restrictions import StoredRestriction, merged
from tests.sinks.command_log import log_of
from topics.commands.messages import (
    Begin,
    Command,
    CommandState,
    CommandTarget,
    ModeCommand,
    ThresholdOverride,
    command_key,
    encode_command,
)

MODES = ["off", "observe", "act"]
PLACE = CommandTarget("mode", "acme")


def state_of(*commands: tuple[Command, bool]) -> CommandState:
    """The state after a log; a command that is not set any more has False beside it."""
    return log_of(*commands).state()


def mode(name: Any, agent: str | None = None, tenant: str = "acme") -> ModeCommand:
    return ModeCommand(mode=name, tenant=tenant, agent=agent, at=1)


def changes(state: CommandState, fields: dict[bytes, bytes], version: bytes, served: bytes) -> Any:
    return merged(state, PLACE, StoredRestriction(version, served, fields), 0)


@pytest.mark.parametrize(
    ("logged", "found", "becomes"),
    [
        (None, b"off", b"off"),
        (None, b"observe", b"observe"),
        (None, b"OFF", b"OFF"),  # not a mode, but meant to restrict, for all we know
        (None, b"act", None),
        ("observe", b"off", b"off"),
        ("observe", b"act", b"observe"),
        ("observe", None, b"observe"),
        ("act", b"off", b"off"),
        ("act", None, b"act"),
        ("off", b"observe", b"off"),
        ("off", b"nonsense", b"off"),
        ("observe", b"nonsense", b"nonsense"),
        ("act", b"nonsense", b"nonsense"),
        ("off", None, b"off"),
    ],
)
def test_a_manual_restriction_is_replaced_only_by_an_equal_or_stricter_one(
    logged: str | None, found: bytes | None, becomes: bytes | None
) -> None:
    state = state_of((mode(logged or "act"), logged is not None))
    fields = {} if found is None else {b"*": found}
    merge = changes(state, fields, b"1 1", json.dumps(state.modes(PLACE)).encode())
    assert {**fields, **merge.changes}.get(b"*") == becomes
    assert bool(merge.kept) == (becomes == found != (logged and logged.encode()))


def test_a_newer_command_replaces_only_its_own_key() -> None:
    fields = {b"*": b"off", b"agent/a": b"observe"}
    state = state_of((mode("act"), True))
    merge = changes(state, fields, b"1 0", b"{}")
    assert merge.changes == {b"*": b"act"}
    assert merge.kept == ("mode observe of agent/a",)
    taken_back = state_of((mode("off"), True), (mode("off"), False))
    assert changes(taken_back, fields, b"1 1", b"{}").changes == {b"*": None}


def test_values_written_by_headstart_are_not_kept() -> None:
    """An older snapshot of Redis, and a log that compaction has shortened."""
    merge = changes(state_of(), {b"*": b"off"}, b"1 0", b'{"*":"off"}')
    assert (merge.changes, merge.kept) == ({b"*": None}, ())


@given(
    st.dictionaries(st.sampled_from(["*", "agent/a"]), st.sampled_from(MODES)),
    st.dictionaries(st.sampled_from(["*", "agent/a"]), st.sampled_from([*MODES, "x"])),
)
def test_by_itself_nothing_becomes_more_permissive(
    logged: dict[str, str], there: dict[str, str]
) -> None:
    commands = [mode(m, None if field == "*" else "a") for field, m in sorted(logged.items())]
    state = state_of(*[(each, True) for each in commands])
    version = f"1 {len(commands)}".encode()
    fields = {field.encode(): m.encode() for field, m in there.items()}
    merge = changes(state, fields, version, json.dumps(state.modes(PLACE)).encode())
    after = {**fields, **merge.changes}
    served = [m.decode() for m in after.values() if m is not None]
    for before in (there.values(), logged.values()):
        assert MODES.index(most_restrictive(served)) <= MODES.index(most_restrictive(before))
    again = changes(state, {f: m for f, m in after.items() if m is not None}, version, merge.served)
    assert not again.changes


def override(speculate: float | None, **more: Any) -> dict[str, Any]:
    given = {"path": "", "tool": None, "suggest": None, "until": None, "by": "", "reason": ""}
    return {**given, "speculate": speculate, **more}


@pytest.mark.parametrize(
    ("entry", "stays"),
    [
        (override(0.99), True),
        (override(0.01), False),
        (override(None, suggest=0.9), False),
        (override(0.99, suggest=0.1), False),
        (override(0.99, until=5), False),
        (override(0.95, tool="pay"), False),  # it would weaken the .97 that a command demands
        ({"path": 7}, True),
    ],
)
def test_overrides_stay_that_demand_more(entry: dict[str, Any], stays: bool) -> None:
    command = ThresholdOverride(
        tenant="acme", workflow_type="w", path="workflow_type=w/domain=d", speculate=0.97, at=1
    )
    place = CommandTarget("threshold", "acme", "w")
    state = state_of((command, True))
    ours = override(0.97, path=command.path)
    field = OVERRIDES_FIELD.encode()
    stored = StoredRestriction(
        b"1 1", json.dumps([ours]).encode(), {field: json.dumps([entry]).encode()}
    )
    merge = merged(state, place, stored, 10)
    value = json.loads(merge.changes[field] or b"[]")
    assert value == ([ours, entry] if stays else [ours])
    assert bool(merge.kept) == stays


WHOLE = CommandTarget("threshold", "acme", "w")
FIELD = OVERRIDES_FIELD.encode()
UNREADABLE = [
    b"{oops", b"7", b"\xff", b"", b"null", b"off", b'"off"', b'{"speculate":1}', b"[1]",
    b'["stop"]', b"[[]]", b"[null]", b'[{"speculate":2}]', b'[{"path":7,"speculate":1}]',
    b'[{"tool":[],"speculate":1}]', b'[{"path":"","speculate":0.1,"unless":"x"}]',
    b'[{"speculate":true}]',
]  # fmt: skip


def threshold(path: str = "", speculate: float = 1.0) -> ThresholdOverride:
    return ThresholdOverride(tenant="acme", workflow_type="w", path=path, speculate=speculate, at=1)


@pytest.mark.parametrize("raw", UNREADABLE)
def test_overrides_by_which_readers_start_nothing_stay(raw: bytes) -> None:
    """Whatever commands set before, until one is given about the whole workflow type."""
    finer = threshold("workflow_type=w/domain=d", 0.2)
    before = state_of((finer, True))
    ours = json.dumps([override(1.0, path="")]).encode()
    for state, served in ((state_of(), b"[]"), (before, b"[]"), (before, ours)):
        merge = merged(state, WHOLE, StoredRestriction(b"1 1", served, {FIELD: raw}), 10)
        after = merge.changes.get(FIELD, raw)
        assert decode_overrides(after)[0].speculate == UNREACHABLE
        assert len(merge.kept) == 1
        again = merged(
            state, WHOLE, StoredRestriction(b"1 1", merge.served, {FIELD: after or b""}), 10
        )
        assert (again.changes, again.kept) == ({}, merge.kept)
    since = state_of((threshold(), True), (finer, True))
    merge = merged(since, WHOLE, StoredRestriction(b"1 0", b"[]", {FIELD: raw}), 10)
    assert [each.speculate for each in decode_overrides(merge.changes[FIELD])] == [0.2, 1.0]
    assert not merge.kept
    taken_back = state_of((threshold(), True), (threshold(), False))
    merge = merged(taken_back, WHOLE, StoredRestriction(b"1 1", b"[]", {FIELD: raw}), 10)
    assert (merge.changes, merge.kept) == ({FIELD: None}, ())


@pytest.mark.parametrize("raw", [b"[]", b'[{"speculate":2,"until":5}]'])
def test_overrides_without_effect_are_replaced(raw: bytes) -> None:
    merge = merged(state_of(), WHOLE, StoredRestriction(b"1 0", b"[]", {FIELD: raw}), 10)
    assert (merge.changes, merge.kept) == ({FIELD: None}, ())


def test_an_override_that_a_new_log_copied_is_a_command_however_it_was_written() -> None:
    state = CommandState()
    state.apply(command_key(threshold()), encode_command(threshold()), 0)
    state.apply(b"log", encode_command(Begin(number=2)), 1)
    merge = merged(
        state, WHOLE, StoredRestriction(b"1 5", b"[]", {FIELD: b'[{"speculate":1}]'}), 10
    )
    assert (json.loads(merge.changes[FIELD] or b""), merge.kept) == ([override(1.0)], ())


def test_an_override_of_no_tool_takes_no_other_ones_place() -> None:
    """It holds for a tool without a name, not for every tool."""
    state = state_of((threshold(speculate=0.97), True))
    raw = json.dumps([override(0.99, tool="")]).encode()
    merge = merged(state, WHOLE, StoredRestriction(b"1 1", b"[]", {FIELD: raw}), 10)
    assert [each["tool"] for each in json.loads(merge.changes[FIELD] or b"[]")] == [None, ""]


@pytest.mark.parametrize(
    ("commands", "seen", "stays"),
    [
        ([("act", None)], 1, True),
        ([("observe", None)], 1, True),
        ([("act", "a")], 0, True),  # since then, but not about all of them
        ([("off", "a")], 0, True),
        ([], 0, True),
        ([("off", None)], 1, False),
        ([("act", None)], 0, False),
        ([("act", "a"), ("observe", None)], 1, False),
    ],
)
def test_a_mode_key_of_another_type_is_off(
    commands: list[tuple[str, str | None]], seen: int, stays: bool
) -> None:
    state = state_of(*[(mode(name, agent), True) for name, agent in commands])
    served = json.dumps(state.modes(PLACE)).encode()
    merge = merged(state, PLACE, StoredRestriction(b"1 %d" % seen, served, {}, other_type=True), 0)
    assert bool(merge.kept) == stays
    expected = {field.encode(): name.encode() for field, name in state.modes(PLACE).items()}
    assert merge.changes == ({} if stays else expected)


def test_commands_copied_from_redis_do_not_count_as_newer() -> None:
    state, act = CommandState(), mode("act")
    state.apply(command_key(act), encode_command(act), 0)
    state.apply(b"log", encode_command(Begin(number=2)), 1)
    stored = StoredRestriction(b"1 5", b'{"*":"act"}', {b"*": b"off"})
    merge = merged(state, PLACE, stored, 0)
    assert (merge.changes, merge.kept) == ({}, ("mode off of *",))
    assert merged(state, PLACE, stored._replace(fields={}), 0).changes == {b"*": b"act"}
    state.apply(command_key(act), encode_command(act), 2)
    assert merged(state, PLACE, stored, 0).changes == {b"*": b"act"}


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(redis_url, decode_responses=True) as opened:
        yield opened


def serve_all(url: str, state: CommandState) -> tuple[int, set[CommandTarget]]:
    async def run() -> tuple[int, set[CommandTarget]]:
        async with CommandPublisher(url) as publisher:
            return await publisher.serve_all(state, 0), set(publisher.kept)

    return asyncio.run(run())


@pytest.mark.integration
def test_everything_in_redis_is_looked_at(redis_url: str, client: Any, tenant: str) -> None:
    """Also where no command ever was: a permissive value set by hand goes, a restrictive stays."""
    state = state_of((mode("observe", tenant=tenant), True))
    assert serve_all(redis_url, state)[0] >= 1
    permissive, own = redis_key(tenant, "made up"), modes_key(f"{tenant}-2")
    client.hset(permissive, OVERRIDES_FIELD, json.dumps([override(0.01)]))
    client.hset(own, mapping={"*": "off", "agent/a": "act"})
    client.hset(modes_key(tenant), "*", "act")
    changed, kept = serve_all(redis_url, state)
    assert changed >= 3
    assert not client.exists(permissive)
    assert client.hgetall(own) == {"*": "off"}
    assert client.hgetall(modes_key(tenant)) == {"*": "observe"}
    assert CommandTarget("mode", f"{tenant}-2") in kept
    client.delete(own, version_key(own), f"headstart:served:{{{own}}}")


@pytest.mark.integration
def test_keys_of_other_types_hinder_no_command(redis_url: str, client: Any, tenant: str) -> None:
    key = modes_key(tenant)
    client.set(key, "off")
    client.rpush(version_key(key), "x")
    state = state_of((mode("off", tenant=tenant), True))
    assert serve_all(redis_url, state)[0] >= 1
    assert client.hgetall(key) == {"*": "off"}
    assert client.get(version_key(key)) == "1 1"
    assert client.get(f"headstart:set-aside:{{{key}}}") == "off"


@pytest.mark.integration
def test_a_mode_key_of_another_type_stays_until_a_command(
    redis_url: str, client: Any, tenant: str
) -> None:
    """The kill switch, set by SET where it should have been HSET."""
    key, acts = modes_key(tenant), (mode("act", tenant=tenant), True)
    serve_all(redis_url, state_of(acts))
    client.delete(key)
    client.set(key, "off")
    assert CommandTarget("mode", tenant) in serve_all(redis_url, state_of(acts))[1]
    assert client.get(key) == "off"
    serve_all(redis_url, state_of(acts, acts))
    assert client.hgetall(key) == {"*": "act"}
    client.delete(key)
    client.set(key, "off")
    serve_all(redis_url, state_of(acts, acts, (acts[0], False)))
    assert not client.exists(key)
    assert client.get(f"headstart:set-aside:{{{key}}}") == "off"
