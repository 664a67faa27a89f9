"""The OpenTelemetry span of a guessed call, from its start until what became of it is known."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar

from headstart.arguments.checks import InvalidArgument
from headstart.emitting.call_span import CallSpan, GuessOutcome
from headstart.emitting.call_spans import CallSpans
from headstart.speculation.calls import GuessedCall
from headstart.speculation.decision import SpeculationDecision
from headstart.speculation.guessed_call import marked_as_error

TOOL_ERROR: Final = "tool_error"
"""The `error.type` of a result that is marked as an error, as in the conventions of MCP."""

T = TypeVar("T")
_LOG = logging.getLogger(__name__)


class EndedCall(Protocol):
    """A guessed call, as far as its span is concerned."""

    def ran_s(self) -> float:
        """Return the seconds that the call has run, or took."""
        ...

    def value(self) -> object:
        """Return what the call returned or raised; None if it has not ended, or was cancelled."""
        ...


def spans_of(option: object) -> CallSpans | None:
    """Return what makes spans, from the option `spans`. Raises `InvalidArgument`."""
    if isinstance(option, CallSpans):
        return option
    if not isinstance(option, bool):
        raise InvalidArgument(f"spans must be true, false or a CallSpans, not {option!r:.64}")
    return CallSpans() if option else None


class GuessSpan:
    """The span of one guess. A failure of OpenTelemetry is warned of, and changes nothing else.

    A guess that is not started has none: no call was made.
    """

    def __init__(
        self, spans: CallSpans | None, guess: GuessedCall, context: Mapping[str, object]
    ) -> None:
        self._spans, self._guess, self._context = spans, guess, context
        self._span: CallSpan | None = None
        self._choice: SpeculationDecision | None = None
        self._call_id: str | None = None
        self._begun_ns = 0

    def start(self, choice: SpeculationDecision, make: Callable[[], T]) -> T:
        """Return what `make` does, which starts the call: spans of the call are below this one."""
        span = self._begun()
        if span is None:
            return make()
        self._choice, self._span = choice, span
        try:
            with span.current():
                return make()
        except BaseException as error:
            self._end(error, GuessOutcome(), self._begun_ns)
            raise

    def _begun(self) -> CallSpan | None:
        if self._spans is None:
            return None
        self._begun_ns = time.time_ns()
        guess = self._guess
        try:
            span = self._spans.begin(
                guess.tool, arguments=guess.arguments, context=self._context, at_ns=self._begun_ns
            )
        except Exception as error:
            _LOG.warning("a guessed call has no span: %r", error)
            return None
        return span if span.exists else None

    def requested(self, call_id: str | None) -> None:
        """Note the model's id of the call that the guess is right about; None: of none."""
        self._call_id = call_id

    def end(self, execution: EndedCall | None, outcome: GuessOutcome, task_id: str | None) -> None:
        """End the span. `outcome`: without the decision; `task_id`: of the prediction."""
        choice = self._choice
        if self._span is None or not self._span.is_recording or execution is None or choice is None:
            return
        outcome = outcome._replace(
            confidence=self._guess.confidence, threshold=choice.needed, started=True,
            action=choice.action, mode=choice.mode, explored=choice.explored,
        )  # fmt: skip
        took_ns = round(execution.ran_s() * 1e9)
        self._end(execution.value(), outcome, self._begun_ns + took_ns, task_id)

    def _end(
        self, value: object, outcome: GuessOutcome, at_ns: int, task_id: str | None = None
    ) -> None:
        span, self._span = self._span, None
        if span is None:
            return
        try:
            if self._call_id is not None:
                span.requested(self._call_id)
            if task_id is not None:
                span.task(task_id)
            if isinstance(value, BaseException):
                span.error(value)
            elif marked_as_error(value):
                span.error(TOOL_ERROR)
            else:
                span.result(value)
            span.guess(outcome)
        except Exception as error:
            _LOG.warning("the span of a guessed call is incomplete: %r", error)
        finally:
            span.end(at_ns)
