"""How a prediction and its outcome are logged: as speculation_start and task_complete.

Both carry the same task, which no other prediction has that is open in this process, so that the
service joins them and no others (docs/reference/event-contract.md, "Outcome").
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from headstart.events.schema import new_id
from headstart.speculation.decision import Guess, SpeculationDecision
from headstart.speculation.task_ids import Task, give_back, take

PLACE: Final = (
    "tenant", "workflow_type", "workflow_id", "task_id", "user_id", "agent_id", "session_id",
)  # fmt: skip
"""Fields of a context that are an event's own; every other one is part of its `data.context`."""

MODE_OF: Final = {"speculate": "speculative", "suggest": "suggestion", "ask": "explicit"}
"""How an event names the decision about a prediction."""

_LOG = logging.getLogger(__name__)


class Emits(Protocol):
    """An emitter."""

    def emit(self, event: Mapping[str, Any], /) -> str:
        """Take one event."""
        ...


class PredictionLog:
    """Logs one guess. A log that fails fails no workflow: it is warned of and counted.

    Raises `ValueError` where the context does not say which workflow it is.
    """

    def __init__(
        self,
        emitter: Emits | None,
        context: Mapping[str, object],
        guess: Guess,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        if emitter is not None and not context.get("workflow_id"):
            raise ValueError("workflow_id: a prediction is logged as part of a workflow; name it")
        self.guess, self._emitter, self._failed = guess, emitter, failed
        self._place = {name: context[name] for name in PLACE if context.get(name) is not None}
        self._place.setdefault("task_id", new_id())
        self._context = {name: value for name, value in context.items() if name not in PLACE}
        self._mode, self._quiet = MODE_OF["ask"], False
        self._task: Task | None = None

    def predicted(self, choice: SpeculationDecision, speculated: bool) -> None:
        """Log the prediction, also when the decision was not to act on it; nothing when off."""
        self._quiet = choice.mode == "off"
        self._mode = MODE_OF[choice.action]
        if self._emitter is not None and not self._quiet:
            self._task = take(self._place, self)
            if self._task is not None:
                self._place["task_id"] = self._task[-1]
        prediction = {
            "tool_id": self.guess.tool,
            "mode": self._mode,
            "reasoning": choice.reason,
            "speculated": speculated,
            "threshold": choice.needed,
            "explored": choice.explored,
        }
        not_startable = choice.not_startable
        if choice.action == "speculate" and not speculated:
            not_startable = "budget"  # other guesses took what was left of it since the decision
        if not_startable is not None and not speculated:
            prediction["not_startable"] = not_startable
        self._emit("speculation_start", prediction, confidence=self.guess.confidence)

    def resolved(
        self,
        tool: str | None,
        correct: bool,
        *,
        speculated: bool,
        gain_ms: float | None = None,
        cost_ms: float | None = None,
        took_ms: float | None = None,
        success: bool | None = None,
        failed: bool = False,
    ) -> None:
        """Log the outcome; `gain_ms` and `cost_ms` as measured, where the guess named none.

        `failed`: the guess was right, but the guessed call saved nothing; then it is no hit, so
        `correct` is False.
        """
        gain = gain_ms if self.guess.gain is None else self.guess.gain
        cost = cost_ms if self.guess.cost is None else self.guess.cost
        measured = {"gain_ms": gain, "cost_ms": cost, "execution_time_ms": took_ms}
        result = {name: value for name, value in measured.items() if value is not None}
        prediction = {
            "tool_id": self.guess.tool,
            "mode": self._mode,
            "was_correct": correct,
            "speculated": speculated,
        }
        if failed:
            prediction["failed"] = True
        try:
            self._emit("task_complete", prediction, result=result, tool_id=tool, success=success)
        finally:
            self.ended()

    def ended(self) -> None:
        """Free the task id; `resolved` does so, this is for a prediction without an outcome."""
        task, self._task = self._task, None
        give_back(task)

    def _emit(
        self, kind: str, prediction: dict[str, Any], result: Any = None, **fields: Any
    ) -> None:
        if self._emitter is None or self._quiet:
            return
        data = {"context": self._context, "prediction": prediction}
        if result:
            data["result"] = result
        try:
            self._emitter.emit({**self._place, "event_type": kind, "data": data, **fields})
        except Exception as error:
            self._failed()
            _LOG.warning("a %s of %s is not logged: %s", kind, self.guess.tool, error)
