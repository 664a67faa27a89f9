"""The doctor names records of the log of commands that are refused."""

from __future__ import annotations

from types import SimpleNamespace

from console.inspection.doctor.served import refused_records
from topics.commands.log import apply_or_note
from topics.commands.messages import CommandState, ModeCommand, command_key, encode_command


def test_a_refused_record_is_named_with_its_reason() -> None:
    state, off = CommandState(), ModeCommand(mode="off", at=1)
    records = [(command_key(off), encode_command(off)), (b"x", b"{"), (None, b"{}")]
    for offset, (key, value) in enumerate(records[:1]):
        apply_or_note(state, SimpleNamespace(key=key, value=value, offset=offset))
    assert (refused_records(state), state.commands) == ([], [off])
    for offset, (key, value) in enumerate(records):
        apply_or_note(state, SimpleNamespace(key=key, value=value, offset=offset))
    (found,) = refused_records(state)
    assert (found.level, state.commands) == ("warning", [off])
    assert "records of headstart.commands are refused and have no effect: 2; " in found.what
    assert "offset 2: a command has a key" in found.what
