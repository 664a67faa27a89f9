"""Events from JSONL: a broken line is named with its number, the rest flows on."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from headstart import BufferFull, Emitter, NotDelivered
from headstart.emitting import jsonl
from headstart.emitting.jsonl import emit_lines
from headstart.events.exact_json import refuse_large_integers
from headstart.events.schema import InvalidEvent
from headstart.events.validation import validate

GOOD = {
    "id": "0199c82c-c000-7abc-8def-0123456789ab",
    "event_type": "task_complete",
    "tenant": "t",
    "workflow_type": "w",
    "workflow_id": "x",
    "timestamp": 1_760_000_000_000,
}


class Recorder:
    """Accepts what an emitter accepts, and is full as often as configured."""

    full = 0

    def __init__(self, kafka: str, *, durable: bool = False) -> None:
        assert not durable
        self.kafka = kafka
        self.events: list[Mapping[str, Any]] = []
        self.closed_with: float | None = None
        Recorder.last = self  # type: ignore[attr-defined]

    def emit(self, event: Mapping[str, Any]) -> None:
        validate(event)
        refuse_large_integers(event)
        if Recorder.full:
            Recorder.full -= 1
            raise BufferFull("full")
        self.events.append(event)

    def stats(self) -> dict[str, int]:
        return {"acknowledged": len(self.events)}

    def close(self, timeout_s: float) -> None:
        self.closed_with = timeout_s


@pytest.fixture(autouse=True)
def recorder(monkeypatch: pytest.MonkeyPatch) -> type[Recorder]:
    monkeypatch.setattr(jsonl, "Emitter", Recorder)
    monkeypatch.setattr(Recorder, "full", 0)
    return Recorder


def emitted() -> list[Mapping[str, Any]]:
    return Recorder.last.events  # type: ignore[attr-defined,no-any-return]


def write(path: Path, *lines: object) -> str:
    path.write_bytes(
        b"\n".join(line if isinstance(line, bytes) else orjson.dumps(line) for line in lines)
    )
    return str(path)


def test_broken_lines_are_named_and_the_rest_flows_on(tmp_path: Path) -> None:
    file = write(
        tmp_path / "events.jsonl",
        {**GOOD, "n": 1},
        b"{not json",
        {**GOOD, "confidence": 7},
        b"   ",
        [GOOD],
        b"\xff",
        {**GOOD, "n": 2},
    )
    messages: list[str] = []
    report = emit_lines(file, "broker:1", messages.append)
    assert (report.emitted, report.refused) == (2, 4)
    assert [event["n"] for event in emitted()] == [1, 2]
    assert [line.split(": ")[0] for line in messages] == [f"{file}:{n}" for n in (2, 3, 5, 6)]
    assert "confidence: must be" in messages[1]
    assert "JSON object" in messages[2]


@pytest.mark.parametrize("kind", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path, kind: str) -> None:
    text = orjson.dumps(GOOD).decode()
    file = write(tmp_path / "e", gzip.compress(f"{text}\n{text}".encode(kind)))
    assert emit_lines(file, "b", print) == jsonl.EmitReport(2, 0)


def test_of_an_unknown_compression_nothing_is_sent(tmp_path: Path) -> None:
    file = write(tmp_path / "e", b"\x28\xb5\x2f\xfd\n" + orjson.dumps(GOOD))
    with pytest.raises(OSError, match="it is compressed with zstd"):
        emit_lines(file, "b", print)
    assert emitted() == []


def test_an_integer_that_would_be_rounded_is_refused_as_emit_does(tmp_path: Path) -> None:
    event = {**GOOD, "data": {"context": {"domain": 2**70}}}
    emitter = Emitter("127.0.0.1:1", spool=tmp_path / "spool", shipper="none")
    with emitter, pytest.raises(InvalidEvent) as refused:
        emitter.emit(event)
    messages: list[str] = []
    file = write(tmp_path / "e", json.dumps(event).encode(), GOOD)
    assert emit_lines(file, "b", messages.append) == jsonl.EmitReport(1, 1)
    assert messages == [f"{file}:1: {refused.value}"]
    assert "data.context.domain: is an integer beyond 64 bits" in messages[0]


def test_it_waits_for_the_acknowledgements(tmp_path: Path) -> None:
    emit_lines(write(tmp_path / "e", GOOD), "broker:1", print, timeout_s=7.5)
    last: Recorder = Recorder.last  # type: ignore[attr-defined]
    assert (last.kafka, last.closed_with) == ("broker:1", 7.5)


def test_an_empty_file_is_not_an_error(tmp_path: Path) -> None:
    assert emit_lines(write(tmp_path / "e"), "b", print) == jsonl.EmitReport(0, 0)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = orjson.dumps(GOOD) + b"\nbroken\n"
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(lines)))
    messages: list[str] = []
    assert emit_lines("-", "b", messages.append) == jsonl.EmitReport(1, 1)
    assert messages[0].startswith("-:2: ")


def test_a_full_buffer_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recorder, "full", 3)
    monkeypatch.setattr(jsonl.time, "sleep", lambda _s: None)
    report = emit_lines(write(tmp_path / "e", GOOD, GOOD), "b", print)
    assert (report.emitted, report.refused, len(emitted())) == (2, 0, 2)


def test_a_buffer_that_stays_full_ends_in_not_delivered(tmp_path: Path) -> None:
    Recorder.full = 1_000
    with pytest.raises(NotDelivered):
        emit_lines(write(tmp_path / "e", GOOD), "b", print, timeout_s=0.0)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-such"):
        emit_lines(str(tmp_path / "no-such"), "b", print)


def test_the_recorder_refuses_as_the_emitter_does() -> None:
    with pytest.raises(InvalidEvent):
        Recorder("b").emit({})
