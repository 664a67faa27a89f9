"""A support workload with a known answer, made from a seed, and random runs of any JSON."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from headstart.prediction.interface import ToolCall
from headstart.prediction.predictor import CallPredictor, CallRun


class Step(NamedTuple):
    """One call with its result, or (without a tool) a message of the user."""

    tool: str
    arguments: dict[str, Any]
    result: Any = None
    text: str = ""


def support_runs(count: int, seed: int = 0) -> Iterator[list[Step]]:
    """Yield runs of which each call follows from what the run has shown.

    The user gives an id; the account lists orders; each open order is looked up in turn, and then
    refunded to the account's first card, if the user asked for a refund.
    """
    chance = random.Random(seed)
    for _ in range(count):
        user = f"user_{chance.randrange(10**6):06d}"
        orders = [f"#W{chance.randrange(10**7):07d}" for _ in range(chance.randint(1, 3))]
        card = f"card_{chance.randrange(10**6):06d}"
        refund = chance.random() < 0.5
        wish = "I want a refund please" if refund else "Where is my parcel"
        steps = [
            Step("", {}, text=f"Hello. {wish}, my id is {user}."),
            Step("get_account", {"user_id": user}, {"cards": [card], "orders": orders}),
        ]
        for order in orders:
            steps.append(Step("get_order", {"order_id": order}, {"status": "sent", "id": order}))
        if refund:
            steps.append(Step("refund", {"order_id": orders[-1], "card": card, "reason": "user"}))
        yield steps


class Score:
    """How many calls were guessed right at the first place, of how many."""

    def __init__(self) -> None:
        self.right = self.calls = 0
        self.confidence = 0.0


def play(run: CallRun, steps: list[Step], score: Score | None = None) -> None:
    """Let a run guess and learn a list of steps."""
    for step in steps:
        if not step.tool:
            run.user(step.text)
            continue
        guesses = run.guess()
        if score is not None:
            score.calls += 1
            score.confidence += guesses[0].confidence if guesses else 0.0
            score.right += bool(guesses) and guesses[0][:2] == (step.tool, step.arguments)
        run.calls([ToolCall(step.tool, step.arguments)])
        run.result(step.tool, step.result)
    run.guess()
    run.calls([])


def trained(count: int, seed: int = 0) -> CallPredictor:
    """Return a predictor that has seen a number of runs."""
    predictor = CallPredictor()
    for steps in support_runs(count, seed):
        play(predictor.run(), steps)
    return predictor
