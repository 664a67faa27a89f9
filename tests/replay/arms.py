"""Arms of a backtest that run fast, what they answer, and streams of outcomes for them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from headstart.keys import context_paths
from learners.outcome import Outcome
from replay.engine.policy_runners import Answers
from replay.predictions.outcomes_file import ROOT

FAST = ("hops", "ema", "td", "sliding", "aci", "hedge", "pid", "fixed", "never")
outcome = st.builds(
    Outcome,
    confidence=st.floats(0, 1),
    correct=st.booleans(),
    gain=st.sampled_from([0.0, 1.0, 400.0]),
    cost=st.sampled_from([0.0, 2.0, 600.0]),
    speculated=st.booleans(),
)
place = st.tuples(st.sampled_from("ab"), st.sampled_from(["d", "e", None]), st.sampled_from("uv"))
stream = st.lists(st.tuples(place, outcome), min_size=1, max_size=120)


def paths(where: tuple[str, str | None, str]) -> tuple[str, ...]:
    values = {"domain": where[1], "user_id": where[2]}
    return (ROOT, *context_paths(where[0], values.get))


class RecordedAnswers:
    """Keeps what arms answered."""

    def __init__(self) -> None:
        self.thresholds: dict[str, list[float]] = {}
        self.levels: dict[str, list[str]] = {}

    def __call__(self, name: str, levels: Sequence[str], given: Answers) -> None:
        self.thresholds.setdefault(name, []).extend(given.thresholds)
        self.levels.setdefault(name, []).extend(levels)
