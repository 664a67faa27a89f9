"""Detects users who flood: most of the outcomes, faster than all users usually are; no others."""

from __future__ import annotations

import random
from math import log

from hypothesis import given
from hypothesis import strategies as st

from learners.context_detectors import DetectorState, OutcomeCounts
from learners.flood_detector import LASTS_MS, MOST, Flood, detect_flood

USUAL_GAP = log(100.0)
"""Everybody together: one outcome in 100 ms."""


def seen(outcomes: int, above: int, at: int) -> OutcomeCounts:
    return OutcomeCounts(outcomes, 0, 0, 0, outcomes, at, above)


BEFORE = DetectorState(seen(200, 4_000, 1_000_000))


def after(n: int, above: int, ms: int) -> OutcomeCounts:
    was = BEFORE.seen
    return seen(was.outcomes + n, was.above + above, was.at + ms)


def test_a_dominating_user_floods() -> None:
    flood = detect_flood(BEFORE, after(128, 140, 1_400), USUAL_GAP)
    assert flood is not None
    assert flood.until == BEFORE.seen.at + 1_400 + LASTS_MS
    assert flood.evidence["share"] == 128 / 140
    assert flood.evidence["usual"] == 0.05
    # One outcome in 10.9 ms is 9.1 times as fast as all were; an eighth of that pace is left.
    assert flood.every == 74


def test_lone_slow_usual_new_or_ordinary_users_do_not_flood() -> None:
    alone_at_night = detect_flood(BEFORE, after(128, 128, 128 * 90), USUAL_GAP)
    one_of_many = detect_flood(BEFORE, after(128, 300, 1_400), USUAL_GAP)
    most_of_it_anyway = DetectorState(seen(2_000, 4_000, 1_000_000))
    usual = detect_flood(most_of_it_anyway, seen(2_128, 4_140, 1_001_400), USUAL_GAP)
    young = DetectorState(seen(20, 400, 1_000_000))
    new = detect_flood(young, seen(148, 540, 1_001_400), USUAL_GAP)
    unknown = detect_flood(BEFORE, after(128, 140, 1_400), None)
    begun_anew = detect_flood(BEFORE, after(128, -3_000, 1_400), USUAL_GAP)
    assert [alone_at_night, one_of_many, usual, new, unknown, begun_anew] == [None] * 6


def test_a_flood_gives_one_signal_and_one_at_its_end() -> None:
    flooding = BEFORE._replace(flooding=BEFORE.seen.at + LASTS_MS)
    assert detect_flood(flooding, after(128, 140, 1_400), USUAL_GAP) is None
    over = detect_flood(flooding, after(128, 1_000, 60_000), USUAL_GAP)
    assert over == Flood(1, BEFORE.seen.at + 60_000, over.evidence if over else {})
    assert detect_flood(BEFORE, after(128, 1_000, 60_000), USUAL_GAP) is None


def test_a_lasting_flood_gives_another_signal_unless_usual() -> None:
    long_ago = BEFORE._replace(flooding=BEFORE.seen.at)
    assert detect_flood(long_ago, after(128, 140, 1_400), USUAL_GAP) is not None
    assert detect_flood(long_ago, after(128, 1_000, 60_000), USUAL_GAP) is None


@given(
    st.integers(128, 10_000), st.integers(0, 100_000), st.integers(0, 2**40),
    st.floats(-5, 40), st.integers(0, 2**41),
)  # fmt: skip
def test_a_flood_has_a_valid_down_weight(
    n: int, above: int, ms: int, gap: float, flooding: int
) -> None:
    flood = detect_flood(BEFORE._replace(flooding=flooding), after(n, above, ms), gap)
    assert flood is None or 1 <= flood.every <= MOST


def test_users_who_come_and_go_at_random_do_not_flood() -> None:
    chance, at = random.Random(7), 1e9
    counts, states = [0] * 20, [DetectorState() for _ in range(20)]
    for total in range(1, 60_001):
        user = min(int(chance.expovariate(0.5)), 19)
        counts[user] += 1
        at += chance.expovariate(0.01)
        value = seen(counts[user], total, int(at))
        if counts[user] - states[user].seen.outcomes >= 128:
            assert detect_flood(states[user], value, USUAL_GAP) is None
            states[user] = DetectorState(value)
