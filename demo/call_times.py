"""Durations of calls: as recorded in the runs, else as declared by the demo, and which it is.

A run records when a call began and returned. What a miss wastes no run records, because the guessed
call was never made: there stands a multiple of the mean duration recorded of its tool.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from demo.tool_latency import Latency, LatencyModel
from demo.traces import Step

DECLARED: Final = "durations that the demo declares, because none is recorded of the call's tool"
WHOLE: Final = "a hit saves the whole recorded duration of its call"
LONGER: Final = f"{WHOLE}, which is longer than the time since the call before it"
FAILED: Final = "a right guess of a call that failed saves nothing"
MEAN: Final = "a hit saves the mean recorded duration of its tool, its own is not recorded"


class CallTime(NamedTuple):
    """What a guess is worth. `assumed`: what that rests on; `gain_known`: the gain is recorded.

    `failed`: the guess was right and its call failed, so that it is no hit.
    """

    latency: Latency
    assumed: str
    gain_known: bool = False
    failed: bool = False


class CallTimes:
    """What guesses are worth, learned call by call."""

    def __init__(self, declared: LatencyModel) -> None:
        self._declared = declared
        self._recorded: dict[str, tuple[float, int]] = {}

    def of_guess(
        self,
        guessed: str,
        actual: Step | None,
        before: Step | None,
        right: bool | None = None,
    ) -> CallTime:
        """Return what a guess of a tool is worth.

        `actual`: the call that was made (None: none was), `before`: the one before it. `right`:
        whether the guess was right; None: if the tool is the same.
        """
        drawn = self._declared.draw(guessed)  # always, so that a seed gives the same for each guess
        hit = actual is not None and (actual.tool == guessed if right is None else right)
        duration = recorded_ms(actual) if actual is not None and hit else None
        mean = self._mean(guessed)
        if actual is not None and hit and actual.error:
            return self._of_failed(drawn, mean if duration is None else duration, duration is None)
        if duration is not None:
            return CallTime(self._latency(duration), _whole(duration, actual, before), True)
        if mean is None:
            return CallTime(drawn, DECLARED)
        latency = self._latency(mean)
        ratio = self._declared.cost_per_gain
        miss = f"a miss wastes {ratio:.3g} times the mean recorded duration of its tool"
        return CallTime(latency, MEAN if hit else miss)

    def _of_failed(self, drawn: Latency, took: float | None, assumed: bool) -> CallTime:
        """Return what a right guess of a call that failed is worth: a miss."""
        if took is None:
            return CallTime(drawn, f"{FAILED}; {DECLARED}", failed=True)
        what = "the mean recorded duration of its tool" if assumed else "the call's duration"
        ratio = self._declared.cost_per_gain
        description = f"{FAILED}, and wastes {ratio:.3g} times {what}"
        return CallTime(self._latency(took), description, failed=True)

    def of_call(self, step: Step) -> float:
        """Return how long a call took, in ms."""
        drawn = self._declared.draw(step.tool).execution_ms
        duration = recorded_ms(step)
        return drawn if duration is None else duration

    def learn(self, step: Step) -> None:
        """Take in what a call took."""
        if (duration := recorded_ms(step)) is not None:
            total, count = self._recorded.get(step.tool, (0.0, 0))
            self._recorded[step.tool] = total + duration, count + 1

    def _mean(self, tool: str) -> float | None:
        total, count = self._recorded.get(tool, (0.0, 0))
        return total / count if count else None

    def _latency(self, duration: float) -> Latency:
        return Latency(duration, duration, duration * self._declared.cost_per_gain)


def recorded_ms(step: Step) -> float | None:
    """Return the recorded duration of a call in ms; None where a time is missing, or they clash."""
    if step.called_at is None or step.returned_at is None or step.returned_at < step.called_at:
        return None
    return float(step.returned_at - step.called_at)


def _whole(duration: float, actual: Step | None, before: Step | None) -> str:
    """Return what a hit's gain rests on: a call cannot be hidden for longer than it was waited."""
    if actual is None or actual.called_at is None or before is None or before.returned_at is None:
        return WHOLE
    return LONGER if duration > actual.called_at - before.returned_at else WHOLE
