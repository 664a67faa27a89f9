"""The calls of one client as a proxy sees them: finds the turns, guesses between them, answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from headstart.events.constructors import Outcome
from headstart.integrations.mcp_proxy.known_tools import KnownTools
from headstart.integrations.mcp_proxy.observed_call import CompletedCall, ObservedCall
from headstart.integrations.mcp_proxy.tool_calls import ToolRequest, is_failure
from headstart.integrations.setup import SpeculationSetup
from headstart.prediction.interface import RunPredictor
from headstart.speculation.agent_run import AgentRun
from headstart.speculation.argument_equality import same_arguments
from headstart.speculation.calls import RequestedCall

MOST_CALLS: Final = 64
"""Calls after which a turn ends as soon as none is under way, so that it is bounded."""
MOST_OVERLAPPING: Final = 1_000
"""Calls after which a turn ends in any case; those still under way are not logged."""

_LOG: Final = logging.getLogger(__name__)


class ProxyTimes(NamedTuple):
    """When turns and runs end, in seconds.

    gap: After the last call of a turn has ended; a call that comes before still belongs to it.
    thinking: After the end of a turn; the model then counts as having answered without a call.
    idle: After the end of a turn; the run then has ended, and the next call begins another one.
    unanswered: After the begin of a call. If the server has not answered it by then, its turn can
        end without it. An answer that comes later is logged.
    """

    gap: float = 0.02
    thinking: float = 30.0
    idle: float = 600.0
    unanswered: float = 300.0


class Origin(NamedTuple):
    """What, beside tool and arguments, may change what a call returns. Guesses copy it."""

    meta: Mapping[str, Any] = {}
    headers: Mapping[str, str] = {}

    def is_same_as(self, other: Origin) -> bool:
        """Return whether both are the same as JSON, where 1 is not true."""
        return self.headers == other.headers and same_arguments(self.meta, other.meta)


Guess = Callable[[Origin, str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Makes a guessed call with the origin of the last call; returns its result."""


