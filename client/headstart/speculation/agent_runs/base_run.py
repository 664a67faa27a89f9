"""What `AgentRun` and `ThreadAgentRun` have in common: everything but starting a turn."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from headstart.arguments.checks import InvalidArgument, number
from headstart.events.constructors import Outcome
from headstart.prediction.interface import PredictedCall, RunPredictor, ToolCall
from headstart.speculation.agent_runs.guarded_predictor import GuardedPredictor
from headstart.speculation.agent_runs.run_events import RunEvents
from headstart.speculation.base_speculator import BaseSpeculator
from headstart.speculation.calls import CallWithId

GUESS_S: Final = 0.05
"""Seconds within which a predictor guesses."""

Match_co = TypeVar("Match_co", covariant=True)
OwnSpeculator = TypeVar("OwnSpeculator", bound=BaseSpeculator)

_LOG = logging.getLogger(__name__)


class SettledTurn(Protocol[Match_co]):
    """A turn, as far as a run uses it once it is started."""

    def settle(self, calls: Sequence[CallWithId]) -> Mapping[str, Match_co]:
        """Return the started calls that are right."""
        ...

    def finished(
        self, call_id: str, duration_ms: float | None = None, *, success: bool | None = None
    ) -> None:
        """Record that a call has ended."""
        ...

    def has_outcome_of(self, call_id: str) -> bool:
        """Return whether a guess's outcome stands for a call."""
        ...

    def close(self) -> None:
        """Cancel what was not used."""
        ...


