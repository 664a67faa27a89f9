"""One line an event, whatever is logged."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import orjson
import pytest

from headstart.log_lines import Format, LineFormatter, log_format, log_level, log_line

MOMENT = datetime(2026, 3, 1, 12, 0, 0, 250_000, UTC).timestamp()


def test_text() -> None:
    line = log_line(MOMENT, "warning", "worker.waits", {"why": 'no "answer"', "n": 3}, "text")
    assert line == ('2026-03-01T12:00:00.250+00:00 WARNING worker.waits why="no \\"answer\\"" n=3')


def test_json() -> None:
    line = log_line(MOMENT, "error", "worker.ends", {"n": 3, "at": None}, "json")
    assert orjson.loads(line) == {
        "time": "2026-03-01T12:00:00.250+00:00",
        "level": "error",
        "event": "worker.ends",
        "n": 3,
        "at": None,
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_exception_is_one_line_without_local_variables_or_secrets(form: Format) -> None:
    def fail() -> None:
        planted_local = "in a variable"  # noqa: F841
        raise ConnectionError("postgresql://ann:hush@db/x\nrefused")

    try:
        fail()
    except ConnectionError:
        record = logging.LogRecord(
            "faust", logging.ERROR, "f.py", 1, "it %s\nthere", ("ended",), sys.exc_info()
        )
    line = LineFormatter(form).format(record)
    assert "\n" not in line
    assert "ConnectionError: postgresql://ann:***@db/x" in line
    assert "in fail" in line
    assert "hush" not in line
    assert 'planted_local="in' not in line.replace("planted_local = ", "")


def test_unprintable_characters_are_escaped() -> None:
    line = log_line(MOMENT, "info", "a\x1b[31m\nb", {"x": "c\rd"}, "text")
    assert line.endswith(r"a\x1b[31m\nb x=c\rd")


def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADSTART_LOG_FORMAT", "xml")
    monkeypatch.setenv("HEADSTART_LOG_LEVEL", "loud")
    with pytest.raises(ValueError, match="HEADSTART_LOG_FORMAT must be one of text, json"):
        log_format()
    with pytest.raises(ValueError, match="HEADSTART_LOG_LEVEL must be one of debug, info"):
        log_level()


def test_masking_takes_nothing_but_the_secret_from_a_line() -> None:
    more = {"url": "redis://h:hush@b.c", "token": "x", "mail": "a@b.c", "path": 'domain="x"'}
    line = orjson.loads(log_line(MOMENT, "info", "e", more, "json"))
    assert (line["url"], line["mail"], line["path"]) == ("redis://h:***@b.c", "a@b.c", 'domain="x"')
