"""A past answer is given again only under the rule."""

from __future__ import annotations

from typing import Any

import pytest

from memory.episodes.hashes import query_hash
from memory.retrieval.answers import SAFE, SOURCE, AnswerRule, past_answer, usefulness
from memory.retrieval.request import MemoryQuery
from memory.retrieval.result import FoundEpisode

CONTEXT = {"domain": "retail", "user": "ann"}
ASKED = MemoryQuery(text="Cancel  my order", context=CONTEXT, workflow_type="refund")


def episode(id: int, **changed: Any) -> FoundEpisode:
    query = changed.pop("query", "cancel my order")
    plain = FoundEpisode(
        id, "refund", f"run-{id}", None, None, None, 0, id, "success", 1.0, 0.9, 0.0, None, query,
        CONTEXT, None, [], [], [], [], [], f"answer {id}", query_hash(query), 1, 0.5, 0.99,
    )  # fmt: skip
    return plain._replace(**changed)


def test_an_equal_run_that_succeeded_answers() -> None:
    found = past_answer(ASKED, [episode(1), episode(2)])
    assert (found.response, found.episode, found.similar) == ("answer 2", episode(2), (episode(1),))


@pytest.mark.parametrize(
    "changed",
    [
        {"query": "cancel my orders"},
        {"context": {**CONTEXT, "user": "bob"}},
        {"context": {"domain": "retail"}},
        {"workflow_type": "exchange"},
        {"outcome": "failure"},
        {"outcome": "partial"},
        {"outcome": None},
        {"confidence": 0.7},
        {"confidence": None},
        {"usefulness": -0.5},
        {"response": None},
        {"response": ""},
    ],
)
def test_what_differs_or_is_not_good_enough_does_not_answer(changed: dict[str, Any]) -> None:
    found = past_answer(ASKED, [episode(1, **changed)])
    assert (found.response, found.episode) == (None, None)
    assert len(found.similar) == 1


def test_a_newer_failure_withdraws_an_answer() -> None:
    assert past_answer(ASKED, [episode(1), episode(2, outcome="failure")]).response is None
    assert past_answer(ASKED, [episode(1), episode(2, outcome=None)]).response == "answer 1"


def test_without_a_workflow_type_or_context_nothing_is_equal() -> None:
    for asked in (
        MemoryQuery(text=ASKED.text, context=CONTEXT),
        MemoryQuery(text=ASKED.text, workflow_type="refund"),
    ):
        assert past_answer(asked, [episode(1)]).response is None


def test_the_sources_rule_answers_for_similar_queries() -> None:
    alike = episode(1, query="please cancel my order", similarity=0.81)
    assert past_answer(ASKED, [alike], SAFE).response is None
    assert past_answer(ASKED, [alike], SOURCE).response == "answer 1"
    assert past_answer(ASKED, [alike._replace(similarity=0.8)], SOURCE).response is None


def test_chosen_keys_of_the_context_must_be_equal() -> None:
    other = episode(1, context={**CONTEXT, "user": "bob"})
    assert past_answer(ASKED, [other], AnswerRule(keys=("domain",))).response == "answer 1"
    assert past_answer(ASKED, [other], AnswerRule(keys=("user",))).response is None


def test_similar_episodes_are_shown_from_one_half_on() -> None:
    found = past_answer(
        ASKED,
        [
            episode(n, query="other", similarity=each)
            for n, each in ((1, 0.5), (2, 0.49), (3, None))
        ],
    )
    assert [each.id for each in found.similar] == [1]


def test_usefulness_is_the_balance_of_judgements() -> None:
    assert [usefulness(*each) for each in ((0, 0), (3, 0), (0, 2), (3, 1))] == [0, 1, -1, 0.5]


@pytest.mark.parametrize("given", [{"above_confidence": 1.1}, {"above_similarity": -0.1}])
def test_a_rule_with_an_impossible_limit_is_refused(given: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be from 0 to 1"):
        AnswerRule(**given)  # type: ignore[arg-type]
