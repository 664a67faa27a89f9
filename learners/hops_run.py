"""HOPS over a run of outcomes at once: level by level, each with its state in local variables.

What `Hops.learn` does outcome by outcome is done here to the bit (a law in the tests). It can be
done level by level because no level reads the state of a finer one, but only how many outcomes the
finest had: so a level leaves behind what the next one reads, place by place of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Final

from headstart.calibration import FAMILIAR
from learners.hops_steps import (
    EVERY,
    NOISE,
    SLOPE_MIN,
    SURE,
    Steps,
    colder,
    doubted,
    forgotten,
    heard,
)
from learners.outcome import Columns, Part
from learners.policy import State

_DOUBTED: Final = 1
"""Of a place: a coarser level had an alarm there."""
_READ: Final = 2
"""Of a place: the last of a context, which keeps what the levels above it were then."""
_NOTHING: Final = (0.0, 0.0, 0.0)


class _Course:
    """What the levels so far come to at each place of a run.

    `x` and `y`: logit of the confidence as it counts, and truth; `h`: how little the finest context
    was known; `slope` and `base`: the sums of the levels so far, `fresh` what being new adds to the
    latter; `notes`: marks. Only at places that are `_READ`: the sums of covariances, and `cold`
    with its variance.
    """

    __slots__ = ("base", "cold", "covariance", "fresh", "h", "notes", "slope", "x", "y")

    def __init__(self, parts: Sequence[Part], run: Columns) -> None:
        size = len(run.correct)
        self.x = _heard(run)
        self.y = [1.0 if correct else 0.0 for correct in run.correct]
        self.h, self.fresh, self.base = [0.0] * size, [0.0] * size, [0.0] * size
        self.slope = [1.0] * size
        self.notes = bytearray(size)
        self.covariance: dict[int, tuple[float, float, float]] = {}
        self.cold: dict[int, tuple[float, float]] = {}
        for state, places, finest in parts:  # coarse to fine: the finest one has the last word
            self.notes[places[-1]] = _READ
            if finest:
                n = state[1]
                for place in places:
                    self.h[place] = 1.0 / (1.0 + n / FAMILIAR)
                    n += 1.0


def begins_at_once(parts: Sequence[Part], outcomes: int) -> bool:
    """Return whether exactly the coarsest context of each chain is of depth 0, as it begins.

    A state that comes from a chain of other contexts, under an earlier choice of learners, may say
    another depth.
    """
    begun = bytearray(outcomes)
    for state, places, _finest in parts:
        if begun[places[0]] != (state[0] > 0.0):
            return False
        if state[0] <= 0.0:
            if len(places) == outcomes:
                begun = bytearray(b"\1") * outcomes
            else:
                for place in places:
                    begun[place] = 1
    return len(parts) > 0


def learn_run(steps: Steps, parts: Sequence[Part], run: Columns) -> list[State]:
    """Return the states of contexts after outcomes in order; see `Joint.learn_run`."""
    course = _Course(parts, run)
    return [_level(steps, part, course, *_averages(steps.stakes, part, run)) for part in parts]


def _level(steps: Steps, part: Part, course: _Course, gain: float, cost: float) -> State:
    """Return the state of a context after its outcomes, whose new averages are given."""
    depth, n, _, _, da, db, p1, p2, p3, up, down, cold, variance = part.state[:13]
    slack, alarm, coarsest = steps.slack, steps.alarm, not depth
    xs, ys, hs, notes = course.x, course.y, course.h, course.notes
    slopes, bases, freshes = course.slope, course.base, course.fresh
    noise, least, sure, unsure = NOISE, SLOPE_MIN, SURE, -SURE
    last, done = part.places[-1], 0
    above = slopes[last], bases[last], *course.covariance.get(last, _NOTHING)
    while done < len(part.places):
        if n % EVERY == 0.0 and n:
            da, db, p1, p2, p3 = forgotten(steps, depth, da, db, p1, p2, p3)
        places = part.places[done : done + int(EVERY - n % EVERY)]
        n, done = n + len(places), done + len(places)
        for i in places:
            x, slope, note = xs[i], slopes[i] + da, notes[i]
            fresh = hs[i] * cold if coarsest else freshes[i]
            if note and note & _DOUBTED:
                p1, p2, p3 = doubted(steps, depth, p1, p2, p3)
            z = (slope if slope > least else least) * x + bases[i] + db + fresh
            error = ys[i] - 1.0 / (1.0 + exp(-z if z > unsure else sure))
            v1, v2 = p1 * x + p2, p2 * x + p3
            shrink = 1.0 / (noise + v1 * x + v2)
            step, ratio = noise * error * shrink, v1 * shrink
            da += v1 * step
            db += v2 * step
            p1, p2, p3 = p1 - v1 * ratio, p2 - v2 * ratio, p3 - v2 * v2 * shrink
            up += error - slack
            if up < 0.0:
                up = 0.0
            down -= error + slack
            if down < 0.0:
                down = 0.0
            if up > alarm or down > alarm:
                up = down = 0.0
                notes[i] |= _DOUBTED
                p1, p2, p3 = doubted(steps, depth, p1, p2, p3)
            if coarsest:
                cold, variance = colder(steps, cold, variance, hs[i], error)
                freshes[i] = hs[i] * cold
            slopes[i] += da
            bases[i] += db
            if note and note & _READ:
                va, cab, vb = course.covariance.get(i, _NOTHING)
                course.covariance[i] = va + p1, cab + p2, vb + p3
                if coarsest:
                    course.cold[i] = cold, variance
    return (depth, n, gain, cost, da, db, p1, p2, p3, up, down, *course.cold[last], *above)


def _heard(run: Columns) -> list[float]:
    """Return the logits of confidences as they count."""
    gain, cost = run.gain[0], run.cost[0]
    if run.gain.count(gain) == run.cost.count(cost) == len(run.gain):
        return [heard(confidence, gain, cost) for confidence in run.confidence]
    return list(map(heard, run.confidence, run.gain, run.cost))


def _averages(rate: float, part: Part, run: Columns) -> tuple[float, float]:
    """Return a context's moving averages of gain and cost after its outcomes, ms."""
    return (
        _average(rate, part.state[2], part.places, run.gain),
        _average(rate, part.state[3], part.places, run.cost),
    )


def _average(rate: float, known: float, places: Sequence[int], column: Sequence[float]) -> float:
    if column.count(known) == len(column):  # often it is the same again and again
        return known
    for place in places:
        value = column[place]
        if value > 0.0:
            known = known + rate * (value - known) if known > 0.0 else value
        elif known <= 0.0:
            known = value
    return known
