"""One run of an agent as Claude Code's hooks observe it, and the guesses that answer calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from itertools import takewhile
from typing import Any, Final, NamedTuple

from headstart.events.constructors import Outcome
from headstart.integrations.claude_agent.hook_inputs import result_text
from headstart.speculation.agent_run import AgentRun
from headstart.speculation.calls import RequestedCall
from headstart.speculation.started_call import StartedCall
from headstart.speculation.turn import RunTool

NEVER_MADE: Final = "the call was not made"
"""The result of a call whose end was not reported: it was denied, or interrupted."""
READING: Final = frozenset(("Glob", "Grep", "Read", "ToolSearch", "WebFetch", "WebSearch"))
"""Tools of Claude Code that change nothing."""


class _Ended(NamedTuple):
    result: object
    error: bool
    took_ms: float


class ObservedClaudeRun:
    """A prompt of the user with all that follows, or a run of a subagent.

    `prompt_id`: of Claude Code. `offered`: returns the tools that may be guessed now, in a
    permission mode. `make`: makes a guessed call. `may_start`: whether a tool is safe.
    """

    def __init__(
        self,
        run: AgentRun[Any],
        prompt_id: str | None,
        offered: Callable[[str | None], Mapping[str, object]],
        make: RunTool[Any],
        may_start: Callable[[str], bool],
    ) -> None:
        self.run, self.prompt_id = run, prompt_id
        self._offered, self._make, self._may_start = offered, make, may_start
        self._calls: dict[str, RequestedCall] = {}
        """The calls of the turn, by their ids."""
        self._begun: dict[str, float] = {}
        self._ended: dict[str, _Ended] = {}
        self._turns = 0

    @property
    def calls(self) -> Collection[str]:
        """The ids of the turn's calls."""
        return self._calls.keys()

    def asked(self, text: str, mode: str | None) -> None:
        """Add a message of the user: the model is called, unless calls are under way."""
        self.run.user(text)
        if not self._calls:
            self.model_called(mode)

    def model_called(self, mode: str | None) -> None:
        """Begin a call of the model: guess, and start calls. `mode`: of permissions."""
        self._turns += 1
        self.run.offered(self._offered(mode))
        self.run.model_started(self._make)

    def requested(self, call: RequestedCall) -> None:
        """Add a call of the turn; others may follow."""
        self.run.call_requested(call)
        self._calls[call.id] = call
        self._begun[call.id] = time.perf_counter()

    def made(self, call: RequestedCall) -> StartedCall[Any] | None:
        """Return the guessed call that answers a call, as it is made after all permissions.

        A call behind one that may change what it returns is not answered: the guessed call was
        made before that.
        """
        self._begun[call.id] = time.perf_counter()
        earlier = takewhile(lambda each: each.id != call.id, self._calls.values())
        if not all(each.tool in READING or self._may_start(each.tool) for each in earlier):
            return None
        return self.run.call_requested(call)

    def ended(
        self, call_id: str, result: object, *, error: bool, took_ms: float | None = None
    ) -> None:
        """Record the end of a call. A second report changes nothing."""
        if took_ms is None:
            took_ms = (time.perf_counter() - self._begun.get(call_id, 0.0)) * 1000.0
        if call_id in self._calls:
            self._ended.setdefault(call_id, _Ended(result_text(result), error, float(took_ms)))

    def left(self) -> int | None:
        """Return the turn's number if all of its calls have ended, else None."""
        return self._turns if self._calls.keys() <= self._ended.keys() else None

    def turn_ended(self, calls: Collection[RequestedCall], responses: Mapping[str, Any]) -> None:
        """Settle all calls of the turn; those without a recorded end were not made.

        `responses`: of the tools, by the calls' ids.
        """
        missing = [call for call in self._calls.values() if call.id not in {c.id for c in calls}]
        self.run.model_answered([*calls, *missing])
        for call in (*calls, *missing):
            result, error, took_ms = self._ended.get(
                call.id,
                _Ended(result_text(responses.get(call.id, NEVER_MADE)), error=True, took_ms=0.0),
            )
            self.run.tool_finished(call.id, result, error=error, duration_ms=took_ms)
        self.run.turn_finished()
        self._calls, self._begun, self._ended = {}, {}, {}

    def finished(self, outcome: Outcome, response: str | None = None) -> None:
        """End the run. Guessed calls that still run are cancelled."""
        if self._calls:
            self.turn_ended((), {})
        if outcome == "success":
            self.run.model_answered([], response or "")
        self.run.finished(outcome, response)
