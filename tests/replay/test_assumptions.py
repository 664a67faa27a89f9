"""Missing figures are assumed only if an option sets them, and every report states it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from learners.outcome import Outcome
from replay.execution.runner import Backtest, named, run_backtest
from replay.execution.tuning import tune
from replay.predictions.assumptions import Assumed, Basis
from replay.results.page import page
from replay.results.summary import report
from replay.sources.base import PredictionSource, ReadOptions
from replay.sources.files import EventFile, OutcomeFile
from tests.replay.guesses import events_of, guess

POLICIES = named(["fixed", "always"])


def found(of: PredictionSource) -> dict[str, Any]:
    units = run_backtest(Backtest(of, POLICIES), lambda _: None, processes=1)
    return report(of.name, POLICIES, units)


def events(folder: Path, assumed: Assumed, **result: float) -> EventFile:
    """Return guesses whose completions have this gain and cost."""
    draw, file = Random(4), folder / "events.jsonl"
    with file.open("wb") as lines:
        for number in range(200):
            for event in events_of(guess(number, draw) | {"why": None}):
                if event["event_type"] == "task_complete":
                    event["data"]["result"] = result
                lines.write(orjson.dumps(event) + b"\n")
    return EventFile(file, ReadOptions(assumed=assumed))


def test_without_gain_and_cost_no_earnings_are_reported(tmp_path: Path) -> None:
    verdict = found(events(tmp_path, Assumed()))
    assert verdict["unpriced"] == verdict["outcomes"] == 200
    assert verdict["conclusion"].startswith("No gain and cost is recorded")
    assert "--gain and --cost" in verdict["conclusion"]
    assert "0 ms more" not in verdict["conclusion"]
    assert "No gain and cost is recorded" in page(verdict)


def test_given_figures_replace_missing_ones_and_are_counted(tmp_path: Path) -> None:
    verdict = found(events(tmp_path, Assumed(400.0, 600.0)))
    recorded = found(events(tmp_path, Assumed(), gain_ms=400.0, cost_ms=600.0))
    assert verdict["policies"]["always"]["utility"] == recorded["policies"]["always"]["utility"]
    assert verdict["unpriced"] == recorded["unpriced"] == 0
    assert recorded["assumptions"] == []
    assert verdict["assumptions"] == [
        {"assumed": "a hit saves 400 ms (--gain)", "guesses": 200},
        {"assumed": "a miss wastes 600 ms (--cost)", "guesses": 200},
    ]
    assert "Assumed for 200 guesses: a hit saves 400 ms (--gain)." in verdict["conclusion"]


def test_recorded_figures_are_kept(tmp_path: Path) -> None:
    verdict = found(events(tmp_path, Assumed(1.0, 1.0), gain_ms=400.0, cost_ms=0.0))
    assert verdict["assumptions"] == []
    assert verdict["policies"]["always"]["saved"] == 400.0 * verdict["right"]
    assert verdict["policies"]["always"]["wasted"] == 0.0, "a recorded 0 is no gap"


def test_hits_need_a_gain_and_misses_a_cost(tmp_path: Path) -> None:
    verdict = found(events(tmp_path, Assumed(), gain_ms=400.0))
    assert verdict["unpriced"] == verdict["outcomes"] - verdict["right"] > 0
    assert f"{verdict['unpriced']} guesses, which count as 0 ms" in verdict["conclusion"]


def test_a_file_of_outcomes_reports_it_too(tmp_path: Path) -> None:
    file = tmp_path / "o.jsonl"
    line = {"context": {}, "confidence": 0.9, "correct": True}
    wrong = {**line, "correct": False}
    lines = (line, {**wrong, "cost": 0})
    file.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in lines))
    outcome_report = found(OutcomeFile(file, ReadOptions()))
    assert outcome_report["unpriced"] == 1
    assert "count as 0 ms: log gain and cost, or give" in outcome_report["conclusion"]
    verdict = found(OutcomeFile(file, ReadOptions(assumed=Assumed(7.0))))
    assert verdict["policies"]["always"]["saved"] == 7.0


def test_fields_of_outcomes_without_use_are_named(tmp_path: Path) -> None:
    file = tmp_path / "o.jsonl"
    line = {"context": {"tier": "a"}, "confidence": 0.9, "correct": True, "gain": 1, "cost": 1}
    file.write_bytes(orjson.dumps({**line, "label": 1, "note": "x"}))
    (warning,) = found(OutcomeFile(file, ReadOptions()))["read"]["warnings"]
    assert "o.jsonl: not used, as no fields of outcomes: label, note; keys of" in warning


def test_tune_does_not_choose_between_nothings(tmp_path: Path) -> None:
    tuned = tune(events(tmp_path, Assumed()), ["td"], "fixed", lambda _: None, processes=1)
    assert not tuned.better
    assert tuned.conclusion.startswith("No gain and cost is recorded")


@pytest.mark.parametrize("correct", [True, False])
def test_a_basis_counts_each_guess_once(correct: bool) -> None:
    from learners.outcome import Outcome

    basis = Basis()
    Assumed().priced(Outcome(0.5, correct), basis, gain_known=correct, cost_known=not correct)
    assert basis == Basis()
    Assumed().priced(Outcome(0.5, correct), basis, gain_known=not correct, cost_known=correct)
    assert basis == Basis(unpriced=1, unpriced_misses=int(not correct))


@pytest.mark.parametrize(
    ("reason", "why"),
    [("mode", "the mode did not allow it"),
     ("quota", "the log gives the reason 'quota' against it")],
)  # fmt: skip
def test_an_included_reason_is_named_in_a_whole_sentence(reason: str, why: str) -> None:
    basis, outcome = Basis(), Outcome(0.5, correct=True, not_startable=reason)
    assert not Assumed(startable=frozenset({reason})).counted(outcome, basis).not_startable
    assert basis.assumed == {f"it could have been started, although {why}": 1}
