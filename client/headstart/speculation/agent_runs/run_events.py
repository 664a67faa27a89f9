"""The events of one run of an agent: its calls that no guess stands for, and its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, cast

from headstart.emitting.workflow import Workflow, workflow
from headstart.events.constructors import Outcome, in_scope
from headstart.events.schema import MAX_IDENTIFIER, new_id
from headstart.speculation.base_speculator import BaseSpeculator
from headstart.speculation.logged_arguments import logged_arguments
from headstart.speculation.prediction_log import EVENT_FIELDS

_LOG = logging.getLogger(__name__)
_OF_A_RUN: Final = tuple(name for name in EVENT_FIELDS if name != "task_id")


class RunEvents:
    """Emits to the speculator's emitter, if it has one. A failure is counted and warned of.

    `context`: of the run, completed from the current scope. Raises `InvalidEvent` and
    `InvalidArgument` for one that cannot be used.
    """

    def __init__(self, speculator: BaseSpeculator, context: Mapping[str, object]) -> None:
        self._speculator = speculator
        complete = dict(in_scope(context))
        self._ends = context.get("workflow_id") is not None or not complete.get("workflow_id")
        if not complete.get("workflow_id"):
            complete["workflow_id"] = new_id()
        self.context: Mapping[str, object] = complete
        self._workflow: Workflow | None = None
        if speculator.emitter is not None:
            fields: dict[str, Any] = {n: complete[n] for n in _OF_A_RUN if n in complete}
            rest = {n: value for n, value in complete.items() if n not in EVENT_FIELDS}
            emitter = cast("Any", speculator.emitter)
            self._workflow = workflow(**fields, context=rest, emitter=emitter)
        self._begun = self._answered = time.monotonic()
        self._query: str | None = None
        self._asks = not self._ends
        """Whether a call's event has to name the query: the end of the run is logged by others."""
        self._arguments: dict[str, object] = {}
        """The arguments of the turn's calls as they are logged, by the calls' ids."""
        self._ended = False

    @property
    def workflow_id(self) -> str:
        """The id of the run."""
        return str(self.context["workflow_id"])

    def asked(self, text: str) -> None:
        """Note a message of the user; the first one is the run's query."""
        if self._query is None:
            self._query = text

    def answered(self) -> None:
        """Note that the model has answered: the calls of a turn begin."""
        self._answered = time.monotonic()

    def requested(self, call_id: str, arguments: object) -> None:
        """Note the arguments of a call, to be logged when it ends; later ones replace them."""
        if self._speculator.logs_arguments and isinstance(call_id, Hashable):
            self._arguments[call_id] = logged_arguments(arguments)

    def turn_ended(self) -> None:
        """Forget the calls of the turn."""
        self._arguments = {}

    def tool_ended(
        self, call_id: str, tool: str, *, success: bool, duration_ms: float | None
    ) -> None:
        """Emit the completion of a call, with the arguments that are noted of it.

        `duration_ms`: default the time since the answer.
        """
        since = (time.monotonic() - self._answered) * 1000.0
        took = since if duration_ms is None else duration_ms
        task_id = call_id if 0 < len(str(call_id)) <= MAX_IDENTIFIER else new_id()
        data: dict[str, object] = {"result": {"execution_time_ms": took}}
        arguments = self._arguments.get(call_id)
        if arguments is not None:
            data["arguments"] = arguments
        if self._asks and self._query is not None:
            data["query"], self._asks = self._query, False
        event = {
            "event_type": "task_complete", "task_id": task_id, "tool_id": tool, "success": success,
            "data": data,
        }  # fmt: skip
        self._safely(lambda run: run.emit(event))

    def ended(self, outcome: Outcome, response: str | None) -> None:
        """Emit the end of the run, once."""
        if self._ended or not self._ends:
            return
        self._ended = True
        took_ms = (time.monotonic() - self._begun) * 1000.0
        data = {"outcome": outcome, "query": self._query, "response": response}
        event = {
            "event_type": "workflow_complete", "success": outcome == "success",
            "data": {name: value for name, value in data.items() if value is not None}
            | {"result": {"execution_time_ms": took_ms}},
        }  # fmt: skip
        self._safely(lambda run: run.emit(event))  # not `complete`, which would check it, too

    def _safely(self, emit: Callable[[Workflow], object]) -> None:
        if self._workflow is None:
            return
        try:
            emit(self._workflow)
        except Exception as error:
            self._speculator.count("unlogged")
            _LOG.warning("an event of run %s cannot be logged: %s", self.workflow_id, error)
