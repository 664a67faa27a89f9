"""Guesses that no policy could have started: learned from, counted apart, never credited."""

from __future__ import annotations

import csv
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from replay.execution.runner import Backtest, named, run_backtest
from replay.execution.tuning import tune
from replay.predictions.assumptions import Assumed
from replay.results.csv import write_csv
from replay.results.page import page
from replay.results.summary import report
from replay.sources.base import PredictionSource, ReadOptions
from replay.sources.files import EventFile, OutcomeFile
from tests.replay.guesses import events_of, guess

POLICIES = named(["fixed", "always", "hops", "td"])
CONSTANT = ("fixed", "always")


def history(
    folder: Path, guesses: list[dict[str, Any]], assumed: Assumed | None = None
) -> EventFile:
    file = folder / f"{len(guesses)}.jsonl"
    lines = [orjson.dumps(event) + b"\n" for each in guesses for event in events_of(each)]
    file.write_bytes(b"".join(lines))
    return EventFile(file, ReadOptions(assumed=assumed or Assumed()))


def found(of: PredictionSource) -> dict[str, Any]:
    units = run_backtest(Backtest(of, POLICIES), lambda _: None, processes=1)
    return report(of.name, POLICIES, units)


@pytest.fixture
def guesses() -> list[dict[str, Any]]:
    draw = Random(5)
    return [guess(number, draw) for number in range(3_000)]


def test_guesses_that_cannot_be_started_change_no_figure_of_a_constant(
    guesses: list[dict[str, Any]], tmp_path: Path
) -> None:
    with_them = found(history(tmp_path, guesses))
    left = [each for each in guesses if not each["why"]]
    without = found(history(tmp_path, left))
    apart = with_them["not_startable"]
    assert apart["guesses"] == len(guesses) - len(left) == sum(apart["reasons"].values())
    assert set(apart["reasons"]) == {"tool", "mode", "budget"}
    assert without["not_startable"]["guesses"] == 0
    for name in ("outcomes", "right", "best_fixed", "always", "at_stake", "bins"):
        assert with_them[name] == without[name], name
    for name in CONSTANT:
        one, other = (each["policies"][name] for each in (with_them, without))
        for figure in ("utility", "hits", "misses", "saved", "wasted", "success_rate", "recall"):
            assert one[figure] == other[figure], (name, figure)
    (row,) = with_them["contexts"]
    assert (row["outcomes"], row["not_startable"]) == (len(left), apart["guesses"])
    assert sum(with_them["courses"]["counts"]) == len(left)


def test_policies_learn_from_them_all_the_same(
    guesses: list[dict[str, Any]], tmp_path: Path
) -> None:
    with_them = found(history(tmp_path, guesses))
    freed = found(history(tmp_path, [{**each, "why": None} for each in guesses]))
    thresholds = [each["contexts"][0]["policies"]["td"]["threshold"] for each in (with_them, freed)]
    assert thresholds[0] == thresholds[1]


def test_it_is_in_sentence_page_and_csv(guesses: list[dict[str, Any]], tmp_path: Path) -> None:
    result = found(history(tmp_path, guesses))
    words = "Not in these figures: 1,000 guesses that no policy could have started"
    assert words in result["conclusion"]
    assert "the tool is not safe to start on a guess: " in result["conclusion"]
    assert words in page(result)
    write_csv(tmp_path / "f.csv", result)
    with (tmp_path / "f.csv").open() as lines:
        assert {row["not_startable"] for row in csv.DictReader(lines)} == {"1000"}


def test_where_nothing_could_be_started_there_is_nothing_to_earn(
    guesses: list[dict[str, Any]], tmp_path: Path
) -> None:
    result = found(history(tmp_path, [{**each, "why": "mode"} for each in guesses]))
    assert result["outcomes"] == 0
    assert all(each["utility"] == 0.0 for each in result["policies"].values())
    assert all(each["hits"] == each["misses"] == 0 for each in result["policies"].values())
    assert result["conclusion"].startswith("No guess could have been started")
    assert "--include mode" in result["conclusion"]
    assert "No guess could have been started" in page(result)


def test_guesses_held_back_by_the_mode_can_be_included(
    guesses: list[dict[str, Any]], tmp_path: Path
) -> None:
    observed = [{**each, "why": each["why"] and "mode"} for each in guesses]
    assumed = Assumed(startable=frozenset({"mode"}))
    result = found(history(tmp_path, observed, assumed))
    freed = found(history(tmp_path, [{**each, "why": None} for each in guesses]))
    assert result["policies"]["always"]["utility"] == freed["policies"]["always"]["utility"]
    assert result["assumptions"] == [
        {"assumed": "it could have been started, although the mode did not allow it",
         "guesses": 1_000}
    ]  # fmt: skip


def test_a_completion_with_all_fields_has_the_reason_of_its_start(tmp_path: Path) -> None:
    each = guess(0, Random(1)) | {"why": "tool", "whole": False}
    start, done = events_of(each)
    done |= {"confidence": each["confidence"]}
    file = tmp_path / "one.jsonl"
    file.write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in (start, done)))
    assert found(EventFile(file, ReadOptions()))["not_startable"]["reasons"] == {"tool": 1}


def test_a_guess_that_was_started_could_be(tmp_path: Path) -> None:
    (event,) = events_of(guess(0, Random(1)) | {"why": "budget", "whole": True})
    event["data"]["prediction"]["speculated"] = True
    file = tmp_path / "one.jsonl"
    file.write_bytes(orjson.dumps(event))
    result = found(EventFile(file, ReadOptions()))
    assert (result["outcomes"], result["not_startable"]["guesses"]) == (1, 0)


def test_a_split_goes_by_what_could_be_started(tmp_path: Path) -> None:
    draw = Random(2)
    guesses = [guess(number, draw) | {"why": "mode" if n < 600 else None}
               for n, number in enumerate(range(1_000))]  # fmt: skip
    tuned = tune(history(tmp_path, guesses), ["td"], "fixed", lambda _: None, processes=1)
    assert tuned.searched["outcomes"] == pytest.approx(240, abs=20)
    assert tuned.searched["outcomes"] + tuned.confirmed["outcomes"] == 400
    assert tuned.left_out["not_startable"] == {"guesses": 600, "reasons": {"mode": 600}}
    assert "600 guesses that no policy could have started" in tuned.conclusion


def test_outcomes_in_a_file_have_it_too(tmp_path: Path) -> None:
    line = {"context": {"workflow_type": "a"}, "confidence": 0.9, "correct": True, "gain": 4.0}
    file = tmp_path / "o.jsonl"
    lines = [line, {**line, "not_startable": "tool"}, {**line, "not_startable": None}]
    file.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in lines))
    result = found(OutcomeFile(file, ReadOptions()))
    assert result["policies"]["always"]["saved"] == 8.0
    assert result["not_startable"] == {"guesses": 1, "reasons": {"tool": 1}}
