"""The runs of an agent that are under way, found by the message that the model gave last.

LangGraph has no id of a run that all its hooks see. But each has the messages, and the id of the
model's message is unique: it leads to the run, also where a checkpoint is resumed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from headstart.events.constructors import Outcome
from headstart.prediction.interface import RunPredictor
from headstart.speculation.agent_run import AgentRun
from headstart.speculation.calls import RequestedCall
from headstart.speculation.thread_agent_run import ThreadAgentRun

MOST: Final = 10_000
"""Most conversations that are remembered."""
IDLE_S: Final = 600.0
"""Seconds after which a conversation without a call is forgotten, and its run ended."""

LEFT_S: Final = 5.0
"""Seconds after which a turn none of whose calls runs is closed."""

Run = TypeVar("Run", bound="AgentRun[Any] | ThreadAgentRun[Any]")


class Conversation(Generic[Run]):
    """One conversation: its predictor, its current run, and the calls of the current turn.

    The hooks of a turn's tools may be called in several threads.
    """

    def __init__(self, predictor: RunPredictor, run: Run) -> None:
        self.predictor, self.run = predictor, run
        self.used = time.monotonic()
        self.ended = False
        self._matches: dict[str, Any] = {}
        self._requested: dict[str, RequestedCall] = {}
        self._waiting: set[str] = set()
        self._running: set[str] = set()
        self._turns = 0
        self._seen = 0
        self._lock = threading.Lock()

    @property
    def missed_tools(self) -> bool:
        """Whether a turn had calls with a guess, but none of its calls reached the hooks."""
        return bool(self._matches) and not self._seen

    def answered(self, message: AIMessage) -> None:
        """Settle the model's answer; one without calls ends the run."""
        calls = [
            RequestedCall(call["id"] or f"call-{place}", call["name"], call["args"])
            for place, call in enumerate(message.tool_calls)
        ]
        text = message.text
        matches = self.run.model_answered(calls, text)
        with self._lock:
            self._matches = dict(matches)
            self._requested = {call.id: call for call in calls}
            self._waiting, self._running = set(self._requested), set()
            self._turns += 1
            self._seen = 0
        if not calls:
            self.end("success", text)

    def called(self, call: Mapping[str, Any]) -> Any:
        """Begin a call that is made now; return the guessed call that answers it, once, or None.

        A call that was changed since the model requested it, as by a person who approves it, is
        not the one that was settled.
        """
        call_id = call["id"]
        with self._lock:
            match = self._matches.pop(call_id, None)
            asked = self._requested.get(call_id)
            self._running.add(call_id)
            self._seen += 1
            again = asked is not None and call_id not in self._waiting
            if again:
                self._waiting.add(call_id)
        same = asked is not None and (asked.tool, asked.arguments) == (call["name"], call["args"])
        if again or (asked is not None and not same):
            self.run.tool_retried(call_id, call["name"], call["args"])
        return match if same else None

    def finished(self, call_id: str, result: object, *, error: bool, duration_ms: float) -> None:
        """Record the end of a call; the turn is closed after its last call."""
        self.run.tool_finished(call_id, result, error=error, duration_ms=duration_ms)
        with self._lock:
            self._waiting.discard(call_id)
            self._running.discard(call_id)
            last = not self._waiting
        if last:
            self.run.turn_finished()

    def paused(self, call_id: str) -> None:
        """Record that a call is interrupted: it is made again when the graph goes on."""
        with self._lock:
            self._running.discard(call_id)

    def leave_later(self, loop: asyncio.AbstractEventLoop, left_s: float) -> None:
        """Close the current turn once none of its calls has run for `left_s`.

        A graph that is cancelled between two nodes, or interrupted, calls no hook. The results of
        guesses would be out of date when it goes on.
        """
        if self._waiting:
            loop.call_later(left_s, self._leave, loop, left_s, self._turns)

    def _leave(self, loop: asyncio.AbstractEventLoop, left_s: float, turn: int) -> None:
        if turn != self._turns or not self._waiting:
            return
        if self._running:
            loop.call_later(left_s, self._leave, loop, left_s, turn)
        else:
            self.run.turn_finished()

    def end(self, outcome: Outcome, response: str | None = None) -> None:
        """End the run."""
        self.ended = True
        self.run.finished(outcome, response)


class Conversations(Generic[Run]):
    """The conversations by the ids of the last messages of the model. Thread-safe."""

    def __init__(self, most: int = MOST, idle_s: float = IDLE_S) -> None:
        self._most, self._idle_s = most, idle_s
        self._by_message: OrderedDict[str, Conversation[Run]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._by_message)

    def find(self, messages: Sequence[AnyMessage]) -> Conversation[Run] | None:
        """Return the conversation that the messages continue."""
        last = last_answer(messages)
        return None if last is None or last.id is None else self._by_message.get(last.id)

    def take(self, messages: Sequence[AnyMessage]) -> Conversation[Run] | None:
        """Remove and return the conversation that the messages continue."""
        last = last_answer(messages)
        if last is None or last.id is None:
            return None
        with self._lock:
            return self._by_message.pop(last.id, None)

    def put(self, message: AIMessage | None, conversation: Conversation[Run]) -> None:
        """Add a conversation whose last answer is `message`, and end those that are idle."""
        if message is None or message.id is None:
            conversation.end("failure")
            return
        now = conversation.used = time.monotonic()
        idle = []
        with self._lock:
            self._by_message[message.id] = conversation
            while self._is_idle(now):
                idle.append(self._by_message.popitem(last=False)[1])
        for each in idle:
            each.end("aborted")

    def _is_idle(self, now: float) -> bool:
        oldest = next(iter(self._by_message.values()))
        return len(self._by_message) > self._most or now - oldest.used > self._idle_s

    def end_all(self) -> None:
        """End and forget all conversations."""
        with self._lock:
            all_, self._by_message = list(self._by_message.values()), OrderedDict()
        for each in all_:
            each.end("aborted")


def last_answer(messages: Sequence[AnyMessage]) -> AIMessage | None:
    """Return the last message of the model."""
    return next((each for each in reversed(messages) if isinstance(each, AIMessage)), None)


def new_user_texts(messages: Sequence[AnyMessage]) -> list[str]:
    """Return the texts of the user after the model's last message."""
    texts: list[str] = []
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            break
        if isinstance(message, HumanMessage):
            texts.append(message.text)
    return texts[::-1]
