"""The messages of a run, in order: each once, although every model's call repeats it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from replay.importers.span import Span
from topics.spans.conversation import MOST_MESSAGES, Message


class Talk:
    """The messages of a run with their times, which steps take from the front."""

    def __init__(self, around: Sequence[Span]) -> None:
        self._messages = _merged(around)
        self._taken = 0

    def until(self, at: int) -> dict[str, Any]:
        """Return the messages up to a time (Unix ms) that were not taken, as fields of a step."""
        begin = self._taken
        while self._taken < len(self._messages) and self._messages[self._taken][0] <= at:
            self._taken += 1
        user, answered = message_fields([each for _, each in self._messages[begin : self._taken]])
        return {"user_before": user, "said_before": answered}

    def rest(self) -> tuple[list[str], list[str | None]]:
        """Return the user's messages that were not taken, and the agent's around them."""
        return message_fields([each for _, each in self._messages[self._taken :]])


def message_fields(messages: Sequence[Message]) -> tuple[list[str], list[str | None]]:
    """Return the user's messages, and the agent's before each and after the last; None for none."""
    user, answered = list[str](), list[str | None]()
    pending: str | None = None
    for each in messages:
        if each.role == "user":
            user.append(each.text)
            answered.append(pending)
            pending = None
        else:
            pending = each.text if pending is None else f"{pending}\n{each.text}"
    return user, [*answered, pending]


def _merged(around: Sequence[Span]) -> list[tuple[int, Message]]:
    """Return all messages with the times when they are first seen."""
    seen: list[tuple[int, Sequence[Message]]] = []
    for span in around:
        if span.messages is not None and span.begin is not None:
            given, answered = span.messages.given, span.messages.answered
            seen.append((span.begin, given))
            if answered:
                end = span.end if span.end is not None else span.begin
                seen.append((end, [*given, *answered]))
    found: list[tuple[int, Message]] = []
    known: list[Message] = []
    for at, messages in sorted(seen, key=lambda each: each[0]):
        for each in messages[_overlap(known, messages) :]:
            found.append((at, each))
            known.append(each)
    return found


def _overlap(known: Sequence[Message], messages: Sequence[Message]) -> int:
    """Return how many of the first messages are known already, or end the known ones."""
    most = min(len(known), len(messages), MOST_MESSAGES)
    if known[: len(messages)] == messages or messages == known[-len(messages) :]:
        return len(messages)
    if messages[: len(known)] == known:
        return len(known)
    return next((n for n in range(most, 0, -1) if known[-n:] == messages[:n]), 0)
