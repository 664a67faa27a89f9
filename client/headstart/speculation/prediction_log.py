"""Logs a prediction and its outcome, as speculation_start and task_complete.

Both have the same task id, which no other open prediction of this process has, so that the service
joins them and no others (docs/reference/event-contract.md, "Outcome").
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from headstart.events.schema import new_id
from headstart.prediction.interface import PastRuns
from headstart.speculation.decision import Guess, SpeculationDecision
from headstart.speculation.logged_arguments import logged_arguments
from headstart.speculation.task_ids import Task, acquire, release

EVENT_FIELDS: Final = (
    "tenant", "workflow_type", "workflow_id", "task_id", "user_id", "agent_id", "session_id",
)  # fmt: skip
"""Keys of a context that are fields of an event; all others go into its `data.context`."""

MODE_OF: Final = {"speculate": "speculative", "suggest": "suggestion", "ask": "explicit"}
"""The `prediction.mode` of an event, by the decision's action."""

_LOG = logging.getLogger(__name__)


class EventSink(Protocol):
    """An emitter, as far as a speculator uses it."""

    def emit(self, event: Mapping[str, Any], /) -> str:
        """Take one event."""
        ...


class PredictionLog:
    """Logs one guess. A failure to log is counted and warned of, and fails no workflow.

    `arguments`: of the guessed call, logged if it is right; None for none. `memory`: the past runs
    behind its confidence.

    Raises `ValueError` if there is an emitter and the context has no `workflow_id`.
    """

    def __init__(
        self,
        emitter: EventSink | None,
        context: Mapping[str, object],
        guess: Guess,
        failed: Callable[[], None] = lambda: None,
        evidence: Mapping[str, object] | None = None,
        *,
        arguments: object = None,
        memory: PastRuns | None = None,
    ) -> None:
        if emitter is not None and not context.get("workflow_id"):
            raise ValueError("workflow_id is missing: a prediction is logged as part of a workflow")
        self.guess, self._emitter, self._failed = guess, emitter, failed
        self._evidence, self._arguments, self._memory = evidence, arguments, memory
        self._fields = {n: context[n] for n in EVENT_FIELDS if context.get(n) is not None}
        self._fields.setdefault("task_id", new_id())
        self._context = {n: value for n, value in context.items() if n not in EVENT_FIELDS}
        self._mode, self._off = MODE_OF["ask"], False
        self._task: Task | None = None

    @property
    def task_id(self) -> str | None:
        """The id under which the guess is logged; None if it is not."""
        logged = self._emitter is not None and not self._off
        return str(self._fields["task_id"]) if logged else None

    def predicted(self, choice: SpeculationDecision, speculated: bool) -> None:
        """Log the prediction, also if it was not acted on; nothing if the mode is off."""
        self._off = choice.mode == "off"
        self._mode = MODE_OF[choice.action]
        if self._emitter is not None and not self._off:
            self._task = acquire(self._fields, self)
            if self._task is not None:
                self._fields["task_id"] = self._task[-1]
        prediction: dict[str, Any] = {
            "tool_id": self.guess.tool,
            "mode": self._mode,
            "reasoning": choice.reason,
            "speculated": speculated,
            "threshold": choice.needed,
            "explored": choice.explored,
        }
        if self.guess.calibrated:
            prediction["calibrated"] = True
        not_startable = choice.not_startable
        if choice.action == "speculate" and not speculated:
            not_startable = "budget"  # other guesses used it up since the decision
        if not_startable is not None and not speculated:
            prediction["not_startable"] = not_startable
        if self._evidence is not None:
            prediction["evidence"] = self._evidence
        memory = None if self._memory is None else self._memory.as_json()
        self._emit("speculation_start", prediction, memory=memory, confidence=self.guess.confidence)

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
        """Log the outcome: the measured gain before the guess's own, the guess's own cost first.

        `failed`: the guess was right, but the guessed call saved nothing, so `correct` is False.
        """
        gain = self.guess.gain if gain_ms is None else gain_ms
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
            arguments = logged_arguments(self._arguments) if correct else None
            self._emit(
                "task_complete", prediction, result=result, arguments=arguments, tool_id=tool,
                success=success,
            )  # fmt: skip
        finally:
            self.ended()

    def ended(self) -> None:
        """Release the task id of a prediction without an outcome; `resolved` calls this too."""
        task, self._task = self._task, None
        release(task)

    def _emit(
        self,
        kind: str,
        prediction: dict[str, Any],
        *,
        result: object = None,
        arguments: object = None,
        memory: object = None,
        **fields: Any,
    ) -> None:
        if self._emitter is None or self._off:
            return
        data: dict[str, Any] = {"context": self._context, "prediction": prediction}
        if result:
            data["result"] = result
        if arguments is not None:
            data["arguments"] = arguments
        if memory is not None:
            data["memory"] = memory
        try:
            self._emitter.emit({**self._fields, "event_type": kind, "data": data, **fields})
        except Exception as error:
            self._failed()
            _LOG.warning("cannot log a %s of %s: %s", kind, self.guess.tool, error)
