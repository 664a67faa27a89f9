"""Simulated worlds with known true probabilities: predictions, their outcomes, gains and costs.

Each generator is a pure function of its seed. A confidence p has the logit x, and a prediction is
right with probability q, mostly q = sigma(a x + b) with a and b of its context. By default gain and
cost are 400 and 600 ms (worth starting from q = .6), and contexts are four users of one domain of
one workflow type, 4,000 predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import exp, log
from random import Random
from typing import Final, NamedTuple

from learners.outcome import Outcome
from replay.predictions.outcomes_file import ROOT, JudgedOutcome

GAIN, COST = 400.0, 600.0
LENGTH = 4000


class WorldEvent(NamedTuple):
    """A judged prediction with the true probability that it was right."""

    judged: JudgedOutcome
    probability: float

    @property
    def worth(self) -> float:
        """Return what speculating on it earns in expectation, in ms."""
        outcome, q = self.judged.outcome, self.probability
        return q * outcome.gain - (1 - q) * outcome.cost


Line = tuple[float, float]
"""Slope a and intercept b of one context's truth."""


@dataclass
class Draw:
    """One seed's randomness and the predictions drawn with it so far."""

    name: str
    seed: int
    events: list[WorldEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(f"{self.name}/{self.seed}")

    def near(self, line: Line, slope: float, intercept: float) -> Line:
        """Return a context's line around its parent's, with these standard deviations."""
        return (
            max(0.1, line[0] + self.random.gauss(0, slope)),
            line[1] + self.random.gauss(0, intercept),
        )

    def confidence(self, alpha: float = 2.2, beta: float = 1.1) -> float:
        """Return a confidence, Beta distributed."""
        return self.random.betavariate(alpha, beta)

    def add(
        self, path: Iterable[str], p: float, q: float, gain: float = GAIN, cost: float = COST
    ) -> None:
        """Add a prediction of confidence p that is right with probability q."""
        paths = tuple(path)
        outcome = Outcome(p, self.random.random() < q, gain=gain, cost=cost)
        self.events.append(WorldEvent(JudgedOutcome(paths, outcome), q))


def sigma(z: float) -> float:
    """Return 1 / (1 + exp(-z))."""
    return 1 / (1 + exp(-z))


def logit(p: float) -> float:
    """Return log(p / (1 - p)), p held off 0 and 1 by .001."""
    p = min(max(p, 0.001), 0.999)
    return log(p / (1 - p))


def user(number: int) -> tuple[str, ...]:
    """Return the chain of one of a few users."""
    return (ROOT, "refund", "refund/retail", f"refund/retail/{number}")


def calibrated(seed: int) -> list[WorldEvent]:
    """Every confidence is the truth: q = p."""
    draw = Draw("calibrated", seed)
    for _ in range(LENGTH):
        p = draw.confidence()
        draw.add(user(draw.random.randrange(4)), p, p)
    return draw.events


def overconfident(seed: int) -> list[WorldEvent]:
    """Confidences are high (Beta 3, 1.2) and too high: a of .5 to .8, b of -.6 to -.2.

    Users differ by .05 in a and .2 in b (standard deviations).
    """
    draw = Draw("overconfident", seed)
    shared = draw.random.uniform(0.5, 0.8), draw.random.uniform(-0.6, -0.2)
    lines = [draw.near(shared, 0.05, 0.2) for _ in range(4)]
    for _ in range(LENGTH):
        number, p = draw.random.randrange(4), draw.confidence(3, 1.2)
        a, b = lines[number]
        draw.add(user(number), p, sigma(a * logit(p) + b))
    return draw.events


def _drift(seed: int, share: Callable[[float], float], name: str) -> list[WorldEvent]:
    draw = Draw(name, seed)
    before = [draw.near((1.0, 0.0), 0.05, 0.2) for _ in range(4)]
    worse = draw.random.uniform(0.5, 0.8), draw.random.uniform(-0.6, -0.2)
    after = [draw.near(worse, 0.05, 0.2) for _ in range(4)]
    for n in range(LENGTH):
        number, p, f = draw.random.randrange(4), draw.confidence(), share(n / LENGTH)
        a, b = ((1 - f) * x + f * y for x, y in zip(before[number], after[number], strict=True))
        draw.add(user(number), p, sigma(a * logit(p) + b))
    return draw.events


def abrupt_drift(seed: int) -> list[WorldEvent]:
    """Half way through, calibrated confidences (except for users by .05 and .2) become too high.

    The lines are those of the two worlds; the confidences stay as in the calibrated one.
    """
    return _drift(seed, lambda at: float(at >= 0.5), "drift")


def gradual_drift(seed: int) -> list[WorldEvent]:
    """The same change, spread evenly over the middle half."""
    return _drift(seed, lambda at: min(1.0, max(0.0, 2 * at - 0.5)), "gradual")


def sparse(seed: int) -> list[WorldEvent]:
    """A thousand users with 20,000 predictions, few of them many: weights 1 / (rank + 5)^.8.

    Four workflow types (a .6 to 1.1, b around -.3 by .5), three domains each (by .1 and .4), users
    (by .1 and .5).
    """
    draw = Draw("sparse", seed)
    types = [(draw.random.uniform(0.6, 1.1), draw.random.gauss(-0.3, 0.5)) for _ in range(4)]
    domains = [[draw.near(line, 0.1, 0.4) for _ in range(3)] for line in types]
    places = [(draw.random.randrange(4), draw.random.randrange(3)) for _ in range(1000)]
    lines = [draw.near(domains[w][d], 0.1, 0.5) for w, d in places]
    weights = [1 / (rank + 5) ** 0.8 for rank in range(1000)]
    for number in draw.random.choices(range(1000), weights, k=20_000):
        (w, d), (a, b), p = places[number], lines[number], draw.confidence()
        path = (ROOT, f"w{w}", f"w{w}/d{d}", f"w{w}/d{d}/u{number}")
        draw.add(path, p, sigma(a * logit(p) + b))
    return draw.events


def uneven(seed: int) -> list[WorldEvent]:
    """Gain and cost differ by prediction: log-normal around 400 ms, by .8 and 1.2 in the log."""
    draw = Draw("uneven", seed)
    lines = [(draw.random.uniform(0.6, 1.1), draw.random.uniform(-0.8, 0.3)) for _ in range(4)]
    for _ in range(LENGTH):
        number, p = draw.random.randrange(4), draw.confidence()
        a, b = lines[number]
        gain, cost = exp(draw.random.gauss(6, 0.8)), exp(draw.random.gauss(6, 1.2))
        draw.add(user(number), p, sigma(a * logit(p) + b), gain, cost)
    return draw.events


def steps(seed: int) -> list[WorldEvent]:
    """No line at all: q is .85 above a cut of .5 to .9 that differs by user, .35 below."""
    draw = Draw("steps", seed)
    cuts = [draw.random.uniform(0.5, 0.9) for _ in range(4)]
    for _ in range(LENGTH):
        number, p = draw.random.randrange(4), draw.confidence()
        draw.add(user(number), p, 0.85 if p > cuts[number] else 0.35)
    return draw.events


def spoken(seed: int) -> list[WorldEvent]:
    """Confidences as from language models: eight values from .5 to 1, each with its own q.

    The q of a user rise with the values and are Beta(3, 2) distributed.
    """
    draw = Draw("spoken", seed)
    values, weights = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0), (1, 1, 2, 4, 4, 6, 5, 3)
    truths = [sorted(draw.random.betavariate(3, 2) for _ in values) for _ in range(4)]
    for _ in range(LENGTH):
        number = draw.random.randrange(4)
        place = draw.random.choices(range(8), weights)[0]
        draw.add(user(number), values[place], truths[number][place])
    return draw.events


