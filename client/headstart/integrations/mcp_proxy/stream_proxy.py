"""The proxy of one client over two connections of the SDK: passes messages, observes calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine
from typing import Any, Final, NamedTuple

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from headstart.events.constructors import Outcome
from headstart.integrations.mcp_proxy.cancellations import CANCELLED
from headstart.integrations.mcp_proxy.guessed_calls import GuessedCalls
from headstart.integrations.mcp_proxy.http_stamps import HttpStamps
from headstart.integrations.mcp_proxy.known_tools import KnownTools
from headstart.integrations.mcp_proxy.observed_call import ObservedCall
from headstart.integrations.mcp_proxy.proxied_session import Origin, ProxiedSession, ProxyTimes
from headstart.integrations.mcp_proxy.tool_calls import CALL, LIST, steady_meta, tool_request
from headstart.integrations.mcp_proxy.unreadable_lines import message_in, request_id_in
from headstart.integrations.setup import SpeculationSetup
from headstart.speculation.guessed_call import GuessFailed

ASKS_USER: Final = ("elicitation/create", "sampling/createMessage")
"""Requests of a server that the client's user, or model, sees."""
_CLOSED: Final = (anyio.ClosedResourceError, anyio.BrokenResourceError)
_LOG: Final = logging.getLogger(__name__)


class _Forwarded(NamedTuple):
    """A request of the client that the server is to answer."""

    request: JSONRPCRequest
    call: ObservedCall | None


