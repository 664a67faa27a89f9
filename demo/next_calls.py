"""Guesses before the calls of recorded runs, judged by the calls that were made.

Where runs have arguments, whole calls are guessed, once at each call of the model, and a guess is
right if name and all arguments are those of a call of the turn. Runs with a call whose arguments
are not known are guessed call by call, by name (`demo.predictor`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from demo.predictor import PredictedTool, ToolPredictor
from demo.traces import END, Step, TraceRun
from headstart.prediction.interface import PredictedCall, ToolCall
from headstart.prediction.predictor import CallPredictor
from headstart.speculation.argument_equality import same_arguments
from replay.evaluation.decision_points import AgentMessage, ModelAnswer, UserMessage, events_of
from replay.evaluation.recorded_run import InvalidRun, RecordedCall, RecordedRun, run_of_record


class GuessedStep(NamedTuple):
    """A call of a run, None for an answer without one, and the guess before it, if there was one.

    `right`: whether starting the guessed call early would have saved something, if the call did
    not fail. `tools`: of all calls of the run before it.
    """

    step: Step | None
    guess: PredictedTool | None
    right: bool
    tools: tuple[str, ...]


@dataclass
class GuessedRuns:
    """How many runs were guessed by whole calls, and by names alone."""

    whole: int = 0
    names: int = 0

    def count(self, *, whole: bool) -> None:
        """Count a run."""
        self.whole += whole
        self.names += not whole

    @property
    def sentences(self) -> Iterator[str]:
        """The counts of guessed runs, in sentences."""
        if self.whole:
            yield f"{self.whole} runs have arguments: guesses are whole calls, right if exact"
        if self.names:
            yield (
                f"{self.names} runs have no arguments, or a call whose arguments are not known: "
                "guesses are names of tools alone"
            )


class CallGuesser:
    """Guesses the next calls of runs, and learns from each. `by` separates what is learned."""

    def __init__(self) -> None:
        self.runs = GuessedRuns()
        self._names = ToolPredictor()
        self._calls: dict[str, CallPredictor] = {}

    def steps(self, by: str, run: TraceRun) -> Iterator[GuessedStep]:
        """Yield the calls of a run with the guesses before them."""
        recorded = with_arguments(run)
        self.runs.count(whole=recorded is not None)
        if recorded is None:
            yield from self.named(by, run.steps)
            return
        predictor = self._calls.setdefault(by, CallPredictor())
        yield from _whole_calls(predictor, run, recorded)

    def named(self, by: str, steps: tuple[Step, ...]) -> Iterator[GuessedStep]:
        """Yield calls, and the end, with the guesses of their names."""
        tools: list[str] = []
        for step in (*steps, None):
            actual = END if step is None else step.tool
            guess = self._names.predict(by, tools)
            right = guess is not None and guess.tool == actual
            self._names.learn(by, tools, actual)
            yield GuessedStep(step, guess, right, tuple(tools))
            tools.append(actual)


def with_arguments(run: TraceRun) -> RecordedRun | None:
    """Return what a run has shown; None if a call's arguments are not known.

    `run`: read with its content.
    """
    if not run.steps or not run.content:
        return None
    *steps, after = run.content
    if not all("args" in content for content in steps):
        return None
    pairs = zip(run.steps, steps, strict=True)
    record = {
        "domain": run.domain, "agent_model": run.agent_model, "task_id": run.task_id,
        "steps": [{**content, "tool": step.tool, "error": step.error} for step, content in pairs],
        **after,
    }  # fmt: skip
    try:
        return run_of_record(record)
    except InvalidRun:
        return None


def _whole_calls(
    predictor: CallPredictor, run: TraceRun, recorded: RecordedRun
) -> Iterator[GuessedStep]:
    own = predictor.run(agent=run.agent_model)
    tools: list[str] = []
    for event in events_of(recorded):
        if isinstance(event, UserMessage):
            own.user(event.text)
        elif isinstance(event, AgentMessage):
            own.said(event.text)
        elif isinstance(event, RecordedCall):
            own.result(event.tool, event.result, error=event.error)
        else:
            guess = next(iter(own.guess(1)), None)
            own.calls([ToolCall(step.tool, step.arguments) for step in event.steps])
            yield from _turn(run, event, guess, tools)


def _turn(
    run: TraceRun, answer: ModelAnswer, guess: PredictedCall | None, tools: list[str]
) -> Iterator[GuessedStep]:
    """Yield the calls of a turn, the guess with the call that it equals, else with the first."""
    named = None if guess is None else PredictedTool(guess.tool, guess.confidence)
    if not answer.steps:
        yield GuessedStep(None, named, False, tuple(tools))
        return
    begin, right = len(tools), [guess is not None and _equal(guess, s) for s in answer.steps]
    guessed = right.index(True) if any(right) else 0
    for place, step in enumerate(answer.steps):
        yield GuessedStep(
            run.steps[begin + place],
            named if place == guessed else None,
            right[place] and place == guessed,
            tuple(tools),
        )
        tools.append(step.tool)


def _equal(guess: PredictedCall, step: RecordedCall) -> bool:
    return guess.tool == step.tool and same_arguments(guess.arguments, step.arguments)
