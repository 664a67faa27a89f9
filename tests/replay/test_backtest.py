"""The backtest: chains of contexts as a reader resolves them, and the sums over answers."""

from __future__ import annotations

import re

import pytest

from headstart.calibration import combined, threshold
from learners.constant import Fixed
from learners.hops import Hops
from learners.outcome import Outcome
from learners.registry import POLICIES, policy
from replay.engine.reference import ReferenceReplay, answers, started
from replay.predictions.outcomes_file import JudgedOutcome, OutcomeError, parse_outcomes, paths_of
from tests.replay.scoring import anchors, oscillations, score

LEVELS = ("domain", "user_id")


def judged(p: float, correct: bool, user: str = "u1", **fields: float) -> JudgedOutcome:
    stakes = {"gain": 400.0, "cost": 600.0, **fields}
    context = {"workflow_type": "refund", "domain": "retail", "user_id": user}
    return JudgedOutcome(paths_of(context, LEVELS), Outcome(p, correct, **stakes))


@pytest.mark.parametrize(
    ("context", "paths"),
    [
        ({}, ("default",)),
        ({"workflow_type": "a"}, ("default", "workflow_type=a")),
        (
            {"workflow_type": "a", "user_id": 7, "domain": None},
            ("default", "workflow_type=a", "workflow_type=a/user_id=7"),
        ),
        ({"domain": "d"}, ("default", "workflow_type=/domain=d")),
    ],
)
def test_levels_that_a_context_does_not_have_are_left_out(
    context: dict[str, object], paths: tuple[str, ...]
) -> None:
    assert paths_of(context, LEVELS) == paths


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "line 2"), (b"[]", "an object"), (b'{"correct": true}', "confidence"),
        (b'{"confidence": 2, "correct": true}', r"\[0, 1\]"),
        (b'{"confidence": 0.5, "correct": 1}', "true or false"),
        (b'{"confidence": 0.5, "correct": true, "gain": -1}', "gain"),
        (b'{"confidence": 0.5, "correct": true, "context": []}', "line 2: context"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_outcome_is_named(line: bytes, why: str) -> None:
    lines = [b'{"confidence": 0.5, "correct": true}\n', line]
    if b"[]}" in line:
        line = line.replace(b"[]", b"[1]")
        lines[1] = line
    with pytest.raises(OutcomeError, match=why):
        list(parse_outcomes(lines, LEVELS, "o.jsonl"))


def test_an_answer_is_given_before_its_outcome_is_seen() -> None:
    stream = [judged(0.9, False)] * 3
    answered = list(answers(ReferenceReplay(Hops()), stream))
    assert [each.level for each in answered] == [
        "default",
        stream[0].paths[-1],
        stream[0].paths[-1],
    ]
    assert answered[0].threshold < answered[1].threshold < answered[2].threshold


def test_a_delay_holds_outcomes_back() -> None:
    wrong = [judged(0.9, False)] * 40
    first = [list(started(ReferenceReplay(Hops()), wrong, delay)).index(False) for delay in (0, 7)]
    assert first[1] == first[0] + 7


def test_a_known_context_feels_what_its_parents_learn_elsewhere() -> None:
    replay = ReferenceReplay(Hops())
    here, there = judged(0.9, True, "u1"), judged(0.9, False, "u2")
    replay.learn(*here)
    before = replay.answer(*here).threshold
    for _ in range(50):
        replay.learn(*there)
    assert replay.answer(*here).threshold > before + 0.01


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_runs_on_missing_and_mixed_contexts(name: str) -> None:
    stream = [
        JudgedOutcome(
            paths_of(context, LEVELS), Outcome(0.1 * (n % 11), n % 3 > 0, gain=n % 5, cost=3.0)
        )
        for n in range(60)
        for context in ({}, {"workflow_type": "a", "user_id": str(n % 4)}, {"domain": "d"})
    ]
    answered = list(answers(ReferenceReplay(policy(name)), stream))
    found = score(stream, answered, anchors(stream))
    assert len(answered) == len(stream)
    assert found.utility <= anchors(stream).best_fixed + 1e9
    assert answered == list(answers(ReferenceReplay(policy(name)), stream))


def test_a_reader_computes_what_the_learner_answers() -> None:
    """The deviations of a path are all that a reader needs for a gain and cost of its own."""
    learner = Hops()
    chain = [learner.initial()]
    chain += [learner.begin(chain[0])]
    chain += [learner.begin(chain[1])]
    for n in range(200):
        chain = list(learner.learn(chain, Outcome(n % 10 / 10, n % 3 > 0, gain=10.0, cost=20.0)))
    deviations = [learner.deviation(state) for state in chain]
    for gain, cost in ((1.0, 1.0), (1.0, 4.0), (0.0, 1.0), (1.0, 0.0)):
        own = threshold(combined(deviations), gain, cost)
        assert own == pytest.approx(learner.threshold(chain[-1], gain, cost), abs=1e-12)
        fresh = learner.begin(chain[-1])
        level = learner.deviation(fresh)._replace(outcomes=0.0)
        new = threshold(combined([*deviations, level]), gain, cost)
        assert new == pytest.approx(learner.threshold(fresh, gain, cost), abs=1e-12)


def test_the_sums() -> None:
    stream = [judged(0.9, True), judged(0.8, False), judged(0.7, True), judged(0.2, False)]
    there_was = anchors(stream)
    assert (there_was.best_fixed, there_was.always) == (400.0, -400.0)
    answered = list(answers(ReferenceReplay(Fixed(0.75)), stream))
    found = score(stream, answered, there_was)
    assert (found.utility, found.share_of_best_fixed, found.share_of_always) == (-200.0, -0.5, None)
    assert (found.success_rate, found.recall, found.speculated) == (0.5, 0.5, 2)


@pytest.mark.parametrize(
    ("thresholds", "turns"),
    [([0.9], 0), ([0.9, 0.5], 0), ([0.9, 0.8, 0.9], 1), ([0.9, 0.89, 0.9, 0.89], 0),
     ([0.5, 0.6, 0.59, 0.7, 0.6, 0.61, 0.5, 0.9], 2), ([0.5] * 9, 0)],
)  # fmt: skip
def test_oscillations_are_turns_of_two_hundredths(thresholds: list[float], turns: int) -> None:
    assert oscillations(thresholds) == turns


@pytest.mark.parametrize(
    ("at", "unit"), [("1790000000", "seconds"), ("1790000000.5", "seconds"),
                     ("1790000000000000", "microseconds")],
)  # fmt: skip
def test_a_time_in_another_unit_is_refused(at: str, unit: str) -> None:
    line = f'{{"confidence": 0.5, "correct": true, "at": {at}}}'.encode()
    message = f"f, line 1: at: {at} reads as {unit}; give Unix milliseconds"
    with pytest.raises(OutcomeError, match=re.escape(message)):
        list(parse_outcomes([line], LEVELS, "f"))
