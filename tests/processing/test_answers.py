"""Three answers, from events to what a reader decides: speculate, suggest or ask."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import headstart
from headstart.speculation.decision import Guess, decide
from headstart.speculation.tool_allowlist import SAFE
from headstart.thresholds.threshold import Threshold, decode_value, resolve
from learners.constant import Always, Fixed, Never
from learners.policy import Policy
from learners.registry import POLICIES, policy
from learners.sliding_window import Sliding
from processing.config import LearningConfig
from processing.contexts.thresholds import threshold_from_row
from processing.state.rows import context_key
from processing.task import PartitionTask
from tests.processing.building import EPOCH, NOW, Table, fetch, judged

PATHS = ("workflow_type=refund", "workflow_type=refund/domain=retail")
EVERY = pytest.mark.parametrize("name", POLICIES)
SUGGESTS = [
    name
    for name, each in POLICIES.items()
    if not isinstance(each, Always | Fixed | Never | Sliding)  # sliding has a band of its own
]


def learned(learner: Policy, *events: Any, weight: int = 1) -> Table:
    """Return the table after events, as the threshold agent has it."""
    table: Table = {}
    core = PartitionTask(0, 1, EPOCH, LearningConfig(learner, feedback_weight=weight), table.get)
    core.restore([])
    core.apply(fetch(*events))
    table.update(core.commit().rows)
    return table


def served(table: Table) -> Threshold:
    """Return what a reader receives, by way of the JSON that Redis holds."""
    values = [
        msgspec.json.encode(threshold_from_row(key, table[key]))
        for key in (context_key("acme", path) for path in PATHS)
    ]
    return resolve(PATHS[::-1], [decode_value(value) for value in values[::-1]])


def action(confidence: float, table: Table) -> str:
    guess = Guess("search", confidence)
    return decide(guess, served(table), "act", refusal_reason=SAFE, fits=True, explore=False).action


def suggested(right: int, count: int = 400, confidence: float = 0.8) -> list[dict[str, Any]]:
    """Return predictions that were shown, of every ten so many right."""
    return [
        judged(
            n % 10 < right,
            confidence,
            data={
                "context": {"domain": "retail"},
                "prediction": {"was_correct": n % 10 < right, "mode": "suggestion"},
            },
        )
        for n in range(count)
    ]


def verdict(accepted: bool, confidence: float = 0.8) -> Any:
    """Return a user's verdict on a suggestion, made as executors make it."""
    return headstart.user_feedback(
        target_id="x", accepted=accepted, confidence=confidence, tenant="acme", timestamp=NOW,
        workflow_type="refund", workflow_id="w1", context={"domain": "retail"},
    )  # fmt: skip


@EVERY
def test_a_reader_receives_the_learners_answer(name: str) -> None:
    learner = policy(name)
    table = learned(learner, *suggested(5, 60), *(judged(n % 2 == 0) for n in range(60)))
    key = context_key("acme", PATHS[-1])
    published, found = threshold_from_row(key, table[key]), served(table)
    assert found.level == PATHS[-1]
    assert (found.speculate, found.suggest) == (published.speculate, published.suggest)


def test_where_nothing_is_ever_started_nothing_is() -> None:
    table = learned(policy("never"), judged())
    assert action(1.0, table) == "ask"
    assert action(0.0, learned(policy("always"), judged(False))) == "speculate"
    fixed = learned(policy("fixed"), judged())
    assert [action(p, fixed) for p in (0.92, 0.91, 0.69)] == ["speculate", "suggest", "ask"]


@pytest.mark.parametrize("name", SUGGESTS)
def test_guesses_that_are_right_more_often_than_not_are_suggested(name: str) -> None:
    """Seven of ten are too few to start (.85), and enough to show; two of ten are not."""
    assert action(0.8, learned(policy(name), *suggested(7))) == "suggest"
    assert action(0.8, learned(policy(name), *suggested(2))) == "ask"


def test_sliding_shows_less_where_suggestions_are_wrong() -> None:
    assert action(0.55, learned(policy("sliding"), *suggested(6, 20, 0.55))) == "suggest"
    assert action(0.55, learned(policy("sliding"), *suggested(2, 60, 0.55))) == "ask"


@pytest.mark.parametrize("name", SUGGESTS)
def test_guesses_that_users_refuse_are_no_longer_suggested(name: str) -> None:
    shown = suggested(7)
    refused = learned(policy(name), *shown, *[verdict(False)] * 700)  # ema looks every 50
    assert action(0.8, refused) == "ask"
    accepted = learned(policy(name), *shown, *[verdict(True)] * 20)
    assert action(0.8, accepted) in {"suggest", "speculate"}


def test_a_verdict_weighs_as_many_outcomes_as_it_is_set_to() -> None:
    some = [verdict(False)] * 4
    light, heavy = (learned(policy("td"), *some, weight=weight) for weight in (1, 5))
    assert served(heavy).suggest > served(light).suggest > 0.70
    assert served(learned(policy("td"), judged(), *some, weight=0)).suggest == 0.70
