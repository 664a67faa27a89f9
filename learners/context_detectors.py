"""Detectors over one context: has its threshold settled, is anything far off, did it drift.

Pure, with a state of constant size. What is looked at are the counts that a context publishes,
which only grow: a block is the difference of two values at least `BLOCK` outcomes apart, so that
values that were never seen make blocks coarser and lose nothing. Of users who flood: `flooding`.
"""

from __future__ import annotations

from math import exp, log, sqrt
from typing import Final, Literal, NamedTuple

HELD_MS: Final = 300_000
"""An outcome's time is held within the whole five minutes in which it arrived."""
BLOCK: Final = 128
"""Outcomes that are looked at together, at least."""
MEMORY: Final = 8_192.0
"""Outcomes over which what is usual is averaged, once there are as many."""
WARM_UP: Final = 2_048
"""Outcomes before anything can be far from what is usual."""

SLACK: Final = 0.075
ALARM: Final = 25.0
"""Page-Hinkley's delta and lambda (Page 1954), in outcomes. HOPS uses .05 and 10, which give .13
false alarms in 1,000 outcomes: good for a learner, which forgets a little, not for a person."""
DRIFT_WARM_UP: Final = 1_024
"""Outcomes that make the mean which a drift is measured from."""

RANGE: Final = 0.05
"""Source 000, §3.3 A: the share of right ones is .80 to .90 where the target is .85."""
PLATEAU: Final = 5
PLATEAU_VARIANCE: Final = 0.001
"""Source 000, §3.3 B: the last five thresholds vary by less."""
CHI_SQUARE: Final = 3.841
"""Source 000, §3.3 C: p = .05 with one degree of freedom."""
LEAST_STARTED: Final = 20.0
"""Guesses that were started early, faded ones counted for what is left of them."""
_FADE: Final = 1.0 - 1.0 / PLATEAU

CONFIDENCE_FAR: Final = 0.1
RIGHT_FAR: Final = 0.25
RATE_FAR: Final = log(8.0)
DEVIATIONS: Final = 6.0
"""What is far: at least so much, and so many standard deviations of a block."""

_CONVERGED, _CONFIDENCE, _RIGHT, _RATE = 1, 2, 4, 8

Kind = Literal["threshold_converged", "drift", "anomaly"]
Evidence = dict[str, float | int | str]


class OutcomeCounts(NamedTuple):
    """What a context has published, since it began.

    Outcomes; how many of them were `right`, were `started` early, and both; the sum of their
    confidences in millionths. `at`: event time of the newest, Unix ms. `above`: outcomes of the
    context above it, 0 where that is not known.
    """

    outcomes: int
    right: int
    started: int
    started_right: int
    confidence: int
    at: int
    above: int = 0


class Aim(NamedTuple):
    """What a context's threshold is to reach. `speculate`: where it stands.

    `share` of right ones among those started early: a target, which it should neither miss nor
    exceed, or (`exact` false) the break-even point, which it should not miss.
    """

    speculate: float
    share: float
    exact: bool


class Signal(NamedTuple):
    """Something to be told once, and what speaks for it."""

    kind: Kind
    evidence: Evidence


class DetectorState(NamedTuple):
    """What is kept of a context: what it had published when its last block ended, and the tests.

    `known`: outcomes of all blocks, `since`: of those since the mean of the drift test began.
    `on`: what was told and still holds. `flooding`: until when, Unix ms; 0: it does not.
    `held`: the thresholds at the ends of the last blocks. `usual`: mean confidence and its variance
    (of one outcome), share of right ones, logarithm of the ms that an outcome takes and its
    variance. `drift`: mean of right minus confidence, and Page-Hinkley's two sums. `reached`:
    started early, and right among them, faded.
    """

    seen: OutcomeCounts = OutcomeCounts(0, 0, 0, 0, 0, 0)
    known: int = 0
    since: int = 0
    on: int = 0
    flooding: int = 0
    held: tuple[float, ...] = (0.0,) * PLATEAU
    usual: tuple[float, ...] = (0.0,) * 5
    drift: tuple[float, ...] = (0.0,) * 3
    reached: tuple[float, ...] = (0.0,) * 2


