"""Laws of the detectors: silent where nothing changes, quick where something does, once each."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.context_detectors import (
    BLOCK,
    HELD_MS,
    Aim,
    DetectorState,
    OutcomeCounts,
    Signal,
    begin,
    detect,
    elapsed,
    follows,
    is_block,
)

AIM = Aim(0.9, 0.85, exact=True)
SETTLED = 6_400
"""Outcomes before anything changes."""
Truth = Callable[[float], float]
Confidence = Callable[[random.Random], float]


def published(
    seed: int,
    outcomes: int,
    confidence_of: Confidence,
    truth: Truth,
    then: Truth | None = None,
    confidence_after: Confidence | None = None,
    then_ms: float = 10.0,
) -> Iterator[OutcomeCounts]:
    """Return what a context publishes at each outcome, its world changing after `SETTLED`."""
    chance, at, seen = random.Random(seed), 1e9, OutcomeCounts(0, 0, 0, 0, 0, 0)
    for number in range(outcomes):
        changed = number >= SETTLED
        at += chance.expovariate(1.0) * (then_ms if changed else 10.0)
        confidence = (
            (confidence_after or confidence_of)(chance) if changed else confidence_of(chance)
        )
        right = chance.random() < ((then or truth) if changed else truth)(confidence)
        started = confidence >= AIM.speculate
        seen = OutcomeCounts(
            number + 1, seen.right + right, seen.started + started,
            seen.started_right + (started and right), seen.confidence + int(confidence * 1e6),
            int(at),
        )  # fmt: skip
        yield seen


def detected(values: Iterator[OutcomeCounts], every: int = 1) -> list[tuple[int, Signal]]:
    """Return (outcomes, signal) where only every so many-th value is seen."""
    state, found = DetectorState(), []
    for seen in values:
        if seen.outcomes % every == 0 and is_block(state, seen):
            assert follows(state, seen)
            state, signals = detect(state, seen, AIM)
            found += [(seen.outcomes, each) for each in signals]
    return found


def uniform(chance: random.Random) -> float:
    return chance.random()


def sure(chance: random.Random) -> float:
    return chance.uniform(0.5, 1.0)


WORLDS: dict[str, tuple[Confidence, Truth]] = {
    "calibrated": (uniform, lambda p: p),
    "overconfident": (sure, lambda p: 0.7 * p),
    "a coin": (lambda _: 0.5, lambda _: 0.5),
    "nearly always right": (lambda _: 0.97, lambda _: 0.97),
}


@pytest.mark.parametrize("every", [1, 700])
@pytest.mark.parametrize("world", WORLDS)
def test_a_stationary_stream_gives_no_signal(world: str, every: int) -> None:
    confidence_of, truth = WORLDS[world]
    for seed in range(5):
        found = detected(published(seed, 25_000, confidence_of, truth), every)
        assert [each for each in found if each[1].kind != "threshold_converged"] == []


@pytest.mark.parametrize("every", [1, 300])
@pytest.mark.parametrize(("by", "within"), [(0.2, 700), (0.3, 400), (0.4, 300)])
def test_an_abrupt_drift_gives_one_signal_in_time(by: float, within: int, every: int) -> None:
    for seed in range(6):
        values = published(seed, SETTLED + 3_000, sure, lambda p: p, lambda p: p - by)
        found = detected(values, every)
        drifts = [(at, each.evidence) for at, each in found if each.kind == "drift"]
        assert len(drifts) == 1, (seed, drifts)
        at, evidence = drifts[0]
        assert SETTLED < at <= SETTLED + within + every + BLOCK
        assert evidence["way"] == "worse"
        assert float(evidence["statistic"]) > float(evidence["alarm"])


def test_a_drift_back_gives_a_signal_too() -> None:
    chance, seen, state, ways = (
        random.Random(4),
        OutcomeCounts(0, 0, 0, 0, 0, 0),
        DetectorState(),
        [],
    )
    for number in range(12_000):
        right = chance.random() < (0.5 if 4_000 <= number < 8_000 else 0.9)
        seen = OutcomeCounts(
            number + 1, seen.right + right, 0, 0, seen.confidence + 900_000, number
        )
        if is_block(state, seen):
            state, signals = detect(state, seen, AIM)
            ways += [each.evidence["way"] for each in signals if each.kind == "drift"]
    assert ways == ["worse", "better"]


def whats(found: list[tuple[int, Signal]]) -> list[tuple[int, object]]:
    return [(at, each.evidence["what"]) for at, each in found if each.kind == "anomaly"]


def test_unusual_confidences_give_one_signal() -> None:
    values = published(
        1, SETTLED + 3_000, uniform, lambda _: 0.5, confidence_after=lambda c: c.uniform(0.9, 1)
    )
    ((at, what),) = whats(detected(values))
    assert what == "confidence"
    assert SETTLED < at <= SETTLED + BLOCK


def test_an_unusual_share_of_hits_gives_one_signal() -> None:
    values = published(1, SETTLED + 1_000, lambda _: 0.8, lambda _: 0.8, lambda _: 0.2)
    ((at, what),) = whats(detected(values))
    assert what == "right"
    assert SETTLED < at <= SETTLED + BLOCK


def test_a_burst_gives_one_signal() -> None:
    values = published(1, SETTLED + 3_000, uniform, lambda p: p, then_ms=0.2)
    found = detected(values)
    ((at, what),) = whats(found)
    assert what == "rate"
    assert SETTLED < at <= SETTLED + BLOCK
    evidence = next(each.evidence for _, each in found if each.kind == "anomaly")
    assert float(evidence["now"]) > 8 * float(evidence["usual"])


def test_a_slower_rate_gives_no_signal() -> None:
    assert whats(detected(published(1, SETTLED + 3_000, uniform, lambda p: p, then_ms=1e6))) == []


def settle(shares: list[float], thresholds: list[float], aim: float = 0.85) -> list[int]:
    """Return the blocks at which a threshold is reported as converged."""
    state, seen, found = DetectorState(), OutcomeCounts(0, 0, 0, 0, 0, 0), []
    for number, (share, threshold) in enumerate(zip(shares, thresholds, strict=True)):
        right, sure = round(share * BLOCK), int(BLOCK * share * 1e6)
        seen = OutcomeCounts(
            seen.outcomes + BLOCK, seen.right + right, seen.started + BLOCK,
            seen.started_right + right, seen.confidence + sure, 1_000 * number,
        )  # fmt: skip
        state, signals = detect(state, seen, Aim(threshold, aim, exact=True))
        found += [number for each in signals if each.kind == "threshold_converged"]
    return found


def test_a_threshold_settles_once_where_all_three_tests_of_source_000_hold() -> None:
    assert settle([0.85] * 40, [0.82] * 40) == [7]
    assert settle([0.85] * 40, [0.82 + 0.1 * (n % 2) for n in range(40)]) == []  # no plateau
    assert settle([0.95] * 40, [0.82] * 40) == []  # above the range of .80 to .90
    assert settle([0.70] * 40, [0.82] * 40) == []


def test_a_threshold_that_moves_on_settles_again() -> None:
    thresholds = [0.82] * 20 + [0.4 + 0.05 * n for n in range(10)] + [0.9] * 20
    first, second = settle([0.85] * 50, thresholds)
    assert first == 7
    assert second >= 30


def test_counts_before_the_first_value_are_ignored() -> None:
    assert begin(OutcomeCounts(BLOCK - 1, 0, 0, 0, 0, 0)) == DetectorState()
    assert begin(OutcomeCounts(9_999, 5, 5, 5, 5, 5)).seen.outcomes == 9_999


def test_counts_that_cannot_have_come_of_outcomes_do_not_follow() -> None:
    state = DetectorState(OutcomeCounts(1_000, 500, 100, 90, 400_000_000, 5))
    good = OutcomeCounts(1_200, 600, 150, 120, 500_000_000, 6)
    assert follows(state, good)
    for wrong in (
        {"right": 499}, {"right": 701}, {"started": 99}, {"started": 301}, {"started_right": 89},
        {"started_right": 141}, {"confidence": 400_000_000}, {"confidence": 600_000_001},
    ):  # fmt: skip
        assert not follows(state, good._replace(**wrong)), wrong


@st.composite
def streams(draw: st.DrawFn) -> list[OutcomeCounts]:
    """Draw any values that can follow each other."""
    values, seen = [], OutcomeCounts(0, 0, 0, 0, 0, 0)
    for _ in range(draw(st.integers(1, 60))):
        n = draw(st.integers(BLOCK, 4 * BLOCK))
        right, started = draw(st.integers(0, n)), draw(st.integers(0, n))
        seen = OutcomeCounts(
            seen.outcomes + n, seen.right + right, seen.started + started,
            seen.started_right + draw(st.integers(0, started)),
            seen.confidence + draw(st.integers(1, 1_000_000 * n)),
            draw(st.integers(0, 2**43)),
        )  # fmt: skip
        values.append(seen)
    return values


aims = st.builds(Aim, st.floats(0, 1), st.floats(0, 1), st.booleans())


@given(streams(), aims)
def test_no_signal_repeats_in_a_row(values: list[OutcomeCounts], aim: Aim) -> None:
    state, told_of = DetectorState(), []
    for seen in values:
        assert follows(state, seen)
        after, signals = detect(state, seen, aim)
        assert (after, signals) == detect(state, seen, aim)
        kinds = {each.kind + str(each.evidence.get("what", "")) for each in signals}
        assert len(kinds) == len(signals)
        told_of.append(kinds)
        state = after
    assert not any(one & other for one, other in pairwise(told_of))


@pytest.mark.parametrize(
    ("before", "after", "passed"),
    [
        (HELD_MS + 5, HELD_MS + 9, 4),
        (HELD_MS + 5, 9 * HELD_MS + 9, 8 * HELD_MS + 4),
        (0, HELD_MS + 9, None),
        (HELD_MS + 9, HELD_MS + 9, None),
        (HELD_MS + 9, HELD_MS + 5, None),
        (HELD_MS, HELD_MS + 9, None),
        (HELD_MS + 5, 2 * HELD_MS, None),
        (HELD_MS + 5, 2 * HELD_MS - 1, None),
        (HELD_MS - 1, HELD_MS + 5, None),
    ],
)
def test_elapsed_time_is_unknown_for_clamped_times(
    before: int, after: int, passed: int | None
) -> None:
    assert elapsed(before, after) == passed
