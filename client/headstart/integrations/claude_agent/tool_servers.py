"""The MCP servers in the agent's process: their tools, guessed calls of them, and answers."""

from __future__ import annotations

import asyncio
import copy
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final, Protocol

from headstart.speculation.calls import RequestedCall
from headstart.speculation.guessed_call import GuessFailed
from headstart.speculation.started_call import StartedCall

_LOG: Final = logging.getLogger(__name__)

CALL_ID: Final = "claudecode/toolUseId"
"""The key in a request's `_meta` under which Claude Code sends the id of the model's call."""
_NO_HINTS: Final[Mapping[str, object]] = {}

connection: ContextVar[object] = ContextVar("headstart_mcp_connection", default=None)
"""The connection of the server that serves the current request."""


class ToolCallers(Protocol):
    """The runs of the agent, as far as the servers report calls to them."""

    def made(self, call: RequestedCall) -> StartedCall[Any] | None:
        """Return the guessed call that answers a call that is made now."""
        ...

    def cancelled(self, call_id: str) -> None:
        """Record that a call was cancelled, as by an interrupt."""
        ...

    def connected(self, connection: object) -> None:
        """Add a connection of Claude Code."""
        ...

    def disconnected(self, connection: object) -> None:
        """Forget a closed connection, and end its session."""
        ...


class ToolServer:
    """A server of the agent's options, whose copy answers calls by guesses.

    `name`: under which the options have it. The server itself is not changed.
    """

    def __init__(self, name: str, server: Any, callers: ToolCallers) -> None:
        self._prefix = f"mcp__{_plain(name)}__"
        self._server, self._callers = server, callers
        self._names: dict[str, str] = {}
        self.hints: Mapping[str, object] = {}
        """The annotations of the tools that may be guessed, by name: those of servers that
        `create_sdk_mcp_server` has made, once Claude Code has listed them."""

    def answering(self) -> Any:
        """Return a copy of the server that answers calls."""
        copied = copy.copy(self._server)
        handlers = {"tools/list": self._list, "tools/call": self._call}

        def get_request_handler(method: str) -> Any:
            entry = self._server.get_request_handler(method)
            ours = handlers.get(method)
            if entry is None or ours is None:
                return entry

            async def handle(context: Any, params: Any) -> Any:
                return await ours(entry, context, params)

            return replace(entry, handler=handle)

        async def run(*arguments: Any, **options: Any) -> None:
            with self._connected():
                await type(copied).run(copied, *arguments, **options)

        copied.get_request_handler, copied.run = get_request_handler, run
        return copied

    @contextmanager
    def _connected(self) -> Iterator[None]:
        current = object()
        connection.set(current)  # of the task of this connection
        self._callers.connected(current)
        try:
            yield
        finally:
            self._callers.disconnected(current)

    async def _list(self, entry: Any, context: Any, params: Any) -> Any:
        result = await entry.handler(context, params)
        if self._is_of_sdk():
            tools = {f"{self._prefix}{_plain(tool.name)}": tool for tool in result.tools}
            self._names = {full: tool.name for full, tool in tools.items()}
            self.hints = {full: self._hints(full, tool) for full, tool in tools.items()}
        return result

    def _hints(self, full: str, tool: Any) -> object:
        """Return the annotations of a tool: the same object while they are equal, to read it once.

        They are listed again for each session.
        """
        known, hints = self.hints.get(full), {"annotations": tool.annotations}
        if tool.annotations is None:
            return _NO_HINTS
        return known if known == hints else hints

    def _is_of_sdk(self) -> bool:
        """Return whether calls depend on nothing but the arguments, so that a guess can be made."""
        entry = self._server.get_request_handler("tools/call")
        return entry is not None and entry.handler.__module__.startswith("claude_agent_sdk.")

    async def make_call(self, tool: str, arguments: Mapping[str, object]) -> Any:
        """Make a guessed call; a failure is in the result."""
        entry = self._server.get_request_handler("tools/call")
        given = {"name": self._names[tool], "arguments": dict(arguments)}
        return await entry.handler(None, entry.params_type.model_validate(given))

    async def _call(self, entry: Any, context: Any, params: Any) -> Any:
        call_id = (params.meta or {}).get(CALL_ID)
        if not isinstance(call_id, str):
            return await entry.handler(context, params)
        tool = f"{self._prefix}{_plain(params.name)}"
        match = self._match_of(RequestedCall(call_id, tool, params.arguments or {}))
        try:
            if match is not None:
                try:
                    return await match.result()
                except GuessFailed:
                    pass
            return await entry.handler(context, params)
        except asyncio.CancelledError:
            self._callers.cancelled(call_id)
            raise

    def _match_of(self, call: RequestedCall) -> Any:
        """Return the guessed call that answers a call; None also if that cannot be found out."""
        try:
            return self._callers.made(call)
        except Exception as error:
            _LOG.warning("a call goes on without its guess: %r", error)
            return None


def _plain(name: str) -> str:
    """Return a name as it is within `mcp__server__tool`."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)
