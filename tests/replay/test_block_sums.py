"""What is summed up in blocks is what one prediction after the other adds up to, to the bit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from headstart.keys import context_paths
from learners.outcome import Outcome
from learners.registry import policy
from replay.engine.engine import BacktestEngine
from replay.engine.ground_truth import ALARM, BINS, SLACK, Drift, Drifts
from replay.engine.policy_runners import Answers
from replay.engine.reference import ReferenceReplay, answers
from replay.predictions.blocks import Block, TimeSpan
from replay.predictions.outcomes_file import ROOT, JudgedOutcome
from replay.predictions.utility import best_fixed

POLICIES = ("fixed:.5", "always", "never", "td", "aci", "hops")

outcome = st.builds(
    Outcome,
    confidence=st.floats(0, 1),
    correct=st.booleans(),
    gain=st.sampled_from([0.0, 0.1, 1 / 3, 400.0]),
    cost=st.sampled_from([0.0, 0.7, 2 / 3, 600.0]),
    speculated=st.booleans(),
)
paths = st.sampled_from(
    [
        (ROOT,),
        (ROOT, *context_paths("a", {}.get)),
        *((ROOT, *context_paths(kind, {"user_id": user}.get)) for kind in "abc" for user in "uv"),
    ]
)
stream = st.lists(
    st.tuples(st.builds(JudgedOutcome, paths, outcome), st.integers(0, 3)), min_size=1, max_size=150
)


class RecordedAnswers:
    """Keeps what arms answered."""

    def __init__(self) -> None:
        self.answers: defaultdict[str, list[float]] = defaultdict(list)

    def __call__(self, name: str, levels: Sequence[str], given: Answers) -> None:
        self.answers[name] += given.thresholds


def judged(events: Sequence[tuple[JudgedOutcome, int]]) -> tuple[BacktestEngine, RecordedAnswers]:
    recorded = RecordedAnswers()
    judge = BacktestEngine({name: policy(name) for name in POLICIES}, live=True, observer=recorded)
    for each, group in events:
        judge.judge(judge.chain("t", each.paths), each.outcome, group)
    judge.flush()
    return judge, recorded


@given(stream)
def test_earnings(events: list[tuple[JudgedOutcome, int]]) -> None:
    judge, recorded = judged(events)
    part = judge.parts[0]
    for name, tally in part.totals.items():
        groups, hits, misses = [0.0] * 4, defaultdict[int, int](int), defaultdict[int, int](int)
        saved, wasted = defaultdict[int, float](float), defaultdict[int, float](float)
        for (each, group), threshold in zip(events, recorded.answers[name], strict=True):
            if each.outcome.confidence < threshold:
                continue
            leaf = judge.chain("t", each.paths)[-1]
            if each.outcome.correct:
                hits[leaf] += 1
                saved[leaf] += each.outcome.gain
                groups[group] += each.outcome.gain
            else:
                misses[leaf] += 1
                wasted[leaf] += each.outcome.cost
                groups[group] -= each.outcome.cost
        leaves = range(len(judge.contexts.places))
        assert tally.hits == [hits[leaf] for leaf in leaves]
        assert tally.misses == [misses[leaf] for leaf in leaves]
        assert tally.saved == [saved[leaf] for leaf in leaves]
        assert tally.wasted == [wasted[leaf] for leaf in leaves]
        assert tally.groups[:4] == groups
        started = sum(hits.values()) + sum(misses.values())
        assert sum(point.started for point in tally.points) == started
        assert sum(point.hits for point in tally.points) == sum(hits.values())


@given(stream)
def test_sums_that_do_not_depend_on_the_policy(events: list[tuple[JudgedOutcome, int]]) -> None:
    judge, _ = judged(events)
    part = judge.parts[0]
    always: dict[int, float] = {}
    values: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    bins = [[0, 0, 0.0, 0.0, 0.0] for _ in range(BINS + 1)]
    for each, _ in events:
        done, leaf = each.outcome, judge.chain("t", each.paths)[-1]
        earned = done.gain if done.correct else -done.cost
        always[leaf] = always.get(leaf, 0.0) + earned
        values[leaf].append((done.confidence, earned))
        own = bins[int(done.confidence * BINS)]
        own[0] += 1
        own[1] += done.correct
        own[2] += done.confidence
        own[3] += done.gain if done.correct else 0.0
        own[4] += 0.0 if done.correct else done.cost
    assert list(part.hindsight.always.items()) == list(always.items())
    assert {leaf: part.hindsight.best(leaf) for leaf in values} == {
        leaf: best_fixed(each) for leaf, each in values.items()
    }
    found = [[b.count, b.right, b.confidence, b.gain, b.cost] for b in part.reliability.bins]
    assert found == bins


def drifts(events: Sequence[tuple[int, Outcome]], size: int) -> list[Drift]:
    """Page-Hinkley, one event after the other. `at` is of the block's first, as in a report."""
    tests: defaultdict[int, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    found = []
    for number, (place, each) in enumerate(events):
        test = tests[place]
        error = (1.0 - each.confidence) if each.correct else -each.confidence
        test[0] += 1.0
        test[1] += (error - test[1]) / test[0]
        away = error - test[1]
        test[2] = max(0.0, test[2] + away - SLACK)
        test[3] = max(0.0, test[3] - away - SLACK)
        if max(test[2:]) > ALARM:
            at = events[number - number % size][1].timestamp
            found.append(Drift(place, at, number + 1, test[2] > ALARM))
            tests[place] = [0.0, 0.0, 0.0, 0.0]
    return found


def test_drifts_are_found_in_the_order_in_which_they_come() -> None:
    draw, watch, events, size = Random(5), Drifts(), list[tuple[int, Outcome]](), 64
    for number in range(64 * 60):
        kind, well = draw.choice((1, 2, 3)), number // 700 % 2 == 0
        right = draw.random() < (0.9 if well else 0.1)
        events.append((kind, Outcome(draw.random(), right, timestamp=number)))
    for begin in range(0, len(events), size):
        steps = [((0, kind, kind + 3), each, -1) for kind, each in events[begin : begin + size]]
        ends = [TimeSpan(size, events[begin][1].timestamp, halves=False)]
        watch.add(Block(steps, 7, stretches=ends))
    expected = drifts(events, size)
    assert len(expected) > 5
    assert {each.context for each in expected} == {1, 2, 3}
    assert [(each.context, each.at, each.number, each.better) for each in watch.found] == [
        (each.context, each.at, each.number, each.better) for each in expected
    ]


def test_levels_that_learn_from_the_same_learn_it_once_and_right() -> None:
    """A type with one domain has one state for both, until another domain comes."""
    draw, names = Random(8), ("td", "ema", "aci", "sliding", "conformal_pid", "hops")
    events = []
    for number in range(1_500):
        kind = draw.choice("abc")
        user = "u" if number < 500 or kind != "b" else draw.choice("uvw")
        levels = {"domain": "d" if number < 1_000 else draw.choice("de"), "user_id": user}
        stakes = {"gain": draw.choice((1.0, 400.0)), "cost": draw.choice((2.0, 600.0))}
        done = Outcome(draw.random(), draw.random() < 0.7, **stakes)
        events.append(JudgedOutcome((ROOT, *context_paths(kind, levels.get)), done))
    recorded = RecordedAnswers()
    judge = BacktestEngine({name: policy(name) for name in names}, observer=recorded)
    for each in events:
        judge.judge(judge.chain("t", each.paths), each.outcome, 0)
    judge.flush()
    for name in names:
        expected = [each.threshold for each in answers(ReferenceReplay(policy(name)), events)]
        assert recorded.answers[name] == expected