class ProxiedSession:
    """Reports the calls of one client to a run; nothing here raises, or waits.

    A turn is what overlaps: it begins with a call while none is under way, and ends `gap` after the
    last of its calls. Then the model thinks, and guesses are made. A guess answers a call of the
    next turn only, and none that comes behind a call of a tool that is not safe to run early:
    no call of this run that may change something came between the begin of a guess and the call it
    answers. Calls of other sessions are not looked at.
    """

    def __init__(
        self,
        setup: SpeculationSetup,
        tools: KnownTools,
        guess: Guess,
        times: ProxyTimes = ProxyTimes(),  # noqa: B008 - immutable
        ended: Callable[[], None] = lambda: None,
        new_predictor: Callable[[], RunPredictor] | None = None,
    ) -> None:
        """Observe one client.

        `ended` is called when the session was idle for so long that its run has ended.
        `new_predictor` makes the predictor of a run; default: that of the set-up.
        """
        self._setup, self._tools, self._guess, self._times = setup, tools, guess, times
        self._when_ended = ended
        self._new_predictor = setup.run_predictor if new_predictor is None else new_predictor
        self._run: AgentRun[Any] | None = None
        self._under_way: dict[str, ObservedCall] = {}
        self._unanswered: dict[str, ObservedCall] = {}
        """Calls without an answer whose turn has ended."""
        self._to_report: list[CompletedCall] = []
        self._count = self._in_turn = 0
        self._origin, self._guessed_origin = Origin(), Origin()
        self._offered: Mapping[str, object] = {}
        self._has_unsafe_call = self._write_may_continue = False
        self._thinking = self._may_wait = False
        """`_may_wait`: the turn ended without a call that the client may still wait for."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        """Whether calls are under way."""
        return bool(self._under_way)

    def requested(self, request: ToolRequest, origin: Origin) -> ObservedCall | None:
        """Record a call; None if it cannot be observed."""
        self._stop_timer()
        self._thinking = self._may_wait = False
        run = self._begun()
        if run is None:
            return None
        self._count += 1
        self._in_turn += 1
        asked = RequestedCall(str(self._count), request.tool, request.arguments)
        match = run.call_requested(asked)
        if match is not None and not (
            request.plain and not self._has_unsafe_call and origin.is_same_as(self._guessed_origin)
        ):
            match = None
        self._origin = origin
        if not self._setup.speculator.may_start(request.tool):
            self._has_unsafe_call = True
        call = ObservedCall(asked, match)
        self._under_way[call.call_id] = call
        call.limit(self._times.unanswered, self._overdue)
        return call

    def finished(
        self, call: ObservedCall, result: Mapping[str, Any] | None, error: str = ""
    ) -> None:
        """Record the end of a call. `error`: the message of one that has no result."""
        failed = result is None or is_failure(result)
        self._ended(call, error if result is None else result, failed)

    def cancelled(self, call: ObservedCall) -> None:
        """Record that the client no longer waits; the server may still work on the call."""
        if call.call_id not in self._under_way and call.call_id not in self._unanswered:
            return
        if not self._setup.speculator.may_start(call.tool):
            self._write_may_continue = True
        self._ended(call, "cancelled", failed=True)

    def _overdue(self, call: ObservedCall) -> None:
        """Let the turn end without a call that the server has not answered."""
        if self._under_way.pop(call.call_id, None) is None:
            return
        _LOG.warning("the server has not answered a call of %s: guesses go on", call.tool)
        self._unanswered[call.call_id] = call
        self._may_wait = True
        if not self._setup.speculator.may_start(call.tool):
            self._write_may_continue = True
        if not self._under_way:
            self._later(self._times.gap, self._end_turn_and_guess)

    def _ended(self, call: ObservedCall, result: Mapping[str, Any] | str, failed: bool) -> None:
        late = self._unanswered.pop(call.call_id, None) is not None
        if not late and self._under_way.pop(call.call_id, None) is None:
            return
        self._to_report.append(CompletedCall(call, result, failed, call.ended(), late))
        if late and not self._may_wait:  # the client has made other calls since
            if not self._setup.speculator.may_start(call.tool):
                self._has_unsafe_call = True  # guesses under way may be older than its change
            return
        if self._in_turn >= (MOST_OVERLAPPING if self._under_way else MOST_CALLS):
            self._end_turn()
        if not self._under_way:
            self._later(self._times.gap, self._end_turn_and_guess)

    def _report_ended(self) -> None:
        """Report the calls that have ended: not at once, which would delay their answers."""
        to_report, self._to_report = self._to_report, []
        if self._run is None:
            return
        for each in to_report:
            try:
                each.report(self._run)
            except Exception as error:
                _LOG.warning("a call of %s is not logged: %r", each.call.tool, error)

    def distrust(self) -> None:
        """Let no guess that is under way answer a call: the tools have changed."""
        self._has_unsafe_call = True

    def close(self, outcome: Outcome = "success") -> None:
        """End the run, and cancel what is under way. The session can be used again."""
        self._stop_timer()
        self._report_ended()
        run, self._run = self._run, None
        for call in self._under_way.values():
            call.ended()
        self._under_way.clear()
        self._unanswered.clear()
        if run is None:
            return
        if self._thinking:
            self._no_call_came(run)
        self._in_turn, self._thinking = 0, False
        run.finished(outcome)

    def _begun(self) -> AgentRun[Any] | None:
        if self._run is None:
            try:
                self._offered = self._tools.hints
                self._run = self._setup.run(self._offered, predictor=self._new_predictor())
            except Exception as error:
                _LOG.warning("calls pass without guesses, and are not logged: %r", error)
        return self._run

    def _end_turn(self) -> None:
        self._stop_timer()
        self._report_ended()
        if self._run is not None:
            self._run.turn_finished()
        self._in_turn = 0
        self._has_unsafe_call = False

    def _end_turn_and_guess(self) -> None:
        self._end_turn()
        run, write_may_continue = self._run, self._write_may_continue
        self._write_may_continue, self._thinking = False, True
        if run is None:
            return
        self._later(self._times.thinking, self._end_thinking)
        if write_may_continue:  # guesses might read what it changes
            run.model_failed()
            return
        try:
            if self._tools.hints is not self._offered:
                self._offered = self._tools.hints
                run.offered(self._offered)
            self._guessed_origin = origin = self._origin
            run.model_started(lambda tool, arguments: self._guess(origin, tool, arguments))
        except Exception as error:
            _LOG.warning("a turn goes on without guesses: %r", error)

    def _end_thinking(self) -> None:
        self._thinking = False
        if self._run is not None:
            self._no_call_came(self._run)
        self._later(max(0.0, self._times.idle - self._times.thinking), self._end_idle)

    def _no_call_came(self, run: AgentRun[Any]) -> None:
        """End the thinking: the model has replied, or still waits for the answer of a call."""
        if self._may_wait:
            run.model_failed()
        else:
            run.model_answered(())
            run.turn_finished()

    def _end_idle(self) -> None:
        self.close()
        self._when_ended()

    def _later(self, delay_s: float, work: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(delay_s, work)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
