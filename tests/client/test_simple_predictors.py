"""The simple predictors, and a function of the user's as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headstart.prediction.callable_predictor import CallablePredictor
from headstart.prediction.history_view import HistoryView
from headstart.prediction.interface import Evidence, PredictedCall, Predictor, ToolCall
from headstart.prediction.simple.argument_leaves import leaves_of
from headstart.prediction.simple.back_off import BackOffPredictor
from headstart.prediction.simple.literal import LiteralPredictor
from headstart.prediction.simple.names_only import NamesOnlyPredictor
from headstart.prediction.simple.pattern import PatternPredictor
from headstart.prediction.simple.text_tokens import shape, tokens

SIMPLE = (BackOffPredictor, LiteralPredictor, NamesOnlyPredictor, PatternPredictor)


def show_run(predictor: Predictor, number: int) -> list[PredictedCall | None]:
    """Show one run of a shop; return the first guess at each decision."""
    own = predictor.run(agent="a", user_id="u")
    found: list[PredictedCall | None] = []

    def decide(*calls: ToolCall) -> None:
        found.append(next(iter(own.guess()), None))
        own.calls(calls)

    own.user(f"I am mia_li_{number}, please look")
    decide(ToolCall("get_user", {"user_id": f"mia_li_{number}"}))
    own.said("One moment.")
    own.result("get_user", {"orders": [f"W{number}1", f"W{number}2"], "tier": "gold"})
    decide(ToolCall("get_order", {"order_id": f"W{number}1", "full": True}))
    own.result("get_order", "not found", error=True)
    decide()
    return found


@pytest.mark.parametrize("kind", SIMPLE)
def test_before_anything_was_learned_nothing_is_guessed(kind: Callable[[], Predictor]) -> None:
    own = kind().run()
    own.user("Hello")
    assert list(own.guess()) == []
    own.calls([])
    assert list(own.guess()) == []


@pytest.mark.parametrize("kind", [BackOffPredictor, PatternPredictor])
def test_arguments_are_copied_from_where_they_came_before(kind: Callable[[], Predictor]) -> None:
    predictor = kind()
    for number in range(100, 110):
        show_run(predictor, number)
    first, second, _ = show_run(predictor, 500)
    assert first is not None
    assert second is not None
    assert (first.tool, dict(first.arguments)) == ("get_user", {"user_id": "mia_li_500"})
    assert dict(second.arguments) == {"order_id": "W5001", "full": True}
    assert second.confidence > 0.5
    assert second.evidence.source == "arguments"
    assert second.evidence.tries >= 10


def test_names_alone_and_literal_calls() -> None:
    names, literal = NamesOnlyPredictor(), LiteralPredictor()
    for _ in range(5):
        show_run(names, 1)
        show_run(literal, 1)
    first, second, _ = show_run(names, 2)
    assert first is not None
    assert second is not None
    assert (first.tool, first.arguments) == ("get_user", {})
    assert second.tool == "get_order"
    guess = show_run(literal, 2)[0]
    assert guess is not None
    assert guess.arguments == {"user_id": "mia_li_1"}


@pytest.mark.parametrize("kind", SIMPLE)
def test_odd_arguments_and_results_are_taken(kind: Callable[[], Predictor]) -> None:
    own = kind().run()
    for _ in range(3):
        calls: list[ToolCall] = [
            ToolCall("a", {}), ToolCall("b", {"x": None, "y": [], "z": [{"q": 1.5}], "": True}),
            ToolCall("c", {"many": list(range(100))}),
        ]  # fmt: skip
        own.guess()
        own.calls(calls)
        for result in (None, 3, [], {"a": {"b1": {"c": 1}}}, [[1, [2]]], "x" * 5000):
            own.result("a", result)
    assert all(0.0 <= each.confidence <= 1.0 for each in own.guess(5))


def test_values_are_equal_by_type() -> None:
    predictor = PatternPredictor()
    for flag in (True, 1, True, 1):
        own = predictor.run()
        own.guess()
        own.calls([ToolCall("a", {"flag": flag})])
    (guess,) = predictor.run().guess(1)
    assert type(guess.arguments["flag"]) in (bool, int)


def test_leaves_tokens_and_shapes() -> None:
    assert leaves_of({"b": [{"x": 1}], "a": {}}) == [("a", {}), ("b.0.x", 1)]
    assert tokens("On May 7 with card 12, id mia_li_3.", "2024") == [
        "On", "May", "7", "with", "card", "12", "id", "mia_li_3", "card 12", "2024-05-07",
    ]  # fmt: skip
    assert [shape(each) for each in ("mia_li_3668", "JFK", "W12", "iPhone")] == [
        "a_a_9", "A3", "A9", "aAa",
    ]  # fmt: skip


def test_a_function_sees_what_the_run_has_shown() -> None:
    seen: list[HistoryView] = []

    def guess(history: HistoryView) -> Sequence[tuple[str, dict[str, Any]]]:
        seen.append(history)
        return [("get_user", {"user_id": "mia_li_7"})] if history.last_user_message else []

    show_run(CallablePredictor(guess), 7)
    (history,) = {id(each): each for each in seen}.values()
    assert [each.kind for each in history] == [
        "user", "calls", "agent", "result", "calls", "result", "calls",
    ]  # fmt: skip
    assert history.agent == "a"
    assert history.user_id == "u"
    assert [call.tool for call in history.calls] == ["get_user", "get_order"]
    assert history.results["get_order"] == "not found"
    assert history[-2].error


def test_a_guess_without_a_confidence_gets_the_share_that_was_right() -> None:
    predictor = CallablePredictor(lambda _: [("get_user", {"user_id": "mia_li_1"})])
    guesses = [show_run(predictor, 1)[0] for _ in range(2)]
    assert [each.confidence for each in guesses if each] == [1 / 2, 2 / 5]


def test_a_confidence_or_a_whole_guess_of_the_function_is_kept() -> None:
    own = PredictedCall("b", {}, 0.25, Evidence(1, 1.0, 0.25, 0, ""))
    run = CallablePredictor(lambda _: [("a", {"x": 1}, 0.5), own, ("c", {})]).run()
    assert [each.confidence for each in run.guess(2)] == [0.5, 0.25]
    assert run.guess(2)[1] is own
    assert list(CallablePredictor(lambda _: None).run().guess()) == []


@pytest.mark.parametrize(
    ("given", "kind", "reason"),
    [
        ("call", TypeError, "return PredictedCall"),
        (("a",), TypeError, "return PredictedCall"),
        (("a", "x"), TypeError, "the arguments a mapping"),
        (("a", {}, "high"), TypeError, "it must be a number"),
        (("a", {}, 1.5), ValueError, r"it must be in \[0, 1\]"),
        (("a", {}, float("nan")), ValueError, r"it must be in \[0, 1\]"),
    ],
)
def test_another_form_is_refused(given: Any, kind: type[Exception], reason: str) -> None:
    with pytest.raises(kind, match=reason):
        CallablePredictor(lambda _: [given]).run().guess()