def newcomers(seed: int) -> list[WorldEvent]:
    """Contexts that a predictor knows as little as the learner: 300 users, one after the other.

    Good confidences, but in a user's n-th prediction b is 1.5 / (1 + n / 4) too high.
    """
    draw = Draw("newcomers", seed)
    seen = [0] * 300
    for n in range(LENGTH):
        number = min(draw.random.randrange(1 + n // 12), 299)
        p = draw.confidence()
        draw.add(user(number), p, sigma(logit(p) - 1.5 / (1 + seen[number] / 4)))
        seen[number] += 1
    return draw.events


@dataclass(frozen=True)
class BenchWorld:
    """A generator, how late outcomes are learned, and from which outcome on earnings count."""

    generate: Callable[[int], list[WorldEvent]]
    delay: int = 0
    warm: int = 0


WORLDS: Final[dict[str, BenchWorld]] = {
    "calibrated": BenchWorld(calibrated, warm=200),
    "overconfident": BenchWorld(overconfident, warm=200),
    "abrupt drift": BenchWorld(abrupt_drift),
    "gradual drift": BenchWorld(gradual_drift),
    "delay 100": BenchWorld(abrupt_drift, delay=100),
    "sparse": BenchWorld(sparse),
    "uneven": BenchWorld(uneven),
    "steps": BenchWorld(steps, warm=200),
    "spoken": BenchWorld(spoken, warm=200),
    "newcomers": BenchWorld(newcomers),
}
