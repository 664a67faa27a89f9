"""`backtest`, `tune`, `replay` and `import` on files: what they print, write, and refuse."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench.replay import write
from headstart.events.schema import new_id
from tests.processes import ENVIRONMENT, command_line

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def outcomes(tmp_path: Path) -> Path:
    draw, lines = Random(1), []
    for number in range(300):
        p = draw.random()
        lines.append(
            {
                "context": {"workflow_type": "refund", "user_id": f"u{number % 3}"},
                "confidence": p, "correct": draw.random() < p, "gain": 400, "cost": 600,
                "at": 1_760_000_000_000 + number * 1000, "workflow_id": f"w{number // 3}",
            }
        )  # fmt: skip
    file = tmp_path / "o.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_outcomes_to_every_output(run: Run, outcomes: Path, tmp_path: Path) -> None:
    page, rows, thresholds, kept = (tmp_path / name for name in ("r.html", "r.csv", "t", "kept"))
    given = ("backtest", "--outcomes", str(outcomes), "default", "--policy", "td", "--json")
    more = ("--html", page, "--csv", rows, "--thresholds-out", thresholds, "--processes", "1")
    ended = run(*given, *map(str, more), "--resume", str(kept))
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["outcomes"] == 300
    assert set(found["policies"]) == {"default", "td"}
    assert sum(each["outcomes"] for each in found["policies"]["td"]["modes"].values()) == 300
    assert found["policies"]["default"]["learner"] == "hops"
    assert found["conclusion"] in page.read_text()
    own = found["contexts"][0]
    assert own["policies"]["td"]["recall"] == own["policies"]["td"]["hits"] / own["right"]
    assert rows.read_text().startswith("policy,")
    assert len((thresholds / "td.jsonl").read_text().splitlines()) == 300
    assert kept.exists()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--outcomes", "FILE", "hopps"), "did you mean hops?"),
        (("--outcomes", "FILE", "ema:alpha=7"), "alpha must be 0 to 1"),
        (("--outcomes", "FILE", "td", "--until", "2000-01-02"), "no judged prediction"),
        (("--outcomes", "FILE", "td", "--domain", "retail"), "300 filtered out"),
        (("--outcomes", "FILE", "td", "--tenant", "acme"), "leave out --tenant"),
        (("--source", "missing.jsonl", "td"), "missing.jsonl"),
        (
            ("--outcomes", "FILE", "td", "--resume", "FILE"),
            "is the input, not a file that --resume wrote",
        ),
        (("--outcomes", "FILE", "td", "--resume", __file__), "by --resume; name another file"),
    ],
)
def test_invalid_input_is_reported(
    run: Run, outcomes: Path, arguments: tuple[str, ...], why: str
) -> None:
    ended = run("backtest", *(str(outcomes) if each == "FILE" else each for each in arguments))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert why in ended.stderr
    assert "Traceback" not in ended.stderr


def events_of(number: int, *kinds: str) -> str:
    """Return a start and a completion of a task, or some of both in another order."""
    data = {
        "speculation_start": {"prediction": {"tool_id": "find"}},
        "task_complete": {"result": {"gain_ms": 4, "cost_ms": 6}},
    }
    statement = {
        "tenant": "acme", "workflow_type": "refund", "workflow_id": "w", "task_id": f"t{number}",
        "timestamp": 1_760_000_000_000 + number, "tool_id": "find", "confidence": 0.9,
    }  # fmt: skip
    return "".join(
        json.dumps({**statement, "id": new_id(), "event_type": kind, "data": data[kind]}) + "\n"
        for kind in kinds
    )


def test_unjoined_predictions_are_reported(run: Run, tmp_path: Path) -> None:
    """A file whose completions come before their starts has none to judge, and that is why."""
    ordered, reversed_ = (
        ("speculation_start", "task_complete"),
        ("task_complete", "speculation_start"),
    )
    lines = [events_of(n, *(ordered if n < 7 else reversed_)) for n in range(10)]
    (tmp_path / "some.jsonl").write_text("".join(lines))
    (tmp_path / "none.jsonl").write_text("".join(lines[7:]))
    thresholds = (
        "Not judged: 3 unmatched (a completion with no open start before it) and 3 unresolved "
        "(a start with no completion within an hour after it). A file is read in its own order"
    )
    ended = run("backtest", "--source", "some.jsonl", "td", "--json")
    found = json.loads(ended.stdout)
    assert (found["outcomes"], found["read"]["unmatched"], found["read"]["unresolved"]) == (7, 3, 3)
    assert thresholds in found["conclusion"]
    relearned = json.loads(run("replay", "--source", "some.jsonl", "--json").stdout)["read"]
    assert (relearned["unmatched"], relearned["unresolved"]) == (3, 3)
    assert "not_guessed" not in relearned  # not known there
    for command in (("backtest", "td"), ("replay",), ("tune",)):
        ended = run(*command, "--source", "some.jsonl", "--tenant", "nobody")
        assert ended.returncode == 1
        assert "--tenant nobody" in ended.stderr
    ended = run("backtest", "--source", "none.jsonl", "td")
    assert ended.returncode == 1
    assert "no judged prediction among them" in ended.stderr
    assert thresholds in ended.stderr


@pytest.mark.parametrize("log", [False, True])
def test_a_scale_for_an_unguessed_tool_is_a_warning(run: Run, tmp_path: Path, log: bool) -> None:
    """Of an export the tool is that of the event, or of its guess; of outcomes, of the context."""
    file = tmp_path / ("log.jsonl.zst" if log else "o.jsonl")
    if log:
        write(file, 10_000)
    else:
        tool = {"workflow_type": "refund", "tool_id": "search"}
        line = {"context": tool, "confidence": 0.9, "correct": True, "gain": 4, "cost": 6, "at": 1}
        file.write_text(json.dumps(line))
    scales = ("--cost-scale", "search=2", "--gain-scale", "serch=3", "--cost-scale", "1.5")
    ended = run("backtest", "--source", str(file), "td", "--json", *scales)
    assert ended.returncode == 0, ended.stderr
    statement = "serch: scaled, but no prediction is of this tool"
    assert json.loads(ended.stdout)["read"]["warnings"] == [statement]
    assert statement in ended.stderr


@pytest.mark.parametrize(
    "range_of",
    [
        ("--since", "99999999999999999999d"),
        ("--until", "99999999d"),
        ("--since", "1790000000"),
        ("--from-offset", "0:5", "--to-offset", "0:4"),
    ],
)
def test_an_invalid_range_is_refused(run: Run, outcomes: Path, range_of: tuple[str, ...]) -> None:
    ended = run("backtest", "--outcomes", str(outcomes), "td", *range_of)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "Traceback" not in ended.stderr


def test_refused_lines_are_reported_if_none_remain(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text('{"event_type": "task_complete", "tenant": "acme"}\n')
    ended = run("backtest", "--source", str(file), "td")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "skipped: partition 0, offset 0: " in ended.stderr
    log = tmp_path / "log.jsonl.zst"
    write(log, 10_000)
    assert (
        "no records in the range"
        in run("backtest", "--source", log, "--until", "2000-01-02").stderr
    )
    assert "no partition 9" in run("backtest", "--source", log, "--from-offset", "9:5").stderr


def test_a_resumed_run_resolves_ages_from_its_first_start(
    run: Run, outcomes: Path, tmp_path: Path
) -> None:
    given = ("backtest", "--outcomes", str(outcomes), "td", "--since", "9000d", "--json")
    found = [run(*given, "--resume", str(tmp_path / "kept")) for _ in range(2)]
    assert [each.returncode for each in found] == [0, 0], found[1].stderr
    assert _timeless(found[0].stdout) == _timeless(found[1].stdout)
    assert "resumes the run started at" in found[1].stderr


def test_tune_confirms_on_the_later_part(run: Run, outcomes: Path) -> None:
    ended = run("tune", "--source", str(outcomes), "--policy", "td", "--processes", "1", "--json")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert set(found["policies"]) == {"hops", "td"}
    assert found["conclusion"]


@pytest.mark.parametrize(
    ("more", "code", "why"),
    [
        (("--apply", "refund"), 1, "key=value"),
        (("--dry-run",), 2, "--apply"),
        (("--apply", "*", "--dry-run", "--policy", "td"), 0, "no improvement is confirmed"),
        (
            ("--apply", "*", "--dry-run", "--policy", "fixed:speculate=.6"),
            0,
            "would be assigned to *",
        ),
    ],
)
def test_tune_applies_only_what_is_confirmed(
    run: Run, outcomes: Path, more: tuple[str, ...], code: int, why: str
) -> None:
    """Confidences are right here, so that .6 surely earns more than starting everything."""
    ended = run("tune", "--source", str(outcomes), "--processes", "1", *more, "--json",
                HEADSTART_LEARNER="always" if "fixed" in more[-1] else "hops")  # fmt: skip
    assert ended.returncode == code, ended.stderr
    assert why in ended.stderr.replace("\n", " ")
    if code == 0:
        assert json.loads(ended.stdout)["applied"] is None


def test_a_resumed_run_gives_identical_bytes(run: Run, tmp_path: Path) -> None:
    """Killed after its first partition, by a signal that leaves it no time to end well."""
    kept, log = tmp_path / "kept", tmp_path / "log.jsonl.zst"
    write(log, 60_000)
    given = ("backtest", "--source", str(log), "td", "hops", "--processes", "1", "--json")
    whole = run(*given)
    assert whole.returncode == 0, whole.stderr
    command = command_line(*given, "--resume", kept)
    for how in (signal.SIGKILL, signal.SIGINT):
        assert any(interrupted(command, kept, how) for _ in range(5)), "it was always done before"
        resumed = run(*given, "--resume", str(kept))
        assert resumed.returncode == 0, resumed.stderr
        assert _timeless(resumed.stdout) == _timeless(whole.stdout)


def interrupted(command: list[str], kept: Path, how: signal.Signals) -> bool:
    """Begin a backtest and interrupt it after its first partition; whether that came in time."""
    kept.unlink(missing_ok=True)
    with subprocess.Popen(
        command, cwd=kept.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    ) as begun:  # fmt: skip
        while not kept.exists():
            if begun.poll() is not None:
                return False
            time.sleep(0.001)
        begun.send_signal(how)
        return begun.wait(60) != 0


def _timeless(statement: str) -> dict[str, Any]:
    """Return what a backtest found, but for how long it took."""
    found: dict[str, Any] = json.loads(statement)
    found.pop("seconds", None)
    for own in found["policies"].values():
        own.pop("microseconds_per_update", None)
    return found


@pytest.mark.parametrize("other", ["./new.out", "there/../new.out", "link", "new.out"])
def test_two_outputs_at_one_new_name_are_refused(
    run: Run, outcomes: Path, tmp_path: Path, other: str
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("new.out")
    given = ("backtest", "--outcomes", str(outcomes), "fixed", "--processes", "1")
    ended = run(*given, "--html", "new.out", "--csv", other)
    assert ended.returncode == 2
    assert "is given for two outputs" in ended.stderr
    assert not (tmp_path / "new.out").exists()


def test_tune_reports_the_predictions_of_each_part(run: Run, tmp_path: Path) -> None:
    lines = [
        {"confidence": 0.9, "correct": True, "gain": 9, "cost": 9, "at": 1_760_000_000_000 + n}
        for n in range(0, 10_000, 1_000)
    ]
    (tmp_path / "ten.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    given = ("tune", "--source", "ten.jsonl", "--policy", "always", "--processes", "1")
    found = json.loads(run(*given, "--json").stdout)
    assert found["predictions"] == {"searched": 6, "confirmed": 4}
    assert found["split"]["at"] == 1_760_000_006_000
    assert "first part (6 predictions)" in run(*given).stdout


def test_a_missing_input_is_named(run: Run) -> None:
    for given in (
        ("backtest", "--source", "none.jsonl"),
        ("import", "runs", "none.jsonl", "--out", "x"),
    ):
        ended = run(*given)
        assert (ended.returncode, ended.stderr) == (1, "error: no such file: none.jsonl\n")
