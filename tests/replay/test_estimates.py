"""Gains and costs that a log lacks are estimated to judge policies, and to decide nothing."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, Final

import orjson
import pytest

from headstart.speculation.decision import Guess, SpeculationDecision
from headstart.speculation.prediction_log import PredictionLog
from headstart.thresholds.threshold import Threshold
from learners.outcome import Outcome
from replay.execution.runner import Backtest, named, run_backtest
from replay.execution.tuning import tune
from replay.predictions.assumptions import Assumed, Basis
from replay.predictions.estimates import Estimates, GuessPlace, PriceSum
from replay.predictions.unjoined import Filter
from replay.predictions.what_if import read_scales
from replay.results.page import page, read
from replay.results.summary import report
from replay.sources.base import PredictionSource, ReadOptions
from replay.sources.files import EventFile, OutcomeFile

POLICIES: Final = named(["always", "never", "fixed:0.7", "hops", "td"])
DECLINED: Final = Threshold(speculate=0.7)
"""The threshold by which executors decided in these logs."""
GAIN, COST = 300.0, 900.0


class IntegrationLog:
    """Events that the client logs for an executor with an integration: it names no cost."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def emit(self, event: Any) -> str:
        at = 1_790_000_000_000 + 1_000 * len(self.events)
        self.events.append({"tenant": "acme", "timestamp": at, **event})
        return ""

    def guessed(
        self,
        number: int,
        confidence: float,
        correct: bool,
        tool: str = "search",
        cost: float = COST,
    ) -> None:
        """Log a guess; it is started if its confidence is .7 at least."""
        context = {
            "workflow_type": "refund",
            "workflow_id": f"w{number // 3}",
            "task_id": f"{number}",
        }
        log, started = PredictionLog(self, context, Guess(tool, confidence)), confidence >= 0.7
        action = "speculate" if started else "ask"
        log.predicted(SpeculationDecision(action, "", DECLINED), started)
        if correct:
            log.resolved(tool, True, speculated=started, gain_ms=GAIN, took_ms=GAIN, success=True)
        else:
            log.resolved("other", False, speculated=started, cost_ms=cost if started else None)

    def not_guessed(self, number: int) -> None:
        """Log a call as a run of an agent logs one that nothing guessed."""
        self.emit(
            {
                "event_type": "task_complete", "workflow_type": "refund",
                "workflow_id": f"w{number // 3}", "task_id": f"call-{number}", "tool_id": "other",
                "success": True, "data": {"result": {"execution_time_ms": 80.0}},
            }
        )  # fmt: skip

    def file(self, folder: Path, **options: Any) -> EventFile:
        file = folder / "log.jsonl"
        file.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in self.events))
        return EventFile(file, ReadOptions(**options))


def integration_log(count: int = 600, seed: int = 5) -> IntegrationLog:
    """Return honest guesses. Each costs three times what it gains, so that `always` loses."""
    draw, log = Random(seed), IntegrationLog()
    for number in range(count):
        confidence = draw.random()
        log.guessed(number, confidence, draw.random() < confidence)
        if number % 60 == 0:
            log.not_guessed(number)
    return log


def found(of: PredictionSource, processes: int = 1, **options: Any) -> dict[str, Any]:
    work = Backtest(of, POLICIES, **options)
    units = run_backtest(work, lambda _: None, processes=processes)
    return report(of.name, POLICIES, units)


def test_declined_wrong_guesses_waste_what_started_ones_did(tmp_path: Path) -> None:
    figures = found(integration_log().file(tmp_path))
    always, wrong = figures["policies"]["always"], figures["outcomes"] - figures["right"]
    assert always["wasted"] == pytest.approx(COST * wrong)
    assert always["utility"] < 0.0
    assert figures["winner"] != "always"
    assert figures["unpriced"] == 0
    (mean,) = figures["estimated"]["means"]
    started = figures["policies"]["live"]["misses"]
    assert mean == {
        "of": "cost", "tenant": "acme", "workflow_type": "refund", "tool": "search", "ms": COST,
        "recorded": started, "guesses": wrong - started,
    }  # fmt: skip
    assert always["estimated_wasted"] == pytest.approx(COST * (wrong - started))
    assert figures["policies"]["live"]["estimated_wasted"] == 0.0, "what was started has its cost"