def begin(seen: OutcomeCounts) -> DetectorState:
    """Return the state of a context that is seen for the first time, or has begun anew.

    What it had published before is not looked at, but for the beginning of a block.
    """
    return DetectorState() if seen.outcomes < BLOCK else DetectorState(seen)


def is_block(state: DetectorState, seen: OutcomeCounts) -> bool:
    """Return whether enough has come since the last block."""
    return seen.outcomes - state.seen.outcomes >= BLOCK


def follows(state: DetectorState, seen: OutcomeCounts) -> bool:
    """Return whether what is seen can have come of more outcomes: else the context began anew."""
    before = state.seen
    n = seen.outcomes - before.outcomes
    started = seen.started - before.started
    return (
        0 <= seen.right - before.right <= n
        and 0 <= started <= n
        and 0 <= seen.started_right - before.started_right <= started
        and 0 < seen.confidence - before.confidence <= 1_000_000 * n
    )


def elapsed(before: int, after: int) -> int | None:
    """Return the ms from one time of a context to another; None where that is not known.

    A time at a bound of its five minutes is of an outcome that said another time: it came late, or
    before the clock had moved on. Outcomes that all say one time tell nothing either.
    """
    if not before or after <= before:
        return None
    if any(at % HELD_MS in {0, HELD_MS - 1} for at in (before, after)):
        return None
    return after - before


def detect(
    state: DetectorState, seen: OutcomeCounts, aim: Aim
) -> tuple[DetectorState, list[Signal]]:
    """Return the state after a block that follows, and what is to be told."""
    found: list[Signal] = []
    usual, on = _unusual(state, seen, found)
    drift, since = _drifted(state, seen, found)
    if not since:
        on &= ~_CONVERGED
    held = (*state.held[1:], aim.speculate)
    judge = since >= DRIFT_WARM_UP  # nothing has settled that has just drifted
    reached, on = _converged(state, seen, on, held, aim, found if judge else None)
    known = state.known + seen.outcomes - state.seen.outcomes
    return DetectorState(seen, known, since, on, state.flooding, held, usual, drift, reached), found


def _unusual(
    state: DetectorState, seen: OutcomeCounts, found: list[Signal]
) -> tuple[tuple[float, ...], int]:
    """Compare confidence, share of right ones and rate with the context's history.

    Each is told as it goes far off, and can be told again once it has been back half the way. What
    is usual follows what happens, so that a new usual is not told for ever. Of a rate only faster
    is told: slower is known when it is over.
    """
    confidence, confidence_variance, right, gap, gap_variance = state.usual
    on, n = state.on, seen.outcomes - state.seen.outcomes
    weight = _weight(n, state.known)
    warm = state.known >= WARM_UP

    mean = (seen.confidence - state.seen.confidence) / (1e6 * n)
    off = mean - confidence
    limit = max(CONFIDENCE_FAR, DEVIATIONS * sqrt(confidence_variance / n))
    if warm:
        on = _far(on, _CONFIDENCE, abs(off), limit, "confidence", mean, confidence, found)
    if state.known:
        confidence_variance += weight * (n * off * off - confidence_variance)
    confidence += weight * off

    share = (seen.right - state.seen.right) / n
    likely = min(max(right, 0.05), 0.95)
    limit = max(RIGHT_FAR, DEVIATIONS * sqrt(likely * (1.0 - likely) / n))
    if warm:
        on = _far(on, _RIGHT, abs(share - right), limit, "right", share, right, found)
    right += weight * (share - right)

    if (passed := elapsed(state.seen.at, seen.at)) is not None:
        took = log(passed / n)
        off = took - gap if gap_variance else 0.0
        limit = max(RATE_FAR, DEVIATIONS * sqrt(gap_variance))
        if warm:
            now, then = (1000.0 / exp(each) for each in (took, gap))
            on = _far(on, _RATE, -off, limit, "rate", now, then, found)
        gap = gap + weight * off if gap_variance else took
        gap_variance = (1.0 - weight) * (gap_variance + weight * off * off) or 1e-9
    return (confidence, confidence_variance, right, gap, gap_variance), on


