"""`backtest`, `tune`, `replay` and `import` on files: what they print, write, and refuse."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

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
                "at": 1_760_000_000_000 + number * 1000,
            }
        )  # fmt: skip
    file = tmp_path / "o.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_outcomes_to_every_output(run: Run, outcomes: Path, tmp_path: Path) -> None:
    page, rows, told, kept = (tmp_path / name for name in ("r.html", "r.csv", "t", "kept"))
    given = ("backtest", "--outcomes", str(outcomes), "default", "--policy", "td", "--json")
    more = ("--html", page, "--csv", rows, "--thresholds-out", told, "--processes", "1")
    ended = run(*given, *map(str, more), "--resume", str(kept))
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["outcomes"] == 300
    assert set(found["policies"]) == {"default", "td"}
    assert found["policies"]["default"]["learner"] == "hops"
    assert found["conclusion"] in page.read_text()
    assert rows.read_text().startswith("policy,")
    assert len((told / "td.jsonl").read_text().splitlines()) == 300
    assert kept.exists()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--outcomes", "FILE", "hopps"), "did you mean hops?"),
        (("--outcomes", "FILE", "ema:alpha=7"), "alpha must be 0 to 1"),
        (("--outcomes", "FILE", "td", "--until", "1000"), "no judged prediction"),
        (("--source", "missing.jsonl", "td"), "missing.jsonl"),
    ],
)
def test_what_is_wrong_is_named(
    run: Run, outcomes: Path, arguments: tuple[str, ...], why: str
) -> None:
    ended = run("backtest", *(str(outcomes) if each == "FILE" else each for each in arguments))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert why in ended.stderr
    assert "Traceback" not in ended.stderr


def test_tune_confirms_on_the_later_part(run: Run, outcomes: Path) -> None:
    ended = run("tune", "--source", str(outcomes), "--policy", "td", "--processes", "1", "--json")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert set(found["policies"]) == {"hops", "td"}
    assert found["conclusion"]