class BaseAgentRun(Generic[OwnSpeculator, Match_co]):
    """The hooks of one run of an agent. A subclass starts turns and hands over started ones."""

    def __init__(
        self,
        speculator: OwnSpeculator,
        predictor: RunPredictor | None,
        context: Mapping[str, object],
        tools: Mapping[str, object] | None = None,
        *,
        limit: int = 3,
        guess_s: float = GUESS_S,
        parallel: bool = True,
    ) -> None:
        """Bind a run.

        Args:
            speculator: Decides, and logs to its emitter.
            predictor: Of this run; None only logs.
            context: As for a speculator's `turn`. Without a `workflow_id` the run gets a new one.
            tools: The agent's tools by name: annotations, a framework's metadata or its tool. They
                mark which are read-only (`Options.annotations`). Tools that are not among them are
                not guessed; None: every tool.
            limit: Guesses at each call of the model.
            guess_s: Seconds within which the predictor guesses; a later guess is not used.
            parallel: The framework makes the calls of a turn at once.

        Raises:
            InvalidArgument, InvalidEvent: Names the argument that cannot be used.
        """
        self._speculator = speculator
        self._predictor = GuardedPredictor(predictor, lambda: speculator.count("unpredicted"))
        self._predictor.run_begun()
        self._tools: frozenset[str] | None = None
        if tools is not None:
            self.offered(tools)
        self._events = RunEvents(speculator, context)
        self._limit, self._guess_s, self._parallel = limit, guess_s, parallel
        self._lock = threading.Lock()
        """Held while a turn that was started is handed over to another thread."""
        self._turn: SettledTurn[Match_co] | None = None
        self._requested: dict[str, str] = {}
        """The tools of the turn's calls that have not ended, by the calls' ids."""
        self._answering = False
        """Whether calls of the turn are known, and others may follow."""
        self._calls: dict[str, CallWithId] = {}
        """The calls of such a turn, by their ids."""
        self._early_results: list[tuple[str, object, bool]] = []
        """Results of such a turn: the predictor takes them after the calls."""

    @property
    def workflow_id(self) -> str:
        """The id under which the run is logged."""
        return self._events.workflow_id

    def offered(self, tools: Mapping[str, object]) -> None:
        """Set the tools that the model is offered from now on, as after a handoff.

        `tools`: as given to the constructor, which sets the first ones. Raises `InvalidArgument`.
        """
        if tools:
            self._speculator.declare(tools)
        self._tools = frozenset(tools)

    def user(self, text: str) -> None:
        """Add a message of the user."""
        self._events.asked(text)
        self._predictor.user(text)

    def model_answered(self, calls: Sequence[CallWithId], text: str = "") -> Mapping[str, Match_co]:
        """Settle the model's answer; return the guessed calls that answer requested ones.

        Args:
            calls: All calls of the turn; empty: a reply.
            text: Of the answer, beside the calls.

        What is no list of calls is logged as a warning: the turn's guesses are discarded, and
        nothing is learned from it.
        """
        try:
            answered = [ToolCall(call.tool, as_mapping(call.arguments)) for call in calls]
            requested = {call.id: call.tool for call in calls}
        except (AttributeError, TypeError) as error:
            self._failed(error)
            self._close_turn()
            return {}
        self._begin_answer()
        for call in calls:
            self._events.requested(call.id, call.arguments)
        self._requested |= {id_: tool for id_, tool in requested.items() if id_ not in self._calls}
        self._learn_answer(answered, text)
        if self._turn is None:
            return {}
        try:
            return self._turn.settle(calls)
        except Exception as error:
            self._turn.close()
            self._failed(error)
            return {}

    def tool_finished(
        self,
        call_id: str,
        result: object = None,
        *,
        error: bool = False,
        duration_ms: float | None = None,
    ) -> None:
        """Record that a requested call has ended, also one that a guess answered.

        Args:
            call_id: Of a call of the turn; another changes nothing.
            result: What the call returned, or the message of its failure.
            error: The tool failed.
            duration_ms: Default: the time since the model answered.
        """
        tool = self._requested.pop(call_id, None) if isinstance(call_id, Hashable) else None
        if tool is None:
            return
        turn = self._turn
        if self._answering:
            self._early_results.append((tool, result, error))
        else:
            self._predictor.result(tool, result, error=error)
        try:
            duration_ms = None if duration_ms is None else number("duration_ms", duration_ms, 0.0)
        except InvalidArgument as problem:
            _LOG.warning("the time since the model answered counts: %s", problem)
            duration_ms = None
        if turn is not None:
            turn.finished(call_id, duration_ms, success=not error)
        if turn is None or not turn.has_outcome_of(call_id):
            self._events.tool_ended(call_id, tool, success=not error, duration_ms=duration_ms)

    def tool_retried(self, call_id: str, tool: str, arguments: object = None) -> None:
        """Record that a call that was reported as finished is made again.

        `arguments`: with which it is made now; None: those with which it was requested.
        """
        if isinstance(call_id, Hashable):
            self._requested[call_id] = tool
            if arguments is not None:
                self._events.requested(call_id, arguments)

    def turn_finished(self) -> None:
        """End the turn: all its calls have ended. Guesses of it answer nothing any more."""
        if self._calls:
            self.model_answered(list(self._calls.values()))
        self._close_settled()

    def model_failed(self) -> None:
        """Discard the guesses of a call of the model that failed or was cancelled."""
        self._close_turn()

    def finished(self, outcome: Outcome = "success", response: str | None = None) -> None:
        """End the run. Calling it again changes nothing."""
        self._end_turn()
        self._events.ended(outcome, response)

    def _begin_answer(self) -> None:
        """Take the guesses that the model's answer is compared with, unless it has begun."""
        if not self._answering:
            self._close_settled()
            self._turn = self._take_started()
            self._answering = True
            self._events.answered()

    def _learn_answer(self, calls: Sequence[ToolCall], text: str) -> None:
        """Let the predictor learn the calls of the turn, and the results that came before."""
        self._predictor.calls(calls)
        if text:
            self._predictor.said(text)
        for tool, result, error in self._early_results:
            self._predictor.result(tool, result, error=error)
        self._answering, self._calls, self._early_results = False, {}, []

    def _take_started(self) -> SettledTurn[Match_co] | None:
        """Return the turn if its guesses are made; otherwise they come too late."""
        raise NotImplementedError

    def _offered(self, guesses: Sequence[PredictedCall]) -> Sequence[PredictedCall]:
        """Return the guesses of tools that the agent has."""
        if self._tools is None:
            return guesses
        return [guess for guess in guesses if guess.tool in self._tools]

    def _failed(self, error: Exception) -> None:
        self._speculator.count("unpredicted")
        _LOG.warning("a turn goes on without its guesses: %r", error)

    def _end_turn(self) -> None:
        """End the turn under way, and discard guesses that no answer was compared with."""
        if self._calls:
            self.turn_finished()
        self._close_turn()

    def _close_settled(self) -> None:
        turn, self._turn = self._turn, None
        self._answering, self._requested, self._calls, self._early_results = False, {}, {}, []
        self._events.turn_ended()
        if turn is not None:
            turn.close()

    def _close_turn(self) -> None:
        started = self._take_started()
        if started is not None:
            started.close()
        self._close_settled()


def as_mapping(arguments: Any) -> Mapping[str, object]:
    """Return arguments as a mapping; empty if they are no JSON object."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
    return cast("Mapping[str, object]", arguments) if isinstance(arguments, Mapping) else {}
