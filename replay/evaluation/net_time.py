"""Time that guesses save, net of what wrong ones waste, with the thresholds of a learner.

The judged decisions of one seed go through the backtest engine in their order: a guess is started
if its confidence reaches the threshold that the policy had learned by then for its domain, its tool
and the tool before it. Guesses count as calibrated, as those of a predictor do in an executor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from headstart.keys import context_paths
from learners.registry import policy
from replay.engine.engine import BacktestEngine
from replay.engine.policy_runners import Answers
from replay.evaluation.judged_point import JudgedPoint
from replay.predictions.assumptions import COST, GAIN, AssumedOutcome
from replay.predictions.outcomes_file import ROOT

COST_RATIOS: Final = (0.5, 0.7)
"""cost / (cost + gain) of a guess, unless another one is given."""
_POLICY: Final = "default"


class StartedPoint(NamedTuple):
    """A decision, and whether its first guess is started. `cost`: wasted if it is wrong, ms."""

    point: JudgedPoint
    started: bool
    cost: float


def started_points(points: Sequence[JudgedPoint], ratio: float) -> list[StartedPoint]:
    """Return which guesses the default policy starts; `points` in the order of their runs.

    `ratio`: cost / (cost + gain) of every guess, above 0 and below 1.
    """
    factor = ratio / (1.0 - ratio)
    thresholds: list[float] = []

    def observe(_name: str, _levels: Sequence[str], answers: Answers) -> None:
        thresholds.extend(answers.thresholds)

    engine = BacktestEngine({_POLICY: policy(_POLICY)}, observer=observe)
    paths: dict[tuple[str, str, str], tuple[str, ...]] = {}
    guessed = [each for each in points if each.tool]
    for each in guessed:
        key = each.domain, each.tool, each.previous
        if key not in paths:
            levels = {"tool_id": each.tool, "previous_tool": each.previous}
            paths[key] = (ROOT, *context_paths(each.domain, levels.get, tuple(levels)))
        outcome = AssumedOutcome(
            each.confidence, each.hit, gain=each.gain, cost=each.gain * factor,
            assumed=GAIN | COST, calibrated=True,
        )  # fmt: skip
        engine.judge(engine.chain("", paths[key]), outcome, 0)
    engine.flush()
    reached = iter(thresholds)
    return [
        StartedPoint(each, bool(each.tool) and each.confidence >= next(reached), each.gain * factor)
        for each in points
    ]


def time_saved(
    started: Iterable[StartedPoint], startable: Callable[[str], bool] = lambda _: True
) -> dict[str, Any]:
    """Return what the started guesses save; of tools that are not `startable` none is started.

    `started`: share of all decisions; `right`: of those started; `tool_time_saved` and
    `whole_time_saved`: shares of the time of tools, and of tools and thinking; `net`: what is saved
    minus what is wasted, as a share of what starting every call of every turn would save.
    """
    count = right = decisions = 0
    saved = wasted = tools = thinking = savable = 0.0
    for point, is_started, cost in started:
        decisions += 1
        tools += point.tools
        thinking += point.thinking
        savable += point.savable
        if not is_started or not startable(point.tool):
            continue
        count += 1
        if point.hit:
            right += 1
            saved += point.gain
        else:
            wasted += cost
    return {
        "started": count / decisions if decisions else None,
        "right": right / count if count else None,
        "tool_time_saved": saved / tools if tools else None,
        "whole_time_saved": saved / (tools + thinking) if tools + thinking else None,
        "net": (saved - wasted) / savable + 0.0 if savable else None,
    }
