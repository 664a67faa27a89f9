"""Commands: what follows from a prefix of their log, and what is no command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.commands.messages import (
    Begin,
    Command,
    CommandState,
    CommandTarget,
    ModeCommand,
    ThresholdOverride,
    Version,
    command_key,
    decode_command,
    encode_command,
    served_overrides,
    target_of,
)
from topics.schema.json_schema import schemas

GOLDEN = Path(__file__).parents[2] / "topics" / "schema" / "golden" / "commands"
PATHS = ("", "workflow_type=refund/domain=retail")
identifiers = st.sampled_from(["acme", "a b", "%", "é", "x" * 256])
commands = st.one_of(
    st.builds(
        ThresholdOverride,
        tenant=identifiers,
        workflow_type=st.just("refund"),
        path=st.sampled_from(PATHS),
        tool=st.none() | identifiers,
        speculate=st.floats(0, 1),
        suggest=st.none() | st.floats(0, 1),
        until=st.none() | st.integers(1, 100),
        by=st.text(max_size=5),
        reason=st.text(max_size=5),
        at=st.integers(0, 100),
    ),
    st.builds(
        ModeCommand,
        mode=st.sampled_from(["off", "observe", "act"]),
        tenant=identifiers,
        agent=st.none() | identifiers,
        at=st.integers(0, 100),
    ),
    st.builds(ModeCommand, mode=st.sampled_from(["off", "observe", "act"]), at=st.just(1)),
)
changes = st.lists(st.tuples(commands, st.booleans()), max_size=30)


def log_of(made: list[tuple[Command, bool]]) -> list[tuple[bytes, bytes | None]]:
    """A log in which some things are set and some taken back."""
    records: list[tuple[bytes, bytes | None]] = [
        (command_key(each), encode_command(each) if kept else None) for each, kept in made
    ]
    return [(b"log", encode_command(Begin(number=7))), *records]


def state_of(records: list[tuple[bytes, bytes | None]]) -> CommandState:
    state = CommandState()
    for offset, (key, value) in enumerate(records):
        state.apply(key, value, offset)
    return state


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def test_the_golden_examples(path: Path) -> None:
    command = decode_command(path.read_bytes())
    assert json.loads(encode_command(command)) == json.loads(path.read_bytes())
    name = type(command).__name__
    definition = schemas()["command.schema.json"]["$defs"][name]
    assert set(definition["properties"]) == set(json.loads(path.read_bytes()))


@given(commands)
def test_a_command_survives_the_round_trip(command: Command) -> None:
    assert decode_command(encode_command(command)) == command


@given(changes)
def test_the_last_command_about_a_thing_counts(made: list[tuple[Command, bool]]) -> None:
    expected: dict[bytes, Command] = {}
    for command, kept in made:
        expected.pop(command_key(command), None)
        if kept:
            expected[command_key(command)] = command
    state = state_of(log_of(made))
    assert {command_key(each): each for each in state.commands} == expected
    assert all(key in state for key in expected)
    assert set(state.targets) == {target_of(command_key(command)) for command, _ in made}


@given(changes, st.integers(0, 31))
def test_versions_only_grow_and_name_what_is_served(
    made: list[tuple[Command, bool]], cut: int
) -> None:
    records = log_of(made)
    before, after = state_of(records[: cut + 1]), state_of(records)
    for place in before.targets:
        assert before.version(place) <= after.version(place)
        if before.version(place) == after.version(place):
            assert before.overrides(place, 0) == after.overrides(place, 0)
            assert before.modes(place) == after.modes(place)


@given(changes)
def test_a_compacted_log_gives_the_same_state(made: list[tuple[Command, bool]]) -> None:
    records = log_of(made)
    last = {key: (offset, value) for offset, (key, value) in enumerate(records)}
    whole, compacted = state_of(records), CommandState()
    for key, (offset, value) in sorted(last.items(), key=lambda each: each[1][0]):
        compacted.apply(key, value, offset)
    assert {command_key(each): each for each in compacted.commands} == {
        command_key(each): each for each in whole.commands
    }
    for place in whole.targets:
        assert compacted.version(place) == whole.version(place)


@given(st.lists(commands, unique_by=command_key, max_size=30))
def test_redis_serves_the_commands_in_force(made: list[Command]) -> None:
    state, now = state_of(log_of([(each, True) for each in made])), 50
    served: list[Any] = []
    for place in state.targets:
        found = state.overrides(place, now)
        assert all((each.tenant, each.workflow_type) == place[1:] for each in found)
        served += found
        assert json.loads(served_overrides(found)) == [
            {
                name: msgspec.to_builtins(each)[name]
                for name in ("path", "tool", "speculate", "suggest", "until", "by", "reason")
            }
            for each in found
        ]
    overrides = [each for each in made if isinstance(each, ThresholdOverride)]
    in_force = [each for each in overrides if each.until is None or each.until > now]
    assert sorted(map(command_key, served)) == sorted(map(command_key, in_force))
    ended = {
        CommandTarget("threshold", o.tenant, "refund")
        for o in overrides
        if o.until in range(21, 51)
    }
    assert state.expired(20, now) == ended


def test_modes_by_field() -> None:
    made: list[Command] = [
        ModeCommand(mode="off", at=1),
        ModeCommand(mode="observe", tenant="acme", at=1),
        ModeCommand(mode="act", tenant="acme", agent="planner", at=1),
    ]
    state = state_of(log_of([(each, True) for each in made]))
    assert state.modes(CommandTarget("mode", "")) == {"*": "off"}
    assert state.modes(CommandTarget("mode", "acme")) == {"*": "observe", "agent/planner": "act"}
    assert state.version(CommandTarget("mode", "acme")) == Version(7, 3)


VALID = {"set": "threshold", "tenant": "t", "workflow_type": "refund", "speculate": 0.9, "at": 1}


@pytest.mark.parametrize(
    "value",
    [
        {**VALID, "speculate": 1.5},
        {**VALID, "speculate": None},
        {**VALID, "tenant": ""},
        {**VALID, "tenant": "a\x1fb"},
        {**VALID, "path": "workflow_type=order/domain=retail"},
        {**VALID, "set": "weights"},
        {"set": "mode", "mode": "on", "at": 1},
        {"set": "mode", "mode": "off", "agent": "a", "at": 1},
        {**VALID, "until": 2**80},
        {**VALID, "until": -1},
        {**VALID, "at": 2**64},
        {"set": "mode", "mode": "off", "at": -(2**63)},
        [],
    ],
)
def test_invalid_commands_are_rejected(value: Any) -> None:
    state = CommandState()
    with pytest.raises(ValueError, match=r"\S+ .*"):
        state.apply(b"threshold\x1ft\x1frefund\x1f\x1f", json.dumps(value).encode(), 0)
    assert (state.commands, state.targets) == ([], [])


@pytest.mark.parametrize("key", [None, b"", b"log", b"threshold\x1ft", b"\xff", b"mode\x1ft\x1fa"])
def test_a_key_that_is_not_its_commands(key: bytes | None) -> None:
    with pytest.raises(ValueError, match=r"key|codec"):
        CommandState().apply(key, json.dumps(VALID).encode(), 0)


def test_without_a_beginning_nothing_has_a_version() -> None:
    state = CommandState()
    command = ModeCommand(mode="off", at=1)
    place = state.apply(command_key(command), encode_command(command), 0)
    assert place is not None
    with pytest.raises(LookupError):
        state.version(place)


@pytest.mark.parametrize("number", [-(2**80), -1, 0, 1, 6, 101, 10**12 + 1, 2**63 - 1, 2**80])
def test_a_logs_number_never_falls_and_none_is_out_of_reach(number: int) -> None:
    """Redis would refuse all that is served under a smaller one, as older than what is there."""
    state = CommandState(newest=100)
    state.apply(b"log", encode_command(Begin(number=7)), 0)
    with pytest.raises(ValueError, match="number"):
        state.apply(b"log", b'{"set":"log","number":%d}' % number, 1)
    assert (state.number, state.begun) == (7, 0)
    for offset, larger in enumerate((7, 100), start=2):
        state.apply(b"log", encode_command(Begin(number=larger)), offset)
        assert (state.number, state.begun) == (larger, offset)


OVERRIDE = {"set": "threshold", "tenant": "acme", "workflow_type": "raw", "speculate": 0.5, "at": 1}


@pytest.mark.parametrize(
    "command",
    [
        OVERRIDE,
        {"set": "mode", "mode": "off", "at": 1},
        {"set": "log", "number": 1},
    ],
)
def test_an_unknown_field_is_refused_because_it_may_be_a_condition(command: dict[str, Any]) -> None:
    decode_command(json.dumps(command).encode())
    with pytest.raises(ValueError, match="only_if"):
        decode_command(json.dumps({**command, "only_if": "beta"}).encode())


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("workflow_type=raw", True),
        ("workflow_type=raw/user_id=a%2Fb", True),
        ("workflow_type=raw/", False),
        ("workflow_type=raw//user_id=7", False),
        ("workflow_type=raw/user_id", False),
        ("workflow_type=raw/user_id=7/user_id=8", False),
        ("workflow_type=r%61w", False),
        ("raw", False),
    ],
)
def test_a_path_that_no_context_has_is_refused(path: str, is_one: bool) -> None:
    raw = json.dumps({**OVERRIDE, "path": path}).encode()
    if is_one:
        decode_command(raw)
    else:
        with pytest.raises(ValueError, match="no context has the path"):
            decode_command(raw)