def _weight(n: int, before: int) -> float:
    """Return what `n` outcomes weigh in an average of as many before them."""
    return min(n / min(n + before, MEMORY), 1.0)


def _far(
    on: int, bit: int, off: float, limit: float, what: str,
    now: float, then: float, found: list[Signal],
) -> int:  # fmt: skip
    if off < limit:
        return on & ~bit if off < limit / 2.0 else on
    if not on & bit:
        evidence: Evidence = {"what": what, "now": now, "usual": then, "off": off, "limit": limit}
        found.append(Signal("anomaly", evidence))
    return on | bit


def _drifted(
    state: DetectorState, seen: OutcomeCounts, found: list[Signal]
) -> tuple[tuple[float, float, float], int]:
    """Page-Hinkley (Page 1954), both sides, on how much oftener guesses are right than they say.

    x is the mean of (right - confidence) in a block of n, m its mean so far: up <- max(0, up +
    n (x - m - slack)), down alike; a drift where one exceeds the alarm. Then m is learned anew,
    and nothing can be told for `DRIFT_WARM_UP` outcomes.
    """
    mean, up, down = state.drift
    n = seen.outcomes - state.seen.outcomes
    surplus = seen.right - state.seen.right - (seen.confidence - state.seen.confidence) / 1e6
    now = surplus / n
    off = now - mean
    if state.since >= DRIFT_WARM_UP:
        up = max(0.0, up + n * (off - SLACK))
        down = max(0.0, down - n * (off + SLACK))
        if (most := max(up, down)) > ALARM:
            evidence: Evidence = {
                "way": "better" if up > down else "worse", "now": now, "before": mean,
                "statistic": most, "alarm": ALARM, "slack": SLACK,
            }  # fmt: skip
            found.append(Signal("drift", evidence))
            return (0.0, 0.0, 0.0), 0
    mean += _weight(n, state.since) * off
    return (mean, up, down), state.since + n


def _converged(
    state: DetectorState, seen: OutcomeCounts, on: int, held: tuple[float, ...], aim: Aim,
    found: list[Signal] | None,
) -> tuple[tuple[float, float], int]:  # fmt: skip
    """Apply the three tests of source 000, §3.3, all of them; told again only after it was lost.

    It is lost to a drift, to a threshold that moves four times as much as a plateau's, or to a
    share that is twice as far from its aim as it may be.
    """
    started = state.reached[0] * _FADE + seen.started - state.seen.started
    right = state.reached[1] * _FADE + seen.started_right - state.seen.started_right
    mean = sum(held) / PLATEAU
    variance = sum((each - mean) ** 2 for each in held) / PLATEAU
    share = right / started if started else 0.0
    off = share - aim.share
    if not aim.exact:
        off = min(off, 0.0)
    chi_square = off * off * started / aim.share if aim.share else 0.0
    if on & _CONVERGED:
        if variance >= 4.0 * PLATEAU_VARIANCE or abs(off) > 2.0 * RANGE:
            on &= ~_CONVERGED
    elif (
        found is not None
        and started >= LEAST_STARTED
        and abs(off) <= RANGE + 1e-9
        and variance < PLATEAU_VARIANCE
        and chi_square < CHI_SQUARE
    ):
        on |= _CONVERGED
        evidence: Evidence = {
            "speculate": aim.speculate, "right": share, "aim": aim.share,
            "judged_by": "target" if aim.exact else "break_even",
            "variance": variance, "chi_square": chi_square, "started": started,
        }  # fmt: skip
        found.append(Signal("threshold_converged", evidence))
    return (started, right), on
