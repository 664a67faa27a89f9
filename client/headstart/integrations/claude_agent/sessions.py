"""The sessions of an agent: which run each hook of Claude Code, and each call of a tool, is of."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from headstart.events.constructors import Outcome
from headstart.integrations.claude_agent.observed_run import ObservedClaudeRun
from headstart.integrations.claude_agent.permissions import UNLIMITED, Permissions, SubagentLimits
from headstart.integrations.claude_agent.tool_servers import ToolServer, connection
from headstart.integrations.setup import SpeculationSetup
from headstart.prediction.interface import RunPredictor
from headstart.speculation.calls import RequestedCall
from headstart.speculation.started_call import StartedCall

MOST: Final = 10_000
"""Most sessions that are remembered."""
LEFT_S: Final = 5.0
"""Seconds after the last call of a turn was cancelled, after which the run was interrupted."""
MAIN: Final = ""
"""Stands for the id of a session's own agent, which has none."""


class Session:
    """One session of Claude Code. `runs`: those under way, by the subagent's id, or `MAIN`."""

    def __init__(self, predictor: RunPredictor) -> None:
        self.predictor = predictor
        self.mode: str | None = None
        """The permission mode of the last hook."""
        self.runs: dict[str, ObservedClaudeRun] = {}
        self.prompts: list[tuple[str | None, str]] = []
        """Of subagents that are to start: their types and prompts."""
        self.connections: set[object] = set()

    def run_of(self, hook_input: Mapping[str, Any]) -> ObservedClaudeRun | None:
        """Return the run that a hook is of, if it is under way."""
        return self.runs.get(hook_input.get("agent_id", MAIN))


class ObservedSessions:
    """The sessions by their ids, and the runs of their calls.

    `limits`: of the subagents that the options define, by their type.
    """

    def __init__(
        self,
        setup: SpeculationSetup,
        permissions: Permissions,
        limits: Mapping[str, SubagentLimits],
    ) -> None:
        self._setup, self._permissions, self._limits = setup, permissions, limits
        self.servers: list[ToolServer] = []
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._active: set[Session] = set()
        """Those with runs under way."""
        self._runs_of_calls: dict[str, tuple[Session, ObservedClaudeRun]] = {}
        self._connections: set[object] = set()

    def of(self, session_id: str) -> Session:
        """Return a session, which may be a new one."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            session = Session(self._setup.run_predictor())
            if len(self._sessions) >= MOST:
                self._end_all(self._sessions.popitem(last=False)[1])
        self._sessions[session_id] = session
        return session

    def begin(self, session: Session, hook_input: Mapping[str, Any]) -> ObservedClaudeRun:
        """Begin a run: of the session's agent, or of a subagent."""
        asyncio.get_running_loop()  # raises in an event loop of another kind
        agent_id, agent_type = hook_input.get("agent_id", MAIN), hook_input.get("agent_type")
        context: dict[str, Any] = {"session_id": hook_input["session_id"]}
        if agent_id:
            context["agent_id"] = agent_type
        predictor = None if agent_id else session.predictor
        limits = self._limits.get(str(agent_type), UNLIMITED) if agent_id else UNLIMITED

        def offered(mode: str | None) -> Mapping[str, object]:
            mode = limits.mode or mode or session.mode
            return {
                name: hints
                for server in self.servers
                for name, hints in server.hints.items()
                if self._permissions.allow(name, mode) and limits.allow(name)
            }

        run = self._setup.run({}, context, predictor=predictor)
        observed = ObservedClaudeRun(
            run,
            hook_input.get("prompt_id"),
            offered,
            self._make_call,
            self._setup.speculator.may_start,
        )
        session.runs[agent_id] = observed
        self._active.add(session)
        return observed

    async def _make_call(self, tool: str, arguments: Mapping[str, object]) -> Any:
        server = next(each for each in self.servers if tool in each.hints)
        return await server.make_call(tool, arguments)

    def made(self, call: RequestedCall) -> StartedCall[Any] | None:
        """Return the guessed call that answers a call which a server makes now."""
        found = self._runs_of_calls.get(call.id)
        if found is None:
            return None
        session, run = found
        session.connections.add(connection.get())
        return run.made(call)

    def cancelled(self, call_id: str) -> None:
        """Record that a call was cancelled. Claude Code has no hook for interrupts."""
        found = self._runs_of_calls.get(call_id)
        if found is None:
            return
        session, run = found
        run.ended(call_id, "the call was cancelled", error=True)
        turn = run.left()
        loop = asyncio.get_running_loop()

        def left() -> None:
            for agent_id in [name for name, each in session.runs.items() if each is run]:
                if turn is not None and run.calls and run.left() == turn:
                    self.end(session, agent_id, "aborted")

        loop.call_later(LEFT_S, left)

    def connected(self, connection: object) -> None:
        """Add a connection of Claude Code."""
        self._connections.add(connection)

    def disconnected(self, connection: object) -> None:
        """Forget a closed connection, and end the runs of its session.

        Where no connection is left, no run is under way.
        """
        self._connections.discard(connection)
        for session in list(self._active):
            if connection in session.connections or not self._connections:
                session.connections.discard(connection)
                self._end_all(session)

    def _end_all(self, session: Session) -> None:
        for agent_id in list(session.runs):
            self.end(session, agent_id, "aborted")

    def end(
        self, session: Session, agent_id: str, outcome: Outcome, response: str | None = None
    ) -> None:
        """End a run, if it is under way. `agent_id`: of the subagent, or `MAIN`."""
        run = session.runs.pop(agent_id, None)
        if not session.runs:
            self._active.discard(session)
        if run is not None:
            self.forget_calls(run)
            run.finished(outcome, response)

    def requested(self, session: Session, run: ObservedClaudeRun, call: RequestedCall) -> None:
        """Add a call to a run."""
        run.requested(call)
        self._runs_of_calls[call.id] = session, run

    def forget_calls(self, run: ObservedClaudeRun) -> None:
        """Forget the calls of a run's turn."""
        for call_id in run.calls:
            self._runs_of_calls.pop(call_id, None)
