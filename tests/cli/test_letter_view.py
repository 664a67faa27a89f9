"""Bytes from anywhere, shown: nothing in them may command a terminal."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.data.dead_letter_view import fields, page, row, with_value
from cli.support.output import (
    echo,
    json_line,
    printable,
    put,
    put_json,
    report_errors,
    show_json,
    show_table,
)
from topics.dead_letters.log import Handling
from topics.dead_letters.messages import DeadLetterRecord, DeadLetterSource


def letter(
    value: bytes = b"x", reason: str = "why", key: bytes | None = b"a\x1fb"
) -> DeadLetterRecord:
    source = DeadLetterSource("headstart.events", 3, 41, 900, 2)
    group = "headstart-episodes"
    return DeadLetterRecord(0, 7, 1_000, key, value, reason, group, source, None, None)


def test_values_beyond_json_become_text() -> None:
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    value = {
        "a": 2**80,
        "b": [-(2**63) - 1, 2**64 - 1, "\ud800", None, True, 0.5],
        2**64: {"c": deep},
    }
    read = json.loads(json_line(value))
    assert read.pop("18446744073709551616")["c"]
    assert read == {
        "a": "1208925819614629174706176",
        "b": ["-9223372036854775809", 2**64 - 1, "\\ud800", None, True, 0.5],
    }


@given(st.binary() | st.text())
def test_output_has_no_terminal_control_characters(raw: bytes | str) -> None:
    shown = printable(raw)
    assert all(each.isprintable() or each in "\n\t" for each in shown)


def test_names_cannot_control_a_terminal_or_start_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    name = "x\x1b]0;owned\x07\x1b[2J\ny\x9b1m"
    show_table(["tenant"], [[name]])
    echo(f"events of {name}")
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert all(each.isprintable() or each == "\n" for each in out + err)


def test_printable_text_is_unchanged() -> None:
    assert printable('{"é": "✓"}'.encode()) == '{"é": "✓"}'
    assert printable(b"\xff\x1b[2J\x00") == "\\xff\\x1b[2J\\x00"


@given(st.binary())
def test_json_keeps_every_byte(value: bytes) -> None:
    shown = json.loads(json.dumps(with_value(letter(value), None)))
    kept = shown["value"].encode() if "value" in shown else base64.b64decode(shown["value_base64"])
    assert kept == value


def test_a_row_is_one_line() -> None:
    found = row(letter(reason="first\nsecond\tthird"), Handling("dropped", 5))
    assert found["reason"] == "(dropped) first second third"
    assert (found["at"], found["source"]) == ("0:7", "headstart.events:3:41[2]")
    assert found["refused"] == "1970-01-01T00:00:01.000+00:00"
    assert found["group"] == "episodes"


@pytest.mark.parametrize("at", [1_760_000_000_000_000_000, -(2**61)])
def test_a_time_beyond_the_calendar_is_a_number(at: int) -> None:
    """Of a client that writes nanoseconds."""
    assert dict(page(replace(letter(), refused_at=at), None))["refused_at"] == str(at)


def test_a_page_omits_empty_fields() -> None:
    shown = dict(page(letter(key=None), None))
    assert {"key", "handled", "truncated_from"} & shown.keys() == set()
    assert shown["offset"] == "41"
    assert fields(letter(), Handling("replayed", 5))["handled"] == "replayed"


_COMMANDING = "a\x7f\x9b2J\u202egnp\u2066\u200f\ufeff\U000e0041é✓ "


def test_json_is_escaped_without_changing_the_data(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    value = {"tenant": _COMMANDING, _COMMANDING: [1, None, _COMMANDING]}
    show_json(value)
    put_json(value)
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.isprintable()
        assert "\\u009b" in line
        assert "\\u202e" in line
        assert "é✓" in line
        assert json.loads(line) == value


@given(st.text())
def test_any_text_of_json_is_kept_and_printable(text: str) -> None:
    line = json_line({"text": text}).decode()
    assert line[:-1].isprintable()
    assert json.loads(line) == {"text": text}


def test_data_lines_have_no_terminal_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    put(f"override: {_COMMANDING}")
    assert capsys.readouterr().out[:-1].isprintable()


def test_line_breaks_in_a_name_are_escaped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    echo("it comes from evil\ntopic\r\n0:77 is replayed\u2028x\x85y, not replayed")
    put("wrong  served  note\nok  redis")
    out, err = capsys.readouterr()
    assert out == "wrong  served  note\\nok  redis\n"
    assert err == "it comes from evil\\ntopic\\r\\n0:77 is replayed\\u2028x\\x85y, not replayed\n"


def test_the_lines_below_an_error_are_indented(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise LookupError("there is no a\nerror: b\n    the end of a log\rc")

    with pytest.raises(SystemExit):
        report_errors(fail)
    shown = capsys.readouterr().err
    assert shown == "error: there is no a\n    error: b\n    the end of a log\\rc\n"