def test_estimates_are_near_the_costs_that_a_log_hides(tmp_path: Path) -> None:
    """Costs depend on the tool and on chance; executors start what is likely right."""
    draw, log, hidden = Random(8), IntegrationLog(), 0.0
    for number in range(6_000):
        confidence, tool = draw.random(), draw.choice(["search", "book"])
        correct = draw.random() < (confidence if tool == "search" else confidence**2)
        cost = draw.expovariate(1.0 / {"search": 400.0, "book": 1_500.0}[tool])
        hidden += 0.0 if correct else cost
        log.guessed(number, confidence, correct, tool, cost)
    wasted = found(log.file(tmp_path))["policies"]["always"]["wasted"]
    assert wasted == pytest.approx(hidden, rel=0.08)


def test_without_estimates_always_would_have_won(tmp_path: Path) -> None:
    """What the estimates are for: a declined wrong guess at 0 ms."""
    figures = found(integration_log().file(tmp_path), estimates=Estimates())
    utilities = {name: each["utility"] for name, each in figures["policies"].items()}
    assert max(utilities, key=lambda name: utilities[name]) == "always"
    assert "never" in figures["may_lead"]
    assert "if the guesses that count as 0 ms were worth what others are" in figures["conclusion"]
    assert "not chance" not in figures["conclusion"]


def test_every_output_marks_estimates(tmp_path: Path) -> None:
    figures = found(integration_log().file(tmp_path))
    count = figures["estimated"]["guesses"]
    sentence = (
        f"Assumed for {count} guesses: a miss without a recorded cost wastes the mean cost of the "
        "misses of its tool and workflow type, 900 ms ("
    )
    assert sentence in figures["conclusion"]
    assert "--gain and --cost replace these means" in figures["conclusion"]
    assert sentence in page(figures)
    assert f"{count} of {figures['outcomes']} predictions log no gain or cost of their own" in page(
        figures
    )


def test_no_policy_decides_otherwise(tmp_path: Path) -> None:
    """The estimate is of the whole log, its outcomes included: no threshold may depend on it."""
    history = integration_log().file(tmp_path)
    written = []
    for estimates in (None, Estimates()):
        folder = tmp_path / f"{estimates is None}"
        work = Backtest(history, POLICIES, thresholds_out=folder, estimates=estimates)
        run_backtest(work, lambda _: None, processes=1)
        written.append({file.name: file.read_bytes() for file in folder.iterdir()})
    assert written[0] == written[1]
    assert all(written[0].values())


def test_noise_earns_nothing_by_estimates(tmp_path: Path) -> None:
    """Confidence and outcome are independent, and declined guesses have no cost."""
    draw, log = Random(3), IntegrationLog()
    for number in range(3_000):
        log.guessed(number, draw.random(), draw.random() < 0.5, cost=GAIN)
    for name, each in found(log.file(tmp_path))["policies"].items():
        assert each["utility"] < 40_000.0, name


def test_processes_and_a_file_to_resume_from_change_nothing(tmp_path: Path) -> None:
    history, kept = integration_log().file(tmp_path), tmp_path / "kept"
    alone = found(history)
    work = Backtest(history, POLICIES)
    for _ in range(2):
        units = run_backtest(work, lambda _: None, processes=2, resume=kept)
        figures = report(history.name, POLICIES, units)
        assert figures | {"seconds": 0, "policies": {}} == alone | {"seconds": 0, "policies": {}}
        for name, own in alone["policies"].items():
            assert figures["policies"][name]["utility"] == own["utility"]


