"""The engine does, to the bit, what one policy does one prediction at a time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.outcome import Outcome
from learners.registry import POLICIES, policy
from replay.engine.engine import LIVE, BacktestEngine
from replay.engine.policy_runners import PlainRunner, runner_for
from replay.engine.reference import ReferenceReplay, answers
from replay.predictions.blocks import Block, FirstOutcome, Step
from replay.predictions.notes import Notes
from replay.predictions.outcomes_file import ROOT, JudgedOutcome
from replay.results.summary import report
from replay.results.unit_results import unit_sums
from tests.replay.arms import FAST, RecordedAnswers, paths, stream
from tests.replay.scoring import anchors, score


@settings(max_examples=30, deadline=None)
@given(stream)
def test_fast_arms_answer_as_a_reader_does(
    events: list[tuple[tuple[str, str | None, str], Outcome]],
) -> None:
    recorded = RecordedAnswers()
    judge = BacktestEngine({name: policy(name) for name in FAST}, observer=recorded)
    judged = [JudgedOutcome(paths(where), each) for where, each in events]
    for each in judged:
        judge.judge(judge.chain("t", each.paths), each.outcome, 0)
    judge.flush()
    for name in FAST:
        expected = list(answers(ReferenceReplay(policy(name)), judged))
        assert recorded.thresholds[name] == [each.threshold for each in expected]
        assert recorded.levels[name] == [each.level for each in expected]
        tally = judge.parts[0].totals[name]
        right = score(judged, expected, anchors(judged))
        assert sum(tally.hits) + sum(tally.misses) == right.speculated
        assert sum(tally.turns) == right.oscillations
        assert sum(tally.saved) - sum(tally.wasted) == pytest.approx(right.utility, abs=1e-6)


@settings(max_examples=20, deadline=None)
@given(stream, st.integers(1, 9), st.sampled_from(FAST))
def test_delayed_feedback_is_answered_by_what_was_known_when_asked(
    events: list[tuple[tuple[str, str | None, str], Outcome]], delay: int, name: str
) -> None:
    recorded, waiting = RecordedAnswers(), []
    judge = BacktestEngine({name: policy(name)}, observer=recorded)
    replay, expected = ReferenceReplay(policy(name)), []
    for where, each in events:
        chain = judge.chain("t", paths(where))
        known = replay.state(paths(where))
        waiting.append((chain, where, each, judge.ask(chain), known))
        if len(waiting) > delay:
            first = waiting.pop(0)
            judge.judge(first[0], first[2], 0, first[3])
            expected.append(replay.threshold(paths(first[1]), first[2], first[4]))
            replay.learn(paths(first[1]), first[2])
    judge.flush()
    assert recorded.thresholds.get(name, []) == expected


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_walks(name: str) -> None:
    """Fast or not, an arm answers like the plain one."""
    fast, plain = runner_for(policy(name)), PlainRunner(policy(name), suggest=True)
    steps: list[Step] = [
        ((0, 1 + n % 3), Outcome(n % 10 / 10, n % 4 > 0, gain=3.0, cost=4.0), -1)
        for n in range(200)
    ]
    births = [FirstOutcome(0, -1, 0), *(FirstOutcome(n, 0, 1 + n) for n in range(3))]
    block = Block(steps, 4, births)
    one, other = fast.run(block), plain.run(block)
    assert list(one.thresholds) == list(other.thresholds)
    assert list(one.served) == list(other.served)
    assert len(other.suggest) == 200


def test_unjudged_predictions_are_forgotten() -> None:
    judge = BacktestEngine({"td": policy("td"), "hops": policy("hops")})
    chain = judge.chain("t", (ROOT, "workflow_type=a"))
    judge.ask(chain)
    later = judge.ask(chain)
    judge.forget(later)
    judge.flush()
    assert list(judge._asked) == [later]
    judge.judge(chain, Outcome(0.9, True), 0, later)
    judge.flush()
    assert not judge._asked
    assert sum(judge.parts[0].counts) == 1


def test_the_live_arm_does_what_was_done() -> None:
    judge = BacktestEngine({"never": policy("never")}, live=True)
    chain = judge.chain("t", (ROOT, "workflow_type=a"))
    for n in range(100):
        judge.judge(chain, Outcome(0.5, n % 2 == 0, speculated=n < 50, gain=3.0, cost=1.0), n % 20)
    judge.flush()
    found = report("a test", {"never": "never"}, [unit_sums(0, judge, Notes(), 0.0)])
    live = found["policies"][LIVE]
    assert (live["hits"], live["misses"], live["utility"]) == (25, 25, 50.0)
    assert found["against"] == LIVE
    assert found["policies"]["never"]["difference"] == -50.0
    assert "never would have earned 50 ms less than what was done live" in found["conclusion"]


def test_contexts_beyond_the_limit_are_judged_by_their_parent() -> None:
    judge = BacktestEngine({"td": policy("td")}, most_contexts=3)
    judge.chain("t", (ROOT, "workflow_type=a", "workflow_type=a/domain=d"))
    assert judge.chain("t", (ROOT, "workflow_type=b")) == (0,)
    assert judge.chain("t", (ROOT, "workflow_type=a", "workflow_type=a/domain=e")) == (0, 1)
    assert judge.contexts.beyond == 2
