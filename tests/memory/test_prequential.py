"""The default of the memory on synthetic runs: it helps where it can, and abstains elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headstart.prediction.interface import ToolCall
from memory.cases.case import Case
from memory.embedding.wordllama import WordLlamaEmbedder
from memory.evaluation.columns import Column
from memory.evaluation.confidence import judged_guesses
from memory.evaluation.figures import evidence_figures, method_figures
from memory.evaluation.prequential import judged_runs, query_of
from tests.memory.run_cases import case, intents, unexplained, unexplained_tasks

EMBEDDER = WordLlamaEmbedder()
RIVALS = ("memento", "memrl")


def figures(cases: Sequence[Case], *, column: Column = "all") -> dict[str, Any]:
    vectors = EMBEDDER.embed([query_of(each) for each in cases])
    return method_figures(list(judged_runs(cases, vectors, column=column)))


@pytest.mark.parametrize("column", ["all", "new_tasks"])
def test_requests_that_state_an_intent_are_worth_retrieving(column: Column) -> None:
    found = figures(intents(300), column=column)
    exact = {name: each["exact"] for name, each in found.items()}
    assert exact["memory"] > 2 * exact["most_frequent"]
    assert exact["q"] >= exact["embedding"] + 0.03
    assert all(exact["memory"] > exact[name] for name in RIVALS)
    assert found["memory"]["delta_edit"] > 0.2


@pytest.mark.parametrize(
    "cases",
    [
        lambda: unexplained(300),
        lambda: unexplained(300, tools=3),
        lambda: unexplained(300, queries=False),
    ],
)
def test_where_nothing_helps_the_typical_course_remains(cases: Callable[[], list[Case]]) -> None:
    found = figures(cases())
    assert found["memory"]["delta_edit"] >= -0.01
    assert found["memory"]["exact"] >= found["embedding"]["exact"]


def test_the_choice_does_not_lose_to_a_rule_that_it_contains() -> None:
    """Here a choice that is followed until the typical course leads by half a run loses .015."""
    found = figures(unexplained_tasks(12))
    assert found["most_frequent"]["delta_edit"] > 0.02
    assert found["memory"]["delta_edit"] > 0
    assert found["memory"]["exact"] >= found["most_frequent"]["exact"] - 0.005


def test_where_nothing_helps_evidence_costs_nearly_nothing() -> None:
    """Votes in one logistic cost .013 nats a guess here."""
    found = evidence_figures(list(judged_guesses(unexplained_tasks(11))))
    assert found["log_loss_delta"] < 0.005


def test_a_course_that_changed_is_followed() -> None:
    found = figures(intents(300, failing=0.1, drift=True))
    assert found["memory"]["exact"] > found["embedding"]["exact"]


def test_with_one_task_nothing_is_left_in_the_other_column() -> None:
    found = figures(intents(40, tasks="one"), column="new_tasks")
    assert found["memory"]["exact"] == found["typical"]["exact"] == 0


def test_one_run_has_nothing_before_it() -> None:
    assert figures(intents(1))["memory"]["edit"] is None


def test_a_task_under_several_ids_is_no_new_situation() -> None:
    """Each course is asked for again and again, each time as another task."""
    courses = [(f"step_{number}", f"end_{number}") for number in range(10)]
    repeated = [
        case(number, "", courses[number % 10], task=f"t{number}",
             first=ToolCall("get_order", {"id": number % 10}))
        for number in range(80)
    ]  # fmt: skip
    flattered = figures(repeated, column="new_tasks")["memory"]["exact"]
    assert flattered > 0.6
    assert figures(repeated, column="new_situations")["memory"]["exact"] < 0.2
    kept = list(judged_guesses(repeated, column="new_situations"))
    all_of = list(judged_guesses(repeated, column="new_tasks"))
    assert sum(run.log_loss[1] for run in all_of) < 0.8 * sum(run.log_loss[0] for run in all_of)
    assert [run.log_loss[1] for run in kept] == [run.log_loss[0] for run in kept]
