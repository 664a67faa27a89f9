"""Handles the hooks of Claude Code, by their events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from headstart.integrations.claude_agent import hook_inputs
from headstart.integrations.claude_agent.sessions import MAIN, ObservedSessions, Session

_AGENT_TOOLS: Final = ("Agent", "Task")
"""The tools that start subagents."""

_LOG: Final = logging.getLogger(__name__)


class ClaudeHooks:
    """Reports to the sessions what the hooks observe, and decides nothing.

    Claude Code reports each call when it begins (`PreToolUse`), while the model may still request
    others, and all calls of a turn when they have ended (`PostToolBatch`). A message of the user
    that comes while the agent works has the `prompt_id` of the first one.
    """

    def __init__(self, sessions: ObservedSessions) -> None:
        self._sessions = sessions
        self.events: Mapping[str, Callable[[Session, Mapping[str, Any]], None]] = {
            "UserPromptSubmit": self._asked,
            "PreToolUse": self._requested,
            "PostToolUse": self._ended,
            "PostToolUseFailure": self._failed,
            "PostToolBatch": self._turn_ended,
            "Stop": self._stopped,
            "StopFailure": self._model_failed,
            "SubagentStart": self._subagent_started,
            "SubagentStop": self._subagent_stopped,
        }

    async def observe(self, hook_input: Any, *_: Any) -> dict[str, Any]:
        """Handle the input of a hook."""
        try:
            session = self._sessions.of(hook_input["session_id"])
            if "agent_id" not in hook_input:
                session.mode = hook_input.get("permission_mode", session.mode)
            self.events[hook_input["hook_event_name"]](session, hook_input)
        except Exception as error:
            _LOG.warning("a hook of the agent was not observed: %r", error)
        return {}

    def _asked(self, session: Session, hook_input: Mapping[str, Any]) -> None:
        run, prompt_id = session.runs.get(MAIN), hook_input.get("prompt_id")
        if run is not None and (prompt_id is None or run.prompt_id != prompt_id):
            self._sessions.end(session, MAIN, "aborted")  # it was interrupted
            run = None
        run = run or self._sessions.begin(session, hook_input)
        run.asked(hook_input["prompt"], hook_input.get("permission_mode"))

    def _requested(self, session: Session, hook_input: Mapping[str, Any]) -> None:
        """An agent that goes on after its end, as where a `Stop` was blocked, begins a new run."""
        run = session.run_of(hook_input) or self._sessions.begin(session, hook_input)
        call = hook_inputs.call_in(hook_input)
        self._sessions.requested(session, run, call)
        if call.tool in _AGENT_TOOLS and isinstance(call.arguments.get("prompt"), str):
            session.prompts.append((call.arguments.get("subagent_type"), call.arguments["prompt"]))

    def _ended(self, session: Session, hook_input: Mapping[str, Any]) -> None:
        response, took_ms = hook_input.get("tool_response"), hook_input.get("duration_ms")
        error = hook_inputs.is_error(response)
        if (run := session.run_of(hook_input)) is not None:
            run.ended(hook_input["tool_use_id"], response, error=error, took_ms=took_ms)

    def _failed(self, session: Session, hook_input: Mapping[str, Any]) -> None:
        took_ms = hook_input.get("duration_ms")
        if (run := session.run_of(hook_input)) is not None:
            run.ended(
                hook_input["tool_use_id"], hook_input.get("error"), error=True, took_ms=took_ms
            )

    def _turn_ended(self, session: Session, hook_input: Mapping[str, Any]) -> None:
        if "agent_id" not in hook_input:
            session.prompts.clear()  # those of subagents that were not started
        if (run := session.run_of(hook_input)) is not None:
            self._sessions.forget_calls(run)
            run.turn_ended(hook_inputs.calls_in(hook_input), hook_inputs.responses_in(hook_input))
            run.model_called(hook_input.get("permission_mode"))

    def _stopped(self, session: Session, hook_input: Mapping[str, Any]) -> None:
        self._sessions.end(session, MAIN, "success", hook_input.get("last_assistant_message"))

    def _model_failed(self, session: Session, hook_input: Mapping[str, Any]) -> None:
        agent_id = hook_input.get("agent_id", MAIN)
        self._sessions.end(session, agent_id, "failure", hook_input.get("last_assistant_message"))

    def _subagent_started(self, session: Session, hook_input: Mapping[str, Any]) -> None:
        kind, run = hook_input.get("agent_type"), self._sessions.begin(session, hook_input)
        found = next((each for each in session.prompts if each[0] in (kind, None)), None)
        if found is not None:
            session.prompts.remove(found)
            run.run.user(found[1])
        run.model_called(hook_input.get("permission_mode"))

    def _subagent_stopped(self, session: Session, hook_input: Mapping[str, Any]) -> None:
        response = hook_input.get("last_assistant_message")
        self._sessions.end(session, hook_input["agent_id"], "success", response)