def test_a_filter_does_not_change_an_estimate(tmp_path: Path) -> None:
    log = integration_log(90)
    for event in log.events[len(log.events) // 2 :]:
        event["workflow_type"] = "order"
    whole = {str(each): each["ms"] for each in found(log.file(tmp_path))["estimated"]["means"]}
    for kind in ("refund", "order"):
        chosen = log.file(tmp_path, chosen=Filter(workflow_type=kind))
        for mean in found(chosen)["estimated"]["means"]:
            assert str(mean) in whole


def test_the_nearest_mean_is_taken() -> None:
    search, book = GuessPlace("acme", "refund", "search"), GuessPlace("acme", "refund", "book")
    other = GuessPlace("acme", "order", "search")
    means = Estimates.of(
        [PriceSum(False, search, 300.0, 2), PriceSum(False, other, 900.0, 1),
         PriceSum(False, search, 0.0, 1)]
    )  # fmt: skip
    wanted = {search: (100.0, 3), book: (100.0, 3), other: (900.0, 1),
              GuessPlace("acme", "new", "search"): (300.0, 4)}  # fmt: skip
    for place, (ms, recorded) in wanted.items():
        estimate = means.find(False, place)
        assert estimate is not None
        assert (estimate.ms, estimate.recorded) == (ms, recorded)
    assert means.find(True, search) is None, "a cost is no gain"
    assert means.find(False, GuessPlace("other", "refund", "search")) is None, "another tenant's"


def test_an_option_replaces_the_estimate(tmp_path: Path) -> None:
    figures = found(integration_log().file(tmp_path, assumed=Assumed(cost_ms=50.0)))
    assert figures["estimated"] == {"guesses": 0, "means": []}
    assert any("(--cost)" in each["assumed"] for each in figures["assumptions"])


def test_a_scale_applies_to_estimates(tmp_path: Path) -> None:
    once = found(integration_log().file(tmp_path))["policies"]["always"]
    twice = found(integration_log().file(tmp_path, scales=read_scales([], ["search=2"])))
    assert twice["policies"]["always"]["wasted"] == pytest.approx(2.0 * once["wasted"])
    assert twice["estimated"]["means"][0]["ms"] == COST, "what is recorded is not scaled"


def test_an_order_that_estimates_may_turn_is_not_called_sure(tmp_path: Path) -> None:
    """Started misses wasted a bit less than would make `always` lose."""
    draw, log = Random(2), IntegrationLog()
    for number in range(900):
        confidence = 0.5 if draw.random() < 0.5 else 0.9
        log.guessed(number, confidence, draw.random() < confidence, cost=220.0)
    figures = found(log.file(tmp_path))
    assert figures["winner"] == "always"
    assert {"live", "never"} & set(figures["may_lead"])
    assert "not chance" not in figures["conclusion"]
    assert "half or twice as large" in figures["conclusion"]
    assert 'class="verdict unsure"' in page(figures)


def test_an_order_that_no_estimate_turns_is_sure(tmp_path: Path) -> None:
    figures = found(integration_log(3_000).file(tmp_path))
    assert "always" not in figures["may_lead"]


def test_without_any_cost_there_is_no_winner(tmp_path: Path) -> None:
    """Nothing was started, as in the first days of an integration: no miss has a cost."""
    draw, log = Random(6), IntegrationLog()
    for number in range(300):
        confidence = 0.69 * draw.random()
        log.guessed(number, confidence, draw.random() < confidence)
    figures = found(log.file(tmp_path))
    assert (figures["winner"], figures["runner_up"]) == (None, None)
    wrong = figures["outcomes"] - figures["right"]
    assert (figures["unpriced"], figures["unpriced_misses"]) == (wrong, wrong)
    assert figures["conclusion"].startswith(
        f"It is unknown which policy earned most: no cost is recorded for {wrong} wrong guesses"
    )
    assert "the client logs the cost of each wrong guess that it starts" in figures["conclusion"]
    assert "It is unknown which policy" in page(figures)


def test_tune_confirms_nothing_that_an_estimate_decides(tmp_path: Path) -> None:
    draw, log = Random(2), IntegrationLog()
    for number in range(900):
        confidence = 0.5 if draw.random() < 0.5 else 0.9
        log.guessed(number, confidence, draw.random() < confidence, cost=220.0)
    tuned = tune(log.file(tmp_path), ["always"], "fixed:0.7", lambda _: None, processes=1)
    assert tuned.winner == "always"
    assert not tuned.better
    assert "if the estimated gains and costs are wrong" in tuned.conclusion
    assert tuned.left_out["estimated"]["guesses"] > 0


def test_right_guesses_without_a_gain_are_estimated_too(tmp_path: Path) -> None:
    file = tmp_path / "o.jsonl"
    of = {"context": {"workflow_type": "a", "tool_id": "s"}, "confidence": 0.9, "cost": 5.0}
    gains: list[dict[str, float]] = [{"gain": 100.0}, {"gain": 0.0}, {}]
    lines = [{**of, "correct": True, **gain} for gain in gains]
    file.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in lines))
    figures = found(OutcomeFile(file, ReadOptions()))
    assert figures["policies"]["always"]["saved"] == 150.0, "a recorded 0 counts in the mean"
    assert figures["estimated"]["guesses"] == 1


def test_an_estimate_is_not_learned() -> None:
    basis = Basis(estimates=Estimates.of([PriceSum(False, GuessPlace("t", "w", "s"), 70.0, 1)]))
    outcome = Outcome(0.5, correct=False)
    judged = Assumed().priced(
        outcome, basis, gain_known=False, cost_known=False, place=GuessPlace("t", "w", "s")
    )
    assert (judged.gain, judged.cost) == (0.0, 0.0)


def test_calls_that_were_not_guessed_are_called_so(tmp_path: Path) -> None:
    figures = found(integration_log().file(tmp_path))
    assert (figures["read"]["unmatched"], figures["read"]["not_guessed"]) == (10, 10)
    assert "Not judged: 10 calls that were not guessed." in figures["conclusion"]
    assert "unmatched" not in figures["conclusion"]
    assert "10 not guessed" in read(figures)
