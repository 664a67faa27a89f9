"""TD(0) with prioritised experience replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from learners.bounds import COUNT, SHARE, THRESHOLD, outside
from learners.policy import State, clamp
from learners.threshold_rule import ThresholdRule

_GOLDEN: Final = 0.6180339887498949
"""Its multiples, modulo 1, fill [0, 1) evenly: deterministic sampling."""
_LEAST: Final = 1e-3
"""The least priority of an outcome: with 0 it would never be drawn."""


@dataclass(frozen=True)
class Prioritised(ThresholdRule):
    """TD(0) that replays past outcomes by priority |predicted - actual| (source 000 §9.2).

    A new outcome enters with priority 1 (the source's "path never seen") in place of the oldest
    of `size`. After each, `replays` are drawn in proportion to priority^omega; one drawn with
    probability P moves V by alpha w (r - V) with w = (1 / (n P))^beta over the largest such weight
    (Schaul et al. 2016, §3.4) and gets its new priority. `beta=0` disables the correction, which
    biases V. State per threshold: (threshold, V, count, `size` times r, `size` priorities).
    """

    alpha: float = 0.1
    rate: float = 0.05
    size: int = 16
    replays: int = 1
    omega: float = 0.6
    beta: float = 1.0

    name = "td_prioritised"
    version = 1

    def fresh(self, threshold: float, target: float) -> State:
        """Return (threshold, target, 0, then an empty buffer)."""
        return (threshold, target, 0.0) + (0.0,) * (2 * self.size)

    def step(self, own: State, correct: bool, target: float, low: float) -> State:
        """Return the state after storing the outcome and replaying."""
        size = self.size
        threshold, value, count = own[:3]
        rewards, priorities = list(own[3 : 3 + size]), list(own[3 + size :])
        place = int(count) % size
        reward = rewards[place] = 1.0 if correct else 0.0
        priorities[place] = 1.0
        count += 1.0
        value += self.alpha * (reward - value)
        n = min(int(count), size)
        for turn in range(self.replays):
            drawn, weight = self._draw(priorities[:n], count * self.replays + turn)
            value += self.alpha * weight * (rewards[drawn] - value)
            priorities[drawn] = max(_LEAST, abs(value - rewards[drawn]))
        threshold = clamp(threshold + self.rate * (target - value), low, self.max)
        return (threshold, value, count, *rewards, *priorities)

    def _flaw_of(self, own: State) -> str | None:
        size, count = self.size, int(min(own[2], self.size))
        found = outside(own, (THRESHOLD, SHARE, COUNT, *(SHARE,) * (2 * size)))
        if found is None and any(each < _LEAST for each in own[3 + size : 3 + size + count]):
            found = f"a priority is below {_LEAST:g}"
        return found

    def _draw(self, priorities: list[float], turn: float) -> tuple[int, float]:
        """Return a position in the buffer and its importance weight, in (0, 1]."""
        shares = [priority**self.omega for priority in priorities]
        at = (turn * _GOLDEN) % 1.0 * sum(shares)
        drawn = 0
        while drawn < len(shares) - 1 and at >= shares[drawn]:
            at -= shares[drawn]
            drawn += 1
        return drawn, (min(shares) / shares[drawn]) ** self.beta
