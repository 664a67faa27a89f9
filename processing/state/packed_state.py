"""The numbers of a context: counters, averages, its learner's state and its thresholds.

As an object, or packed in words of eight bytes: the words of many contexts, concatenated, are an
array for kernels, and those from `BODY` on are the end of a row.
"""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from struct import Struct
from typing import Final

import msgspec

from learners.policy import State, ThresholdPair
from processing.state.counters import empty

SPECULATE, SUGGEST, AT, EXPLICIT, SPECULATIVE, SPECULATIVE_RIGHT = range(6)
GAIN, COST, EXPLICIT_RIGHT, SUGGESTION, SUGGESTION_RIGHT, CONFIDENCE = range(6, 12)
EXECUTED, EXECUTION, WASTED, SAVED, FEEDBACK, ACCEPTED, STATE = range(12, 19)
"""Indexes of words. Integers, except thresholds, gain, cost and the learner's state, which begins
at `STATE`."""
BODY: Final = GAIN
_HEAD: Final = Struct("<16x4q24xq")  # AT to SPECULATIVE_RIGHT, SUGGESTION
_counts: Final = itemgetter(
    EXPLICIT, EXPLICIT_RIGHT, SUGGESTION, SUGGESTION_RIGHT, SPECULATIVE, SPECULATIVE_RIGHT,
    CONFIDENCE, EXECUTED, EXECUTION, WASTED, SAVED, FEEDBACK, ACCEPTED,
)  # fmt: skip
"""Returns the counters among words, in the order of `topics.schema.json_schema.Counts`."""


class ContextNumbers(msgspec.Struct, gc=False):
    """Those of one context. `at`: time of its newest outcome, Unix ms; `gain`, `cost`: moving
    averages, ms; `counts`: see `topics.schema.json_schema.Counts`.
    """

    state: State
    at: int = 0
    gain: float = 0.0
    cost: float = 0.0
    counts: list[int] = msgspec.field(default_factory=empty)

    def packed(self, answer: ThresholdPair) -> bytes:
        """Return the words, with the thresholds `answer`."""
        asked, asked_right, shown, shown_right, begun, begun_right, *sums = self.counts
        return _struct(len(self.state)).pack(
            *answer, self.at, asked, begun, begun_right, self.gain, self.cost, asked_right, shown,
            shown_right, *sums, *self.state,
        )  # fmt: skip


def unpacked(words: bytes) -> tuple[ContextNumbers, ThresholdPair]:
    """Return numbers and thresholds from their words."""
    found = _struct(len(words) // 8 - STATE).unpack(words)
    numbers = ContextNumbers(
        found[STATE:], found[AT], found[GAIN], found[COST], list(_counts(found))
    )
    return numbers, ThresholdPair(found[SPECULATE], found[SUGGEST])


def head(words: bytes) -> tuple[int, int, int, int]:
    """Return what a row begins with: `at`, outcomes, speculated, hits."""
    at, asked, begun, begun_right, shown = _HEAD.unpack_from(words)
    return at, asked + shown + begun, begun, begun_right


@lru_cache
def _struct(state: int) -> Struct:
    return Struct(f"<dd4qdd{STATE - EXPLICIT_RIGHT}q{state}d")
