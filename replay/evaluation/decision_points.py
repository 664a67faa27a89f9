"""What a run shows, in order: messages, decisions of the model, results.

A decision is one call of the agent's model. The agent's message together with its calls is shown
after the decision, because a guess is made at its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from replay.evaluation.recorded_run import RecordedCall, RecordedRun


class UserMessage(NamedTuple):
    """A message of the user."""

    text: str


class AgentMessage(NamedTuple):
    """A message of the agent."""

    text: str


class ModelAnswer(NamedTuple):
    """One answer of the model: the calls of a turn, none for a reply; results follow."""

    steps: tuple[RecordedCall, ...] = ()


RunEvent = UserMessage | AgentMessage | ModelAnswer | RecordedCall
"""A `RecordedCall` stands for its result."""
_REPLY = ModelAnswer()


def events_of(run: RecordedRun) -> Iterator[RunEvent]:
    """Yield what a run shows. Nothing is known of what came after the user's last message."""
    begin = 0
    while begin < len(run.steps):
        end = _end_of_turn(run.steps, begin)
        first = run.steps[begin]
        if first.user_before and begin:
            yield _REPLY
        *before, together = first.said_before
        yield from _conversation(first.user_before, before)
        yield ModelAnswer(run.steps[begin:end])
        if together:
            yield AgentMessage(together)
        yield from run.steps[begin:end]
        begin = end
    yield _REPLY
    if run.user_after:
        *before, _ = run.said_after
        yield from _conversation(run.user_after[:-1], before)
        if len(run.user_after) > 1:
            yield _REPLY
    elif run.said_after[0]:
        yield AgentMessage(run.said_after[0])


def _conversation(messages: tuple[str, ...], before: list[str]) -> Iterator[RunEvent]:
    """Yield messages of the user, the agent's before each, and its replies between."""
    for place, message in enumerate(messages):
        if place:
            yield _REPLY
        if before[place]:
            yield AgentMessage(before[place])
        yield UserMessage(message)


def _end_of_turn(steps: tuple[RecordedCall, ...], begin: int) -> int:
    end = begin + 1
    while end < len(steps) and steps[end].turn == steps[begin].turn and not steps[end].user_before:
        end += 1
    return end
