"""Detects convergence, anomalies and drift of one context. Pure, with a state of constant size.

The input is a context's published counts, which only grow. A block is the difference of two values
at least `BLOCK` outcomes apart, so that missed values make blocks larger and lose nothing.
`learners.flood_detector` detects users who flood.
"""

from __future__ import annotations

from math import exp, log, sqrt
from typing import Final, Literal, NamedTuple

HELD_MS: Final = 300_000
"""An outcome's time is clamped to the whole five minutes in which it arrived, ms."""
BLOCK: Final = 128
"""Least number of outcomes in a block."""
MEMORY: Final = 8_192.0
"""Window of the usual averages, in outcomes."""
WARM_UP: Final = 2_048
"""Outcomes before an anomaly can be detected."""

SLACK: Final = 0.075
ALARM: Final = 25.0
"""Page-Hinkley's delta and lambda (Page 1954), in outcomes. HOPS uses .05 and 10, which give .13
false alarms in 1,000 outcomes: fine for a learner, which only forgets a little, but not for a
notice to a person."""
DRIFT_WARM_UP: Final = 1_024
"""Outcomes over which the drift test learns its mean."""

RANGE: Final = 0.05
"""Source 000, §3.3 A: the share of hits is .80 to .90 for a target of .85."""
PLATEAU: Final = 5
PLATEAU_VARIANCE: Final = 0.001
"""Source 000, §3.3 B: the last five thresholds vary by less."""
CHI_SQUARE: Final = 3.841
"""Source 000, §3.3 C: p = .05 with one degree of freedom."""
LEAST_STARTED: Final = 20.0
"""Least number of early starts, decayed by `_FADE` per block."""
_FADE: Final = 1.0 - 1.0 / PLATEAU

CONFIDENCE_FAR: Final = 0.1
RIGHT_FAR: Final = 0.25
RATE_FAR: Final = log(8.0)
DEVIATIONS: Final = 6.0
"""An anomaly exceeds both the limit and this many standard deviations of a block."""

_CONVERGED, _CONFIDENCE, _RIGHT, _RATE = 1, 2, 4, 8

Kind = Literal["threshold_converged", "drift", "anomaly"]
Evidence = dict[str, float | int | str]


class OutcomeCounts(NamedTuple):
    """Counts that a context has published since it was created.

    Outcomes; how many were `right`, `started` early, and both; the sum of their confidences in
    millionths. `at`: event time of the newest, Unix ms. `above`: outcomes of the parent context, 0
    if unknown.
    """

    outcomes: int
    right: int
    started: int
    started_right: int
    confidence: int
    at: int
    above: int = 0


class Aim(NamedTuple):
    """The aim of a context's threshold. `speculate`: its present value.

    `share` of hits among early starts: a target to reach exactly, or (`exact` false) the break-even
    point, which is a lower bound.
    """

    speculate: float
    share: float
    exact: bool


class Signal(NamedTuple):
    """A detected change and its evidence."""

    kind: Kind
    evidence: Evidence


class DetectorState(NamedTuple):
    """A context's counts at the end of its last block, and the state of the tests.

    `known`: outcomes of all blocks; `since`: those since the drift test's mean was reset. `on`:
    bits of the signals in force. `flooding`: end of a flood, Unix ms; 0: none. `held`: thresholds
    at the ends of the last `PLATEAU` blocks. `usual`: mean confidence and its variance (of one
    outcome), share of hits, mean logarithm of the ms between outcomes and its variance. `drift`:
    mean of right minus confidence, and Page-Hinkley's two sums. `reached`: early starts, and hits
    among them, decayed.
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
    """Return the state of a context that is new or was reset.

    Counts published before are only used as the beginning of the first block.
    """
    return DetectorState() if seen.outcomes < BLOCK else DetectorState(seen)


def is_block(state: DetectorState, seen: OutcomeCounts) -> bool:
    """Return whether there are enough outcomes since the last block."""
    return seen.outcomes - state.seen.outcomes >= BLOCK


def follows(state: DetectorState, seen: OutcomeCounts) -> bool:
    """Return whether `seen` can follow from the state by more outcomes; else it was reset."""
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
    """Return the ms between two times of a context; None if unknown.

    A time at a bound of its five minutes was clamped: the outcome was late, or the clock had not
    advanced yet. Equal times give no information either.
    """
    if not before or after <= before:
        return None
    if any(at % HELD_MS in {0, HELD_MS - 1} for at in (before, after)):
        return None
    return after - before


def detect(
    state: DetectorState, seen: OutcomeCounts, aim: Aim
) -> tuple[DetectorState, list[Signal]]:
    """Return the state after a block, and the signals."""
    found: list[Signal] = []
    usual, on = _unusual(state, seen, found)
    drift, since = _drifted(state, seen, found)
    if not since:
        on &= ~_CONVERGED
    held = (*state.held[1:], aim.speculate)
    judge = since >= DRIFT_WARM_UP  # no convergence right after a drift
    reached, on = _converged(state, seen, on, held, aim, found if judge else None)
    known = state.known + seen.outcomes - state.seen.outcomes
    return DetectorState(seen, known, since, on, state.flooding, held, usual, drift, reached), found


def _unusual(
    state: DetectorState, seen: OutcomeCounts, found: list[Signal]
) -> tuple[tuple[float, ...], int]:
    """Compare confidence, share of hits and rate with the context's history.

    Each signals when it exceeds its limit, and again only after it fell below half of it. The usual
    values are moving averages, so that a permanent change does not signal for ever. A rate signals
    only when it is faster: a slower one is known only when it is over.
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
    """Return the weight of `n` outcomes in a moving average over `before` earlier ones."""
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
    """Two-sided Page-Hinkley test (Page 1954) on the difference of hits and confidence.

    x is the mean of (right - confidence) in a block of n, m its mean so far: up <- max(0, up +
    n (x - m - slack)), down alike; a drift if one exceeds the alarm. Then m is reset and learned
    over `DRIFT_WARM_UP` outcomes, without a signal.
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
    """Signal convergence when all three tests of source 000, §3.3, hold.

    It ends, and can be signalled again, after a drift, at four times the variance of a plateau, or
    at twice the allowed distance of the share from its aim.
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
