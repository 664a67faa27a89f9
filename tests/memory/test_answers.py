"""A past answer is given again only under the rule."""

from __future__ import annotations

from dataclasses import replace
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
        CONTEXT, None, [], [], [], [], [], f"answer {id}", query_hash(query), 1, (), 0.5, 0.99,
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


BOB = "user:bob"
REFUNDED = "refunded"


def of(writer: str, id: int, **changed: Any) -> FoundEpisode:
    kind, _, name = writer.partition(":")
    return episode(id, **{f"{kind}_id": name, **changed})


def agreed(*writers: str) -> list[FoundEpisode]:
    return [of(each, n, response=REFUNDED) for n, each in enumerate(writers, 1)]


@pytest.mark.parametrize(
    ("asking", "runs", "answer"),
    [
        ("user:ann", [of("user:ann", 1)], "answer 1"),
        ("user:ann", [of(BOB, 1)], None),
        ("user:ann", [episode(1)], None),
        ("user:ann", [of(BOB, 1), of(BOB, 2, response="answer 1")], None),
        ("user:ann", [of(BOB, 1), of("user:cid", 2)], None),
        ("user:ann", agreed(BOB, "user:cid"), REFUNDED),
        ("user:ann", agreed(BOB, "agent:x"), REFUNDED),
        ("user:ann", [of(BOB, 2), of("user:ann", 1)], "answer 1"),
        ("user:ann", [of(BOB, 2, outcome="failure"), of("user:ann", 1)], None),
        ("user:ann", [of("user:ann", 2, confidence=0.1), of("user:ann", 1)], None),
        (
            "user:ann",
            [*agreed(BOB, "user:cid"), of(BOB, 3)],
            None,
        ),
        (
            "user:ann",
            [*agreed(BOB, "user:cid"), of("user:ann", 3, usefulness=-1.0)],
            None,
        ),
        ("agent:x", [of("agent:x", 1)], "answer 1"),
        ("agent:x", [of("agent:x", 1, user_id="bob")], None),
        ("", [of(BOB, 1)], None),
        ("", [of("session:s", 1)], "answer 1"),
        ("user:ann", agreed("session:a", "session:b", "session:c"), None),
    ],
)  # fmt: skip
def test_an_answer_is_the_writers_own_or_of_two_others(
    asking: str, runs: list[FoundEpisode], answer: str | None
) -> None:
    """Its newest run speaks for a writer, and runs that name no user are one writer."""
    kind, _, name = asking.partition(":")
    asked = replace(ASKED, **{f"{kind}_id": name}) if asking else ASKED
    for order in (runs, runs[::-1]):
        assert past_answer(asked, order).response == answer


def test_answers_are_shared_only_if_that_is_chosen() -> None:
    asked = replace(ASKED, user_id="ann")
    shared = AnswerRule(shared=True)
    assert past_answer(asked, [of(BOB, 1)], shared).response == "answer 1"
    assert past_answer(asked, [of(BOB, 2), of("user:ann", 1)], shared).response == "answer 2"
    alike = of(BOB, 1, query="please cancel my order", similarity=0.81)
    assert past_answer(asked, [alike], AnswerRule(above_similarity=0.8)).response is None
    assert past_answer(asked, [alike], SOURCE).response == "answer 1"


def test_without_all_equal_runs_nothing_answers() -> None:
    found = past_answer(ASKED, [episode(1)], complete=False)
    assert (found.response, found.similar) == (None, (episode(1),))


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
