"""The settings that, besides the log, determine a partition's rows.

They are the same for every worker of a log and for its replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from hashlib import sha256
from typing import Final

from headstart.keys import DEFAULT_LEVELS
from learners.policy import Policy, spec

LARGEST_MS = 1e15
"""The largest gain and cost that a learner takes (`learners.outcome`)."""

DEEPEST: Final = 4
"""Most context keys below the workflow type that a worker takes: with more, the contexts of one
record need not fit a commit."""


@dataclass(frozen=True)
class Objectives:
    """The weights of the objectives that a learner pursues.

    A right guess is worth `latency` times what it saves; a wrong one costs `cost` times what it
    wastes, and `success` times what a right one would have saved.
    """

    success: float = 0.0
    latency: float = 1.0
    cost: float = 1.0

    @property
    def neutral(self) -> bool:
        """Whether they leave gain and cost as they are."""
        return self == _NEUTRAL

    def weighed(self, gain: float, cost: float) -> tuple[float, float]:
        """Return the gain and cost to learn from, in ms."""
        price = self.cost * cost + self.success * gain
        return min(self.latency * gain, LARGEST_MS), min(price, LARGEST_MS)


_NEUTRAL = Objectives()


@dataclass(frozen=True)
class LearningConfig:
    """How to learn.

    `policy`: of contexts without a learner choice. `levels`: context keys below the workflow type,
    coarse to fine. `operators_key`: where set, control records must be signed with it. `idle_ms`:
    after which a context without outcomes is evicted; `most_contexts`: of one tenant in one
    partition, beyond which its oldest are evicted. `feedback_weight`: as how many outcomes a user's
    feedback counts; 0: it is only stored.
    """

    policy: Policy
    levels: Sequence[str] = DEFAULT_LEVELS
    operators_key: bytes | None = None
    idle_ms: int = 30 * 86_400_000
    most_contexts: int = 100_000
    weights: Objectives = _NEUTRAL
    feedback_weight: int = 1

    @property
    def digest(self) -> str:
        """Equal for settings that lead to the same rows; `operators_key` is not part of it."""
        rest = self.idle_ms, self.most_contexts, astuple(self.weights), self.feedback_weight
        fields = spec(self.policy), tuple(self.levels), *rest
        return sha256(repr(fields).encode()).hexdigest()[:16]
