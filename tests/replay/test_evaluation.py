"""Figures of an evaluation, on decisions whose figures can be worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from headstart.prediction.callable_predictor import CallablePredictor
from headstart.prediction.history_view import HistoryView
from replay.evaluation.evaluation import EvaluationPlan, EvaluationProgress, evaluate
from replay.evaluation.figures import (
    brier,
    calibration_error,
    coverage_curve,
    covered,
    figures,
    log_loss,
)
from replay.evaluation.judged_point import JudgedPoint
from replay.evaluation.known_predictors import BASELINES, maker_of
from replay.evaluation.latencies import (
    DECLARED,
    DeclaredLatencies,
    RecordedLatencies,
    TurnTimes,
    all_recorded,
)
from replay.evaluation.net_time import started_points, time_saved
from replay.evaluation.own_predictor import OwnPredictor
from replay.evaluation.prequential import call_key, judge, shuffled
from replay.evaluation.read_only_tools import looks_read_only, read_only_tools
from replay.evaluation.recorded_run import run_of_record
from replay.evaluation.results import Evaluated, results
from replay.evaluation.runs_file import read_recorded_runs
from tests.replay.recorded_runs import shop_runs, step, write_runs


def point(confidence: float, exact: int, *, calling: bool = True, run: int = 0) -> JudgedPoint:
    return JudgedPoint(
        run, "d", False, "", "get_x", confidence, calling, exact > 0, exact, 100.0, 100.0, 2000.0,
        100.0,
    )  # fmt: skip


def test_shares_are_of_the_decisions_with_a_call() -> None:
    found = figures([point(0.9, 1), point(0.6, 2), point(0.5, 3), point(0.2, 0),
                     point(0.1, 0, calling=False)])  # fmt: skip
    assert [found[key] for key in ("exact_1", "exact_2", "exact_3", "name_1")] == [
        0.25, 0.5, 0.75, 0.75,
    ]  # fmt: skip
    assert (found["points"], found["calling_points"]) == (5, 4)


def test_losses_and_calibration() -> None:
    points = [point(0.75, 1), point(0.75, 0), point(0.0, 0), point(1.0, 1)]
    assert log_loss(points) == pytest.approx((-math.log2(0.75) - math.log2(0.25)) / 4)
    assert brier(points) == pytest.approx((0.25**2 + 0.75**2) / 4)
    assert calibration_error(points) == pytest.approx(0.5 / 4)
    assert log_loss([]) is brier([]) is calibration_error([]) is covered([]) is None


def test_coverage_is_of_the_lowest_threshold_with_the_precision() -> None:
    right = [point(0.9, 1)] * 17
    points = [*right, *[point(0.8, 0)] * 3, *[point(0.3, 0)] * 14]
    assert covered(points) == 17 / 34
    assert covered([*points, point(0.95, 0)]) == 0.0 + 17 / 35 * (17 / 18 >= 0.85)
    assert coverage_curve(points)[-1] == (17 / 34, 17 / 34)


def test_equal_confidences_are_started_together() -> None:
    assert covered([point(0.9, 1), point(0.9, 0)]) == 0.0


def test_of_a_parallel_turn_only_what_shortens_it_is_saved() -> None:
    times = TurnTimes((500.0, 900.0), 2000.0, 1.0)
    assert times.tools == times.savable == 900.0
    assert times.saved(0) == 0.0
    assert times.saved(1) == 400.0
    assert TurnTimes((900.0,), 300.0, 1.0).saved(0) == 300.0


def test_declared_latencies_are_the_same_for_every_predictor() -> None:
    run = run_of_record(next(shop_runs(1)))
    one, other = (DeclaredLatencies().turns(run, 3) for _ in range(2))
    turns = [one.next_turn(run.steps[:1]), one.next_turn(())]
    assert turns == [other.next_turn(run.steps[:1]), other.next_turn(())]
    assert 1000.0 <= turns[0].thinking <= 5000.0
    assert 300.0 <= DeclaredLatencies().typical("shop", "get_user") <= 3000.0


def test_recorded_latencies_are_those_of_the_calls() -> None:
    steps = [
        step("a", {}, seen_at=1_000, called_at=1_800, returned_at=2_100),
        step("a", {}, called_at=2_700, returned_at=2_900, turn=2),
        step("b", {}, called_at=2_700, returned_at=3_000, turn=2),
    ]
    run = run_of_record({"steps": steps})
    assert all_recorded([run])
    assert not all_recorded([run, run_of_record({"steps": [step("a", {})]})])
    source = RecordedLatencies([run])
    turns = source.turns(run, 0)
    assert turns.next_turn(run.steps[:1]) == TurnTimes((300.0,), 800.0, 1.0)
    assert turns.next_turn(run.steps[1:]) == TurnTimes((200.0, 300.0), 600.0, 1.0)
    assert source.typical(run.domain, "a") == 250.0


def test_net_time_is_what_the_default_policy_starts() -> None:
    sure = [point(0.99, 1, run=n) for n in range(300)]
    wrong = [point(0.05, 0, run=n) for n in range(300)]
    found = time_saved(started_points(sure + wrong, 0.5))
    assert found["right"] > 0.95
    assert 0.4 < found["net"] <= found["tool_time_saved"] <= 0.5
    none = time_saved(started_points(sure, 0.5), lambda _tool: False)
    assert (none["started"], none["right"], none["net"]) == (0.0, None, 0.0)


def test_a_tool_is_read_only_by_its_verb_or_by_name() -> None:
    assert looks_read_only("getUserDetails")
    assert looks_read_only("search_direct_flight")
    assert not looks_read_only("book_reservation")
    assert not looks_read_only("cancel_and_list")
    assert not looks_read_only("widget")
    named = read_only_tools(["a,b"], ["a", "b", "c"])
    assert (named.holds("a"), named.holds("c")) == (True, False)
    with pytest.raises(ValueError, match="no run calls x; the runs call a"):
        read_only_tools(["x"], ["a"])


def test_names_of_read_only_tools_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("a\n\nb\n")
    assert read_only_tools([str(tmp_path / "names.txt")], ["a", "b"]).holds("b")


def test_calls_are_equal_as_json() -> None:
    assert call_key("t", {"a": 1, "b": (2,)}) == call_key("t", {"b": [2], "a": 1})
    assert call_key("t", {"a": 1}) != call_key("t", {"a": 1.0})
    with pytest.raises(TypeError, match="arguments of t that are not JSON"):
        call_key("t", {"a": object()})


def test_a_guess_is_made_before_the_answer_is_shown() -> None:
    lengths: list[int] = []

    def watch(history: HistoryView) -> Sequence[tuple[str, dict[str, object]]]:
        lengths.append(len(history))
        return [("get_user", {"user_id": "mia_li_1000"})]

    run = run_of_record(next(shop_runs(1)))
    judged = judge(CallablePredictor(watch), [(0, run)], DeclaredLatencies(), 0)
    assert [each.hit for each in judged.points] == [True, False, False, False]
    assert lengths == [2, 4, 6, 8]  # greeting and question; then two more entries with each call
    assert 0 < judged.state_bytes < 300  # without the function


def _plan(file: Path, predictors: tuple[str, ...], seeds: tuple[int, ...]) -> EvaluationPlan:
    return EvaluationPlan(file, predictors, seeds, DECLARED, (0.5,), frozenset(("get_user",)))


def _without_times(found: object) -> object:
    if isinstance(found, dict):
        return {k: _without_times(v) for k, v in found.items() if not k.endswith("_us")}
    return [_without_times(each) for each in found] if isinstance(found, list) else found


def test_results_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    file = write_runs(tmp_path / "r.jsonl", [*shop_runs(6), *shop_runs(6, "other")])
    runs = read_recorded_runs(file).runs
    plan = _plan(file, ("pattern", "literal"), (0, 1))
    reached: list[EvaluationProgress] = []
    alone = evaluate(plan, runs, reached.append, 1)
    assert _without_times(alone) == _without_times(evaluate(plan, runs, reached.append, 2))
    assert reached[-1].share == pytest.approx(1.0)
    assert reached[-1].predictions == 4 * 12 * 4


def test_the_first_predictor_is_at_the_top_and_the_others_beside_it(tmp_path: Path) -> None:
    file = write_runs(tmp_path / "r.jsonl", [*shop_runs(20), *shop_runs(4, "other")])
    runs = read_recorded_runs(file).runs
    figures = evaluate(_plan(file, tuple(BASELINES), (0,)), runs, lambda _: None, 1)
    evaluated = Evaluated("r.jsonl", len(runs), 72, (0,), DECLARED, ("declared",), ())
    found = results(evaluated, figures)
    assert found["predictor"] == "back_off"
    assert set(found["baselines"]) == {"pattern", "names_only", "literal"}
    assert set(found["domains"]) == {"shop", "other"}
    assert found["exact_1"] > 0.5 > found["baselines"]["literal"]["exact_1"]
    assert found["baselines"]["names_only"]["exact_1"] == 0.0
    assert found["first_runs"]["calling_points"] == found["repeats"]["calling_points"] == 36
    assert found["runs"] == 24 == sum(each["runs"] for each in found["domains"].values())
    assert found["state_bytes"] == max(each["state_bytes"] for each in found["domains"].values())
    assert "read_only" in found["net_time"]["0.5"]
    assert "pattern, the best simple predictor" in found["conclusion"][0]


def test_runs_are_shuffled_by_the_seed_alone() -> None:
    runs = [run_of_record(each) for each in shop_runs(10)]
    assert shuffled(runs, 1) == shuffled(runs, 1) != shuffled(runs, 2)


def test_an_unknown_predictor_is_named() -> None:
    with pytest.raises(LookupError, match="there is no predictor 'best'; choose headstart, back_o"):
        maker_of("best")
    with pytest.raises(LookupError, match="there is no module 'absent_module'"):
        maker_of("absent_module:guess")
    with pytest.raises(LookupError, match="module 'json' has no 'guess'"):
        maker_of("json:guess")
    assert isinstance(maker_of("json:loads")(), OwnPredictor)