class StreamProxy:
    """Passes messages between a client and a server, both as the SDK's streams of messages.

    `ignored`: keys of `_meta` that do not change what a call returns. `stamped`: the server is
    reached over HTTP.
    """

    def __init__(
        self,
        setup: SpeculationSetup,
        tools: KnownTools,
        times: ProxyTimes = ProxyTimes(),  # noqa: B008 - immutable
        ignored: Collection[str] = (),
        *,
        stamped: bool = False,
    ) -> None:
        self._tools, self._ignored = tools, ignored
        self._stamps = HttpStamps(tools) if stamped else None
        self._guesses = GuessedCalls(self._to_server)
        self.session = ProxiedSession(setup, tools, self._guesses.make, times)
        self._forwarded: dict[RequestId, _Forwarded] = {}
        self._answering: dict[RequestId, asyncio.Task[None]] = {}
        self._client: Any = None
        self._server: Any = None

    async def run(self, client: tuple[Any, Any], server: tuple[Any, Any]) -> bool:
        """Pass messages until one side ends; return whether it was the client.

        `client`, `server`: each a stream to read, and one to write.
        """
        self._client, self._server = client[1], server[1]
        from_client = asyncio.ensure_future(self._from_client(client[0]))
        from_server = asyncio.ensure_future(self._from_server(server[0]))
        outcome: Outcome = "aborted"
        try:
            await asyncio.wait((from_client, from_server), return_when=asyncio.FIRST_COMPLETED)
            # a write to the server that fails ends the reading from the client, too
            by_client = from_client.done() and from_client.exception() is None
            outcome = "success" if by_client else "failure"
        finally:
            unanswered = list(self._answering)
            await _cancelled(from_client, from_server, *self._answering.values())
            self.session.close(outcome)
        if not by_client:
            self._guesses.end("the server has ended")
            for request_id in dict.fromkeys((*self._forwarded, *unanswered)):
                await self._refuse(request_id, CONNECTION_CLOSED, "the MCP server has ended")
        return by_client

    async def _from_client(self, stream: Any) -> None:
        async for item in stream:
            message = message_in(item) if isinstance(item, Exception) else item.message
            if message is None:
                await self._refuse(request_id_in(item), PARSE_ERROR, "this is no JSON-RPC message")
            elif isinstance(message, JSONRPCRequest):
                await self._request(message)
            elif not self._cancels_answer(message):
                await self._to_server(message)

    async def _request(self, message: JSONRPCRequest) -> None:
        asked = tool_request(message.params) if message.method == CALL else None
        call = None
        if asked is not None:
            origin = Origin(steady_meta(asked.meta, self._ignored))
            call = self.session.requested(asked, origin)
        if call is not None and call.match is not None:
            self._answering[message.id] = asyncio.ensure_future(self._answer(message, call))
            return
        await self._forward(message, call)

    async def _forward(self, message: JSONRPCRequest, call: ObservedCall | None) -> None:
        replaced = self._forwarded.pop(message.id, None)
        if replaced is not None and replaced.call is not None:  # the client used an id twice
            self.session.cancelled(replaced.call)
        self._forwarded[message.id] = _Forwarded(message, call)
        await self._to_server(message)

    async def _answer(self, message: JSONRPCRequest, call: ObservedCall) -> None:
        """Answer a call with the result of a guessed one, or make it."""
        assert call.match is not None
        try:
            try:
                result = await call.match.result()
            except GuessFailed as failed:
                _LOG.debug("the call is made: %s", failed)
                await self._forward(message, call)
                return
            answer = JSONRPCResponse(jsonrpc="2.0", id=message.id, result=result)
            await self._to_client(answer)
            self.session.finished(call, result)
        except asyncio.CancelledError:
            self.session.cancelled(call)
            raise
        except _CLOSED:
            self.session.cancelled(call)
        finally:
            self._answering.pop(message.id, None)

    def _cancels_answer(self, message: JSONRPCMessage) -> bool:
        """Handle a cancellation; return whether it was of a call that a guess is to answer."""
        if not isinstance(message, JSONRPCNotification):
            return False
        if message.method != CANCELLED:
            return False
        request_id = (message.params or {}).get("requestId")
        if not isinstance(request_id, str | int):
            return False
        answering = self._answering.get(request_id)
        if answering is not None:
            answering.cancel()
            return True
        forwarded = self._forwarded.pop(request_id, None)
        if forwarded is not None and forwarded.call is not None:
            self.session.cancelled(forwarded.call)
        return False

    async def _from_server(self, stream: Any) -> None:
        async for item in stream:
            message = message_in(item) if isinstance(item, Exception) else item.message
            if message is None:
                await self._unreadable(item)
            elif isinstance(message, JSONRPCResponse | JSONRPCError):
                await self._response(message)
            elif not await self._refused(message):
                if message.method == "notifications/tools/list_changed":
                    self._tools.changed()
                    self.session.distrust()
                await self._to_client(message)

    async def _unreadable(self, line: Exception) -> None:
        """Answer the request to which the server has sent a line that cannot be read."""
        request_id = request_id_in(line)
        if request_id is None:
            _LOG.warning("the server sent a line that is no JSON-RPC message; it is dropped")
            return
        error = ErrorData(code=INTERNAL_ERROR, message="the server's answer cannot be read")
        await self._response(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))

    async def _response(self, message: JSONRPCResponse | JSONRPCError) -> None:
        if self._guesses.take(message):
            return
        forwarded = None if message.id is None else self._forwarded.pop(message.id, None)
        if forwarded is not None and isinstance(message, JSONRPCResponse):
            if forwarded.request.method == LIST:
                self._tools.listed(forwarded.request.params, message.result)
            elif forwarded.request.method == "initialize" and self._stamps is not None:
                self._stamps.initialized(message)
        await self._to_client(message)
        if forwarded is None or forwarded.call is None:
            return
        if isinstance(message, JSONRPCResponse):
            self.session.finished(forwarded.call, message.result)
        else:
            self.session.finished(forwarded.call, None, message.error.message)

    async def _refused(self, message: JSONRPCRequest | JSONRPCNotification) -> bool:
        """Refuse what the server asks the user, if a guess was what made it ask."""
        tools = self._guesses.tools
        if not isinstance(message, JSONRPCRequest) or message.method not in ASKS_USER or not tools:
            return False
        for tool in tools:
            self._tools.forbid(tool)
        if any(each.call is not None for each in self._forwarded.values()):
            return False  # it may be for a call that the client made
        error = ErrorData(code=INTERNAL_ERROR, message="the call was started early: make it again")
        await self._to_server(JSONRPCError(jsonrpc="2.0", id=message.id, error=error))
        return True

    async def _refuse(self, request_id: RequestId | None, code: int, reason: str) -> None:
        error = ErrorData(code=code, message=reason)
        try:
            await self._to_client(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))
        except _CLOSED:
            _LOG.debug("the client has gone before it got an error: %s", reason)

    async def _to_client(self, message: JSONRPCMessage) -> None:
        await self._client.send(SessionMessage(message))

    async def _to_server(self, message: JSONRPCMessage) -> None:
        metadata = None if self._stamps is None else self._stamps.metadata(message)
        await self._server.send(SessionMessage(message, metadata))


async def _cancelled(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    ended: Coroutine[Any, Any, Any] = asyncio.gather(*tasks, return_exceptions=True)  # type: ignore[assignment]
    for error in await ended:
        if isinstance(error, Exception) and not isinstance(error, _CLOSED):
            _LOG.error("the proxy has failed", exc_info=error)
