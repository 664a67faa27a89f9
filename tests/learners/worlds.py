"""Streams of outcomes for the laws, and chains of contexts to run them through."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st

from learners.outcome import Outcome
from learners.policy import Policy, State

few_examples = settings(max_examples=25)
"""For a law that is tried on every policy, with up to 150 outcomes an example."""
outcomes = st.builds(
    Outcome,
    confidence=st.floats(0, 1) | st.floats(0.9, 1),  # most must be learned from
    correct=st.booleans(),
    speculated=st.booleans(),
    gain=st.floats(0, 1e6) | st.just(400.0),
    cost=st.floats(0, 1e6) | st.just(600.0),
    timestamp=st.integers(0, 2**50),
)
# Long enough for several windows of 50: a law that is checked for ten outcomes shows little.
streams = st.lists(outcomes, max_size=15).map(lambda some: some * 10)


def begin(learner: Policy, depth: int = 1) -> list[State]:
    """Return the chain of a context never seen, `depth` levels long."""
    chain = [learner.initial()]
    while len(chain) < depth:
        chain.append(learner.begin(chain[-1]))
    return chain


def run(learner: Policy, stream: Sequence[Outcome], depth: int = 1) -> list[list[State]]:
    """Return the chain before the first outcome and after each."""
    found = [begin(learner, depth)]
    for outcome in stream:
        found.append(list(learner.learn(found[-1], outcome)))
    return found


def bits(chain: Sequence[State]) -> list[bytes]:
    """Return states as they are stored."""
    return [struct.pack(f"<{len(state)}d", *state) for state in chain]
