"""How long calls and thinking take: as declared, or as the runs record it.

What a right guess saves follows from both: the call is started when the model begins to think, so
at most the thinking is saved, and of calls made in parallel only what makes the turn shorter.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from random import Random
from statistics import median
from typing import Final, NamedTuple, Protocol

from replay.evaluation.recorded_run import RecordedCall, RecordedRun

DECLARED: Final = "declared"
RECORDED: Final = "recorded"
SENTENCES: Final = {
    DECLARED: (
        "declared latencies: a tool's median is log-uniform in 0.3 to 3 s, its calls are lognormal "
        "about it (sigma 0.35); thinking is lognormal about 2 s (sigma 0.5), 1 to 5 s"
    ),
    RECORDED: (
        "recorded times: a call takes from called_at to returned_at, a wrong guess as long as the "
        "median call of its tool; thinking begins with the model's last input (seen_at, else the "
        "last result) and ends with the call; where that is not recorded, as before each reply "
        "without a call, thinking takes the recorded median"
    ),
}

_FASTEST_MS, _SLOWEST_MS, _SPREAD = 300.0, 3000.0, 0.35
_THINKING_MS, _THINKING_SPREAD = 2000.0, 0.5
_SHORTEST_MS, _LONGEST_MS = 1000.0, 5000.0
_AT_ONCE_MS: Final = 10.0
"""Below this median no guess could save anything that is worth a comparison."""
SIMULATED: Final = "the recorded calls answer at once, as those of simulated tools"


class TurnTimes(NamedTuple):
    """Times of one decision, in ms: of each call of the turn, of thinking; and of a wrong guess."""

    calls: tuple[float, ...]
    thinking: float
    spread: float
    """What the latency of a wrongly guessed call is multiplied by."""

    @property
    def tools(self) -> float:
        """How long the turn's calls take, made in parallel."""
        return max(self.calls, default=0.0)

    def saved(self, place: int) -> float:
        """Return what starting the call at a place with the thinking makes the turn shorter by."""
        own = self.calls[place]
        rest = max((each for at, each in enumerate(self.calls) if at != place), default=0.0)
        return self.tools - max(rest, own - min(own, self.thinking))

    @property
    def savable(self) -> float:
        """What starting all calls of the turn with the thinking would save."""
        return min(self.tools, self.thinking)


class LatencySource(Protocol):
    """Times of the decisions of runs, the same for every predictor."""

    def turns(self, run: RecordedRun, seed: int) -> RunLatencies:
        """Return the times of one run."""
        ...

    def typical(self, domain: str, tool: str) -> float:
        """Return the median latency of a tool in ms."""
        ...


class RunLatencies(Protocol):
    """Times of one run's decisions, asked for one after the other."""

    def next_turn(self, steps: Sequence[RecordedCall]) -> TurnTimes:
        """Return the times of the next decision, with the calls of its turn."""
        ...


class DeclaredLatencies:
    """Drawn by the run and its decisions, so that every predictor meets the same."""

    def turns(self, run: RecordedRun, seed: int) -> DeclaredRun:
        """Return the times of one run."""
        key = f"{seed}/{run.domain}/{run.task}/{run.agent}/{len(run.steps)}"
        return DeclaredRun(self, run.domain, Random(key))

    def typical(self, domain: str, tool: str) -> float:
        """Return the declared median of a tool in ms, log-uniform by its name."""
        digest = hashlib.md5(f"{domain}/{tool}".encode(), usedforsecurity=False).hexdigest()
        share: float = int(digest[:8], 16) / 2**32
        return _FASTEST_MS * math.exp(share * math.log(_SLOWEST_MS / _FASTEST_MS))


class DeclaredRun:
    """The declared times of one run."""

    def __init__(self, declared: DeclaredLatencies, domain: str, random: Random) -> None:
        self._declared, self._domain, self._random = declared, domain, random

    def next_turn(self, steps: Sequence[RecordedCall]) -> TurnTimes:
        """Return the times of the next decision."""
        gauss = self._random.gauss
        thinking = _THINKING_MS * math.exp(gauss(0.0, _THINKING_SPREAD))
        spread = math.exp(gauss(0.0, _SPREAD))
        calls = tuple(
            self._declared.typical(self._domain, step.tool) * math.exp(gauss(0.0, _SPREAD))
            for step in steps
        )
        return TurnTimes(calls, min(_LONGEST_MS, max(_SHORTEST_MS, thinking)), spread)


class RecordedLatencies:
    """As the runs record them: every call of every run has both of its times."""

    def __init__(self, runs: Sequence[RecordedRun]) -> None:
        durations: dict[tuple[str, str], list[float]] = {}
        thinking: list[float] = []
        for run in runs:
            last_seen: int | None = None
            for step in run.steps:
                durations.setdefault((run.domain, step.tool), []).append(_duration(step))
                if (took := _thinking(step, last_seen)) is not None:
                    thinking.append(took)
                last_seen = step.returned_at
        self._medians = {tool: median(each) for tool, each in durations.items()}
        self._thinking = median(thinking) if thinking else 0.0

    def turns(self, run: RecordedRun, seed: int) -> RecordedTimes:  # noqa: ARG002
        """Return the times of one run."""
        return RecordedTimes(self._thinking)

    def typical(self, domain: str, tool: str) -> float:
        """Return the median recorded duration of a tool in ms; 0 if it was never called."""
        return self._medians.get((domain, tool), 0.0)


class RecordedTimes:
    """The recorded times of one run; `thinking` in ms where a decision records none."""

    def __init__(self, thinking: float) -> None:
        self._thinking = thinking
        self._last_seen: int | None = None

    def next_turn(self, steps: Sequence[RecordedCall]) -> TurnTimes:
        """Return the times of the next decision."""
        if not steps:
            return TurnTimes((), self._thinking, 1.0)
        thinking = _thinking(steps[0], self._last_seen)
        self._last_seen = max(step.returned_at or 0 for step in steps)
        calls = tuple(_duration(step) for step in steps)
        return TurnTimes(calls, self._thinking if thinking is None else thinking, 1.0)


def all_recorded(runs: Iterable[RecordedRun]) -> bool:
    """Return whether every call of some runs has both of its times, in their order."""
    return all(
        step.called_at is not None
        and step.returned_at is not None
        and step.returned_at >= step.called_at
        for run in runs
        for step in run.steps
    )


def answer_at_once(runs: Iterable[RecordedRun]) -> bool:
    """Return whether the recorded calls take no time to speak of: their tools are simulated."""
    return median(_duration(step) for run in runs for step in run.steps) < _AT_ONCE_MS


def _duration(step: RecordedCall) -> float:
    assert step.called_at is not None
    assert step.returned_at is not None
    return float(step.returned_at - step.called_at)


def _thinking(step: RecordedCall, last_seen: int | None) -> float | None:
    """Return how long the model thought before a call, in ms; None if that is not recorded.

    Waiting for a user is not thinking: then only `seen_at` is when it began.
    """
    begun = step.seen_at
    if begun is None and not step.user_before:
        begun = last_seen
    if begun is None or step.called_at is None or step.called_at < begun:
        return None
    return float(step.called_at - begun)
