"""A synthetic workload of known probabilities: Markov chains over tools, changed in mid-run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from random import Random
from types import MappingProxyType
from typing import Final

from demo.traces import END, Step

WORKFLOW_DOMAINS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "refund": ("retail", "travel"),
        "booking": ("airline", "hotel"),
        "support": ("telecom", "bank"),
    }
)
WORKFLOW_TOOLS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "refund": ("find_user", "get_order", "get_policy", "issue_refund", "send_mail", "escalate"),
        "booking": ("find_user", "search", "get_offer", "hold_offer", "take_payment", "confirm"),
        "support": ("find_user", "get_contract", "diagnose", "search", "open_ticket", "send_mail"),
    }
)
HABITS: Final[Mapping[str, float]] = MappingProxyType({"u1": 0.0, "u2": 0.1, "u3": 0.3, "u4": 0.7})
"""Per user: the share of steps that follow a habit of their own instead of the domain's chain.

A predictor that counts per domain is therefore too sure of some users, and not sure enough of
others: thresholds per user have something to learn.
"""

_FAVOURITE = (0.6, 0.98)
"""Range of the probability of a row's likeliest tool: some steps are routine, some are open."""

_END_AFTER_CLOSING, _END_ELSEWHERE = (0.6, 0.9), (0.02, 0.08)
"""Ranges of the probability that a run ends after its type's last tool, and after any other."""

Row = Mapping[str, float]
"""The probability of each next tool, and of `END`; they sum to 1."""

Context = tuple[str, str, str]
"""Workflow type, domain, user."""


@dataclass(frozen=True, slots=True)
class SyntheticRun:
    """One run of a user in a domain of a workflow type; `drifted`: drawn from the later chains."""

    workflow_type: str
    domain: str
    user: str
    task_id: str
    drifted: bool
    steps: tuple[Step, ...]


class SyntheticWorld:
    """The chains of one seed; every executor of a demo sees the same world.

    After a tool t, user u of a domain calls x with probability (1 - h) * P(x | t) + h * Q(x | t):
    P the domain's row, Q the user's own, h the user's habit (`HABITS`). A drift replaces all rows.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rows: dict[tuple[Context, str | None, bool], Row] = {}

    def row(self, context: Context, previous: str | None, drifted: bool) -> Row:
        """Return what follows `previous`, the run's last tool; None at its beginning.

        No run ends at its beginning, and no tool follows itself.
        """
        key = (context, previous, drifted)
        if (row := self._rows.get(key)) is None:
            workflow_type, domain, user = context
            habit = HABITS[user]
            shared = self._draw_row((workflow_type, domain, ""), previous, drifted)
            own = self._draw_row(context, previous, drifted)
            row = {tool: (1 - habit) * p + habit * own[tool] for tool, p in shared.items()}
            self._rows[key] = row
        return row

    def true_probability(
        self, context: Context, previous: str | None, tool: str, drifted: bool
    ) -> float:
        """Return how likely `tool` (or `END`) follows `previous` in a context."""
        return self.row(context, previous, drifted).get(tool, 0.0)

    def draw_run(self, number: int, drifted: bool) -> SyntheticRun:
        """Return run `number`: a pure function of the seed, the number and the drift."""
        random = Random(f"world/{self._seed}/run/{number}")
        workflow_type = random.choice(tuple(WORKFLOW_DOMAINS))
        domain = random.choice(WORKFLOW_DOMAINS[workflow_type])
        user = random.choice(tuple(HABITS))
        steps: list[Step] = []
        previous: str | None = None
        while previous != END:
            row = self.row((workflow_type, domain, user), previous, drifted)
            (previous,) = random.choices(tuple(row), weights=tuple(row.values()))
            if previous != END:
                steps.append(Step(previous))
        return SyntheticRun(workflow_type, domain, user, str(number), drifted, tuple(steps))

    def _draw_row(self, context: Context, previous: str | None, drifted: bool) -> Row:
        """Draw a row from its own random stream, independent of the order of calls."""
        name = "/".join((*context, previous or "", str(drifted)))
        random = Random(f"world/{self._seed}/row/{name}")
        all_tools = WORKFLOW_TOOLS[context[0]]
        closing = previous == all_tools[-1]
        end = random.uniform(*(_END_AFTER_CLOSING if closing else _END_ELSEWHERE))
        if previous is None:
            end = 0.0
        tools = [tool for tool in all_tools if tool != previous]
        favourite = random.choice(tools)
        share = random.uniform(*_FAVOURITE)
        weights = {tool: random.random() for tool in tools if tool != favourite}
        scale = (1 - end) * (1 - share) / sum(weights.values())
        row = {tool: weight * scale for tool, weight in weights.items()}
        return {**row, favourite: (1 - end) * share, END: end}


def synthetic_runs(
    seed: int,
    executor: int,
    executors: int,
    progress: Callable[[], float],
    drift_at: float = 0.5,
) -> Iterator[SyntheticRun]:
    """Yield runs without end: those whose number is `executor` modulo `executors`.

    The executors of a demo thus share out one sequence of runs, whatever their count. `progress`
    is asked once per run how far the demo is, in [0, 1]; from `drift_at` on the chains are others
    (never with a `drift_at` above 1).
    """
    if not 0 <= executor < executors:
        raise ValueError(f"executor {executor} of {executors}: must be 0 to {executors - 1}")
    world = SyntheticWorld(seed)
    for number in count(executor, executors):
        yield world.draw_run(number, drifted=progress() >= drift_at)
