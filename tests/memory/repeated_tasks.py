"""Runs that repeat a few tasks, and a predictor of them that an evaluation of the same runs has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log
from random import Random

from headstart.prediction.interface import Evidence, PredictedCall, ToolCall
from memory.cases.case import Case
from memory.ranking.evidence import (
    NO_VOTE,
    BackOffGuess,
    CalibratedConfidence,
    CallIndex,
    RunSoFar,
    guarded,
)

TOOLS = ("find", "read", "list", "check", "book", "pay", "send", "close")
RATIO = 0.7


def repeated(count: int, *, tasks: int = 10, users: int = 6, seed: int = 0) -> list[Case]:
    """Return runs of tasks with a course each, by several users; one call in fifteen differs."""
    chance = Random(seed)
    courses = [[chance.choice(TOOLS) for _ in range(6)] for _ in range(tasks)]
    found = []
    for number in range(count):
        task = chance.randrange(tasks)
        tools = [chance.choice(TOOLS) if chance.random() < 1 / 15 else t for t in courses[task]]
        calls = tuple(ToolCall(tool, {"item": f"item {task}"}) for tool in tools)
        found.append(
            Case(f"{number}", f"user:u{chance.randrange(users)}", "", "refund",
                 f"please do task {task}", calls, 1.0, 1_750_000_000_000 + number * 60_000)
        )  # fmt: skip
    return found


class BackOffPredictor:
    """Guesses the next tool by order-2 back-off, with the arguments of the call before."""

    def __init__(self) -> None:
        self.model = BackOffGuess()

    def run(self, *, agent: str = "", user_id: str = "") -> BackOffRun:
        return BackOffRun(self.model)


class BackOffRun:
    """Learns when the run ends, as the evaluation does."""

    def __init__(self, model: BackOffGuess) -> None:
        self._model, self._calls = model, list[ToolCall]()

    def user(self, text: str) -> None:
        pass

    def said(self, text: str) -> None:
        pass

    def result(self, tool: str, result: object, *, error: bool = False) -> None:
        pass

    def guess(self, limit: int = 3) -> Sequence[PredictedCall]:
        guess = self._model.guess(self._tools()) if self._calls else None
        if guess is None:
            return []
        evidence = Evidence(1, guess[1], 1.0, 0, "name")
        return [PredictedCall(guess[0], self._calls[-1].arguments, guess[1], evidence)]

    def calls(self, calls: Sequence[ToolCall]) -> None:
        self._calls += calls
        if not calls:
            learn_tools(self._model, self._tools())

    def _tools(self) -> tuple[str, ...]:
        return tuple(call.tool for call in self._calls)


def learn_tools(model: BackOffGuess, tools: tuple[str, ...]) -> None:
    for place in range(1, len(tools)):
        model.learn(tools[:place], tools[place])


def offline(
    cases: Sequence[Case], *, block: int = 1, least_writers: int = 2
) -> Iterator[tuple[float, float, bool]]:
    """Yield own confidence, that with votes, and the truth of each guess.

    The rule as `headstart memory evaluate` applies it. `block`: runs after which cases are added.
    """
    index, model, voted = CallIndex(), BackOffGuess(), CalibratedConfidence()
    waiting: list[Case] = []
    for case in cases:
        run = RunSoFar(index, case.writer)
        for place in range(1, len(case.calls)):
            run.call(case.calls[place - 1])
            guess = model.guess(case.tools[:place])
            if guess is None:
                continue
            tool, own = guess
            vote, right = run.vote(), tool == case.tools[place]
            found = guarded(
                voted.confidence(own, tool), voted.confidence(own, tool, vote),
                vote.writers.get(tool, 0), least_writers,
            )  # fmt: skip
            yield own, found, right
            voted.learn(own, tool, vote if vote.runs else NO_VOTE, right)
        learn_tools(model, case.tools)
        waiting.append(case)
        if len(waiting) == block:
            for each in waiting:
                index.add(each)
            waiting = []


def log_loss(confidences: Sequence[tuple[float, bool]]) -> float:
    """Return the mean log loss in nats; confidences are moved into .01 to .99."""
    losses = []
    for confidence, right in confidences:
        bounded = min(max(confidence, 0.01), 0.99)
        losses.append(-log(bounded if right else 1 - bounded))
    return sum(losses) / len(losses)


def utility(confidences: Sequence[tuple[float, bool]]) -> float:
    """Return the utility per guess: what is started at .7 or more, in units of gain + cost."""
    return sum(right - RATIO for c, right in confidences if c >= RATIO) / len(confidences)
