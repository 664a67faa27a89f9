"""The payoff of predictions with known outcomes, and that of other policies on the same ones.

Every prediction has an outcome, speculated on or not (full feedback), so each policy's net gain is
an exact sum over the same list.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

FIXED_THRESHOLD: Final = 0.92
"""The threshold until anything is learned."""


@dataclass(frozen=True, slots=True)
class JudgedGuess:
    """One prediction of a context and its truth; gain of a hit, cost of a miss in milliseconds.

    `threshold` is the one the decision used, None where none was served. `at`: when the truth was
    known, Unix ms; `workflow`: the id of its workflow. `not_startable`: why no policy could have
    started it ("": one could); `assumed`: what gain and cost rest on ("": they are recorded).
    """

    path: str
    confidence: float
    threshold: float | None
    speculated: bool
    correct: bool
    gain_ms: float
    cost_ms: float
    at: int = 0
    workflow: str = ""
    not_startable: str = ""
    assumed: str = ""

    @property
    def worth_ms(self) -> float:
        """What starting it earns: its gain, or minus its cost."""
        return self.gain_ms if self.correct else -self.cost_ms


Policy = Callable[[JudgedGuess], bool]
"""Whether a prediction is speculated on."""


def as_executed(prediction: JudgedGuess) -> bool:
    """Speculate where the executor did."""
    return prediction.speculated


def always(_: JudgedGuess) -> bool:
    """Speculate on every prediction."""
    return True


def never(_: JudgedGuess) -> bool:
    """Speculate on no prediction."""
    return False


def fixed(prediction: JudgedGuess) -> bool:
    """Speculate from `FIXED_THRESHOLD` on, whatever the context."""
    return prediction.confidence >= FIXED_THRESHOLD


@dataclass(frozen=True, slots=True)
class Summary:
    """Hits and misses of speculated predictions, and the net gain of four policies in seconds.

    `hit_rate` is hits / speculated, None when nothing was speculated. `not_startable`: predictions
    besides, by reason, that no policy could have started. `assumed`: how many rest on what.
    """

    predictions: int
    hits: int
    misses: int
    hit_rate: float | None
    net_gain_s: float
    net_gain_always_s: float
    net_gain_never_s: float
    net_gain_fixed_s: float
    not_startable: dict[str, int]
    assumed: dict[str, int]


def net_gain(judged: Iterable[JudgedGuess], policy: Policy) -> float:
    """Return the gain of the policy's hits minus the cost of its misses, in seconds."""
    # fsum: the same figure in whichever order the executors' predictions were gathered.
    return math.fsum(p.worth_ms for p in judged if policy(p)) / 1_000


def summarise(judged: Iterable[JudgedGuess]) -> Summary:
    """Return the summary of judged predictions."""
    every = list(judged)
    predictions = startable(every)
    speculated = [p for p in predictions if p.speculated]
    hits = sum(p.correct for p in speculated)
    return Summary(
        predictions=len(predictions),
        hits=hits,
        misses=len(speculated) - hits,
        hit_rate=hits / len(speculated) if speculated else None,
        net_gain_s=net_gain(predictions, as_executed),
        net_gain_always_s=net_gain(predictions, always),
        net_gain_never_s=net_gain(predictions, never),
        net_gain_fixed_s=net_gain(predictions, fixed),
        not_startable=dict(Counter(p.not_startable for p in every if p.not_startable)),
        assumed=dict(Counter(p.assumed for p in predictions if p.assumed)),
    )


def startable(judged: Iterable[JudgedGuess]) -> list[JudgedGuess]:
    """Return the predictions that some policy could have started."""
    return [each for each in judged if not each.not_startable]
