"""The default of the memory on synthetic runs: it helps where it can, and abstains elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from memory.cases.case import Case
from memory.embedding.wordllama import WordLlamaEmbedder
from memory.evaluation.figures import method_figures
from memory.evaluation.prequential import judged_runs, query_of
from tests.memory.run_cases import intents, unexplained

EMBEDDER = WordLlamaEmbedder()
RIVALS = ("memento", "memrl")


def figures(cases: Sequence[Case], *, new_tasks: bool = False) -> dict[str, Any]:
    vectors = EMBEDDER.embed([query_of(each) for each in cases])
    return method_figures(list(judged_runs(cases, vectors, new_tasks=new_tasks)))


@pytest.mark.parametrize("new_tasks", [False, True])
def test_requests_that_state_an_intent_are_worth_retrieving(new_tasks: bool) -> None:
    found = figures(intents(300), new_tasks=new_tasks)
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


def test_a_course_that_changed_is_followed() -> None:
    found = figures(intents(300, failing=0.1, drift=True))
    assert found["memory"]["exact"] > found["embedding"]["exact"]


def test_with_one_task_nothing_is_left_in_the_other_column() -> None:
    found = figures(intents(40, tasks="one"), new_tasks=True)
    assert found["memory"]["exact"] == found["typical"]["exact"] == 0


def test_one_run_has_nothing_before_it() -> None:
    assert figures(intents(1))["memory"]["edit"] is None
