"""The calls of a client's run: those that it has requested, and those that have ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from headstart.integrations.mcp_proxy.tool_calls import result_text
from headstart.speculation.agent_run import AgentRun
from headstart.speculation.calls import RequestedCall
from headstart.speculation.started_call import StartedCall


class ObservedCall:
    """A requested call. `match`: the guessed call that answers it, to be awaited once."""

    def __init__(self, request: RequestedCall, match: StartedCall[Any] | None) -> None:
        self.call_id, self.tool, self.arguments = request
        self.match = match
        self.begun = time.perf_counter()
        self._timer: asyncio.TimerHandle | None = None

    def limit(self, within_s: float, overdue: Callable[[ObservedCall], None]) -> None:
        """Call `overdue` if the call has not ended within a time."""
        self._timer = asyncio.get_running_loop().call_later(within_s, overdue, self)

    def ended(self) -> float:
        """Stop the timer; return how long the call took, in ms."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return (time.perf_counter() - self.begun) * 1000.0


class CompletedCall(NamedTuple):
    """A call that has ended. `result`: or the message of one that has none.

    `late`: its turn had ended before.
    """

    call: ObservedCall
    result: Mapping[str, Any] | str
    failed: bool
    took_ms: float
    late: bool

    def report(self, run: AgentRun[Any]) -> None:
        """Report the end to the run."""
        call_id, result = self.call.call_id, self.result
        if self.late:
            run.tool_retried(call_id, self.call.tool, self.call.arguments)
        value = result if isinstance(result, str) else result_text(result)
        run.tool_finished(call_id, value, error=self.failed, duration_ms=self.took_ms)
