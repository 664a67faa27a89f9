"""Prequential evaluation: every decision is guessed first and learned afterwards, in one pass.

(Dawid, Statistical theory: the prequential approach, 1984.)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from time import process_time_ns
from typing import Any, Final

from headstart.prediction.callable_predictor import InvalidGuess
from headstart.prediction.interface import PredictedCall, Predictor, RunPredictor, ToolCall
from replay.evaluation.decision_points import AgentMessage, ModelAnswer, UserMessage, events_of
from replay.evaluation.judged_point import JudgedPoint, PredictorCosts
from replay.evaluation.latencies import LatencySource, RunLatencies, TurnTimes
from replay.evaluation.predictor_fault import PredictorFault
from replay.evaluation.predictor_state import state_size
from replay.evaluation.recorded_run import RecordedCall, RecordedRun

GUESSES: Final = 3
"""Guesses at each decision."""


@dataclass
class Judged:
    """The decisions of some runs, and what they cost: CPU in ns, state at the end in bytes."""

    points: list[JudgedPoint] = field(default_factory=list)
    guessing: int = 0
    learning: int = 0
    observing: int = 0
    state_bytes: int = 0

    @property
    def costs(self) -> PredictorCosts:
        """What the predictor cost."""
        return PredictorCosts(
            self.guessing, self.learning, self.observing, len(self.points), self.state_bytes
        )


def shuffled(runs: Sequence[RecordedRun], seed: int) -> list[int]:
    """Return the places of runs in the order of a seed."""
    order = list(range(len(runs)))
    Random(seed).shuffle(order)
    return order


def judge(
    predictor: Predictor,
    runs: Sequence[tuple[int, RecordedRun]],
    latencies: LatencySource,
    seed: int,
) -> Judged:
    """Return how a new predictor guesses runs, which come with their places in the order.

    Raises `PredictorFault`, with the place of the run, for faults of a user's predictor.
    """
    judged, tasks = Judged(), set[str]()
    for place, run in runs:
        repeat = bool(run.task) and run.task in tasks
        tasks.add(run.task)
        before = len(judged.points)
        try:
            own = predictor.run(agent=run.agent, user_id=run.user_id)
            turns = latencies.turns(run, seed)
            _judge_run(own, run, turns, latencies, (place, run.domain, repeat), judged)
        except (PredictorFault, InvalidGuess) as error:
            raise _located(error, place, len(judged.points) - before + 1) from error
    judged.state_bytes = state_size(predictor)
    return judged


def _located(error: PredictorFault | InvalidGuess, place: int, decision: int) -> PredictorFault:
    if isinstance(error, PredictorFault):
        return PredictorFault(error.problem, error.name, place, decision)
    return PredictorFault(f": {error}", "", place, decision)


def _judge_run(
    own: RunPredictor,
    run: RecordedRun,
    turns: RunLatencies,
    latencies: LatencySource,
    about: tuple[int, str, bool],
    judged: Judged,
) -> None:
    previous = ""
    for event in events_of(run):
        if not isinstance(event, ModelAnswer):
            _observe(own, event, judged)
            continue
        guesses = _decide(own, event, judged)
        turn = turns.next_turn(event.steps)
        judged.points.append(_point(guesses, event.steps, turn, latencies, (*about, previous)))
        previous = event.steps[-1].tool if event.steps else previous


def _observe(
    own: RunPredictor, event: UserMessage | AgentMessage | RecordedCall, judged: Judged
) -> None:
    begun = process_time_ns()
    if isinstance(event, UserMessage):
        own.user(event.text)
    elif isinstance(event, AgentMessage):
        own.said(event.text)
    else:
        own.result(event.tool, event.result, error=event.error)
    judged.observing += process_time_ns() - begun


def _decide(own: RunPredictor, decision: ModelAnswer, judged: Judged) -> list[PredictedCall]:
    calls = [ToolCall(step.tool, step.arguments) for step in decision.steps]
    begun = process_time_ns()
    guesses = own.guess(GUESSES)
    guessed = process_time_ns()
    own.calls(calls)
    judged.learning += process_time_ns() - guessed
    judged.guessing += guessed - begun
    return list(guesses)[:GUESSES]


def _point(
    guesses: Sequence[PredictedCall],
    steps: Sequence[RecordedCall],
    times: TurnTimes,
    latencies: LatencySource,
    about: tuple[int, str, bool, str],
) -> JudgedPoint:
    made = {call_key(step.tool, step.arguments): place for place, step in enumerate(steps)}
    places = [made.get(call_key(each.tool, each.arguments)) for each in guesses]
    exact = next((rank for rank, place in enumerate(places, start=1) if place is not None), 0)
    gain, tool, confidence = 0.0, "", 0.0
    if guesses:
        tool, confidence = guesses[0].tool, guesses[0].confidence
        if places[0] is not None:
            gain = times.saved(places[0])
        else:
            gain = min(latencies.typical(about[1], tool) * times.spread, times.thinking)
    named = any(step.tool == tool for step in steps)
    return JudgedPoint(
        *about, tool, confidence, bool(steps), named, exact, gain, times.tools, times.thinking,
        times.savable,
    )  # fmt: skip


def call_key(tool: str, arguments: Mapping[str, Any]) -> tuple[str, str]:
    """Return what is equal for the same tool with arguments that are equal as JSON.

    Raises `InvalidGuess` for arguments that are not JSON.
    """
    try:
        text = json.dumps(arguments, sort_keys=True, separators=(",", ":"), default=dict)
    except (TypeError, ValueError) as error:
        raise InvalidGuess(
            f"a predictor guessed arguments of {tool} that are not JSON ({error})"
        ) from None
    return tool, text
