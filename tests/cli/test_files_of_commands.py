"""Every command that reads or writes a file, found by walking the commands: nothing is ever lost.

An input is never changed; an output is replaced only by a whole result, where something was found;
a link, a pipe and a device at its name stay. A command with a new parameter for a file fails
`test_every_parameter_for_a_file_is_known` until `ROLES` has its role.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from cli.main import main
from headstart.events.schema import new_id
from tests.cli.examples import commands

Command = tuple[str, ...]
ROLES: dict[tuple[str, str], str] = {
    ("demo", "traces"): "input",
    ("demo", "html"): "output",
    ("backtest", "outcomes"): "input",
    ("backtest", "source"): "input",
    ("backtest", "thresholds_out"): "folder",
    ("backtest", "html"): "output",
    ("backtest", "csv"): "output",
    ("backtest", "resume"): "kept",
    ("replay", "source"): "input",
    ("replay", "thresholds_out"): "output",
    ("tune", "source"): "input",
    ("tune", "html"): "output",
    ("experiment", "source"): "input",
    ("predict evaluate", "runs"): "input",
    ("predict evaluate", "read_only"): "input",
    ("predict evaluate", "report"): "output",
    ("export", "source"): "input",
    ("export", "file"): "output",
    ("import", "files"): "input",
    ("import", "out"): "output",
    ("emit", "file"): "input",
    ("rebuild", "snapshot"): "input",
    ("verify", "snapshot"): "input",
    ("thresholds export", "file"): "output",
    ("thresholds import", "file"): "input",
    ("thresholds snapshot", "file"): "output",
    ("dead-letters replay", "file"): "input",
    ("backup create", "to"): "folder",
    ("topics recreate", "to"): "folder",
    ("backup verify", "folder"): "input",
    ("backup restore", "folder"): "input",
    ("backup restore", "purges"): "input",
    ("backup purges", "file"): "output",
    ("memory backfill", "runs"): "input",
    ("memory export", "file"): "output",
    ("memory import", "file"): "input",
    ("memory evaluate", "runs"): "input",
    ("memory evaluate", "source"): "input",
    ("memory evaluate", "report"): "output",
    ("memory graph", "html"): "output",
}
"""What a parameter is: `kept` is written and read again, `folder` holds outputs."""
NO_FILES = {"data", "spool", "json", "form", "text"}
"""Directories of state, which no command replaces; and what only speaks of files."""
FILE_WORDS = re.compile(r"\bfiles?\b|stdin|stdout|standard")


def parameters() -> Iterator[tuple[Command, str]]:
    """Every parameter that may name a file: of type Path, or by its help."""
    for name, command in commands().items():
        inner = inspect.unwrap(command.callback)
        hints = get_type_hints(inner, include_extras=True)
        for parameter in command.params:
            text = f"{getattr(parameter, 'help', '')} {parameter.metavar}".lower()
            is_path = "pathlib.Path" in str(hints.get(parameter.name))
            if parameter.name not in NO_FILES and (is_path or FILE_WORDS.search(text)):
                yield name, parameter.name


def test_every_parameter_for_a_file_is_known() -> None:
    """The `client.properties` of `--kafka-config`, an option of most, is a setting."""
    found = {(" ".join(name), each) for name, each in parameters() if each != "kafka_config"}
    assert found == set(ROLES)


@dataclass
class Case:
    """How a command that needs no service makes its output OUT of its input IN."""

    words: list[str]
    content: bytes
    nothing: bytes
    """An input of the form in which nothing is found."""
    made: Callable[[bytes], bool] = bool
    more: list[str] = field(default_factory=list)


def outcome(number: int) -> dict[str, Any]:
    return {
        "context": {"workflow_type": "refund"}, "confidence": number % 10 / 10,
        "correct": number % 3 > 0, "gain": 400, "cost": 600, "at": 1_760_000_000_000 + number,
        "workflow_id": f"w{number}",
    }  # fmt: skip


def event(number: int) -> dict[str, Any]:
    return {
        "id": new_id(), "event_type": "task_complete", "tenant": "t", "workflow_type": "refund",
        "workflow_id": f"w{number}", "timestamp": 1_760_000_000_000 + number, "confidence": 0.9,
        "data": {"prediction": {"was_correct": True}},
    }  # fmt: skip


def lines(*entries: Any) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in entries)


OUTCOMES = lines(*map(outcome, range(60)))
EVENTS = lines(*map(event, range(20)))
RUN = {"trace_id": "t", "id": "r", "run_type": "tool", "name": "a", "start_time": "2026-01-01"}
NONE_EVENTS = lines({**event(0), "event_type": "user_feedback", "timestamp": 1})
CALLS = {"steps": [{"tool": "find", "args": {"id": 7}}, {"tool": "book", "args": {}}]}
NONE_OUTCOMES = b"\n\n"
JUDGED = ["backtest", "--outcomes", "IN", "fixed", "--processes", "1"]


def is_json(content: bytes) -> bool:
    return all(isinstance(json.loads(line), dict) for line in content.splitlines())


LOCAL: dict[tuple[str, str], Case] = {
    ("backtest", "html"): Case(
        [*JUDGED, "--html", "OUT"], OUTCOMES, NONE_OUTCOMES, lambda c: c.startswith(b"<!")
    ),
    ("backtest", "csv"): Case(
        [*JUDGED, "--csv", "OUT"], OUTCOMES, NONE_OUTCOMES, lambda c: c.startswith(b"policy,")
    ),
    ("tune", "html"): Case(
        ["tune", "--source", "IN", "--policy", "fixed", "--policy", "never", "--processes", "1",
         "--html", "OUT"], OUTCOMES, NONE_OUTCOMES, lambda c: c.startswith(b"<!"),
    ),
    ("predict evaluate", "report"): Case(
        ["predict", "evaluate", "--runs", "IN", "--quick", "--jobs", "1", "--predictor", "literal",
         "--report", "OUT"], lines(CALLS), lines({"steps": []}), lambda c: c.startswith(b"<!"),
    ),
    ("memory evaluate", "report"): Case(
        ["memory", "evaluate", "--runs", "IN", "--processes", "1", "--report", "OUT"],
        lines(CALLS, CALLS), lines({"steps": []}), lambda c: c.startswith(b"<!"),
    ),
    ("replay", "thresholds_out"): Case(
        ["replay", "--source", "IN", "--thresholds-out", "OUT", "--processes", "1"],
        EVENTS, NONE_EVENTS, is_json,
    ),
    ("export", "file"): Case(
        ["export", "OUT", "--source", "IN"], EVENTS, b"\n", lambda c: b"headstart" not in c,
    ),
    ("import", "out"): Case(
        ["import", "langsmith", "IN", "--out", "OUT"], lines(RUN),
        lines({**RUN, "run_type": "llm"}), is_json,
    ),
}  # fmt: skip
SERVED: dict[tuple[str, str], list[str]] = {
    ("demo", "html"): ["demo", "--html", "OUT", "--traces", "IN"],
    ("thresholds export", "file"): ["thresholds", "export", "OUT", "--kafka", "CLOSED"],
    ("thresholds snapshot", "file"): ["thresholds", "snapshot", "OUT", "--kafka", "CLOSED"],
    ("backup purges", "file"): [
        "backup", "purges", "OUT", "--postgres", "postgresql://127.0.0.1:1/none"
    ],
    ("memory export", "file"): [
        "memory", "export", "OUT", "--postgres", "postgresql://127.0.0.1:1/none"
    ],
    ("memory graph", "html"): [
        "memory", "graph", "--html", "OUT", "--postgres", "postgresql://127.0.0.1:1/none"
    ],
}  # fmt: skip
"""How a command that needs a service fails without one, after its arguments were taken."""


def test_every_output_is_tried() -> None:
    outputs = {key for key, role in ROLES.items() if role == "output"}
    assert outputs == LOCAL.keys() | SERVED.keys()


@dataclass
class Here:
    """A command run in this process: its exit code, and what its input was afterwards."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch

    def __call__(self, words: list[str], content: bytes, out: Path | str, **more: str) -> int:
        source = self.folder / "input"
        if not source.exists():
            source.write_bytes(content)
        before = hashlib.sha256(source.read_bytes()).digest()
        named = {"IN": str(source), "OUT": str(out), **more}
        self.monkeypatch.setattr(sys, "argv", ["headstart", *(named.get(w, w) for w in words)])
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        assert hashlib.sha256(source.read_bytes()).digest() == before
        assert not list(self.folder.rglob("*unfinished*"))
        return int(code or 0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if "HEADSTART" in name:
            monkeypatch.delenv(name)
    return Here(tmp_path, monkeypatch)


@pytest.mark.parametrize("key", LOCAL, ids=str)
def test_an_output_is_written_through_a_link(key: Any, here: Here, tmp_path: Path) -> None:
    case, link, real = LOCAL[key], tmp_path / "link", tmp_path / "real"
    real.write_bytes(b"before")
    real.chmod(0o640)
    link.symlink_to(real)
    assert here(case.words, case.content, link) == 0
    assert link.is_symlink()
    assert case.made(real.read_bytes())
    assert real.read_bytes() != b"before"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


@pytest.mark.parametrize("key", LOCAL, ids=str)
def test_an_output_is_written_into_a_pipe(key: Any, here: Here, tmp_path: Path) -> None:
    case, pipe, found = LOCAL[key], tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    assert here(case.words, case.content, pipe) == 0
    reader.join()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert found[0]
    assert case.made(found[0])


@pytest.mark.parametrize("key", LOCAL, ids=str)
@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_standard_output_has_the_output_alone(
    key: Any, name: str, here: Here, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    case = LOCAL[key]
    assert here(case.words, case.content, name) == 0
    captured = capfdbinary.readouterr()
    assert captured.out
    assert case.made(captured.out)
    assert captured.err
    assert here([*case.words, "--json"], case.content, name) == 2
    assert capfdbinary.readouterr().out == b""
    assert stat.S_ISLNK(os.lstat("/dev/stdout").st_mode)


@pytest.mark.parametrize("key", LOCAL, ids=str)
@pytest.mark.parametrize("how", ["itself", "link", "hardlink"])
def test_the_input_is_never_the_output(
    key: Any, how: str, here: Here, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    case, source, other = LOCAL[key], tmp_path / "input", tmp_path / "other"
    source.write_bytes(case.content)
    if how == "link":
        other.symlink_to(source)
    elif how == "hardlink":
        other.hardlink_to(source)
    assert here(case.words, case.content, source if how == "itself" else other) != 0
    assert source.read_bytes() == case.content
    (line,) = capfd.readouterr().err.splitlines()
    assert "is also the input" in line


@pytest.mark.parametrize("key", LOCAL, ids=str)
@pytest.mark.parametrize("what", ["nothing", "broken", "empty"])
def test_the_output_is_unchanged_without_a_result(
    key: Any, what: str, here: Here, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    case, out = LOCAL[key], tmp_path / "out"
    out.write_bytes(b"before")
    content = {"nothing": case.nothing, "broken": b"\xff\xfe{no\n" * 9, "empty": b""}[what]
    assert here(case.words, content, out) == 1
    assert out.read_bytes() == b"before"
    captured = capfd.readouterr()
    assert captured.out == ""
    assert [each for each in captured.err.splitlines() if each.startswith("error: ")]
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("key", LOCAL, ids=str)
@pytest.mark.parametrize("name", ["none/x", "folder", "/dev/full"])
def test_an_unwritable_output_is_reported_on_one_line(
    key: Any, name: str, here: Here, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    assert here(LOCAL[key].words, LOCAL[key].content, name) == 1
    errors = [e for e in capfd.readouterr().err.splitlines() if e.startswith("error: ")]
    assert len(errors) == 1
    assert errors[0].startswith("error: cannot write ")


@pytest.mark.parametrize("key", SERVED, ids=str)
def test_the_output_is_unchanged_without_services(
    key: Any, here: Here, tmp_path: Path, closed: str, capfd: pytest.CaptureFixture[str]
) -> None:
    link, real = tmp_path / "link", tmp_path / "real"
    real.write_bytes(b"before")
    link.symlink_to(real)
    assert here(SERVED[key], b"no runs\n", link, CLOSED=closed) == 1
    assert link.is_symlink()
    assert real.read_bytes() == b"before"
    assert here(SERVED[key], b"no runs\n", tmp_path / "none" / "x", CLOSED=closed) == 1
    assert "cannot write" in capfd.readouterr().err


def test_thresholds_files_are_complete_or_unchanged(here: Here, tmp_path: Path) -> None:
    folder = tmp_path / "thresholds"
    words = [*JUDGED, "--thresholds-out", str(folder)]
    folder.mkdir()
    (tmp_path / "real").write_bytes(b"before")
    (folder / "fixed.jsonl").symlink_to(tmp_path / "real")
    assert here(words, NONE_OUTCOMES, "") == 1
    assert (tmp_path / "real").read_bytes() == b"before"
    (tmp_path / "input").write_bytes(OUTCOMES)
    assert here(words, OUTCOMES, "") == 0
    assert len((tmp_path / "real").read_bytes().splitlines()) == 60
    (folder / "fixed.jsonl").unlink()
    (folder / "fixed.jsonl").hardlink_to(tmp_path / "input")
    assert here(words, OUTCOMES, "") == 1
    assert (tmp_path / "input").read_bytes() == OUTCOMES


def test_the_resume_file_stays_at_the_target_of_a_link(here: Here, tmp_path: Path) -> None:
    kept, link = tmp_path / "kept", tmp_path / "link"
    link.symlink_to(kept)
    for _ in range(2):
        assert here([*JUDGED, "--resume", str(link)], OUTCOMES, "") == 0
        assert link.is_symlink()
        assert kept.read_bytes()
    assert here([*JUDGED, "--resume", "IN"], OUTCOMES, "") == 1
    assert here([*JUDGED, "--resume", str(link), "--html", str(kept)], OUTCOMES, "") == 1
