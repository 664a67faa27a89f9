"""Guessed calls over a connection that requests of the client share: their ids, and their ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any
from uuid import uuid4

from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from headstart.integrations.mcp_proxy.cancellations import CANCELLED, Cancellations, cancellation
from headstart.integrations.mcp_proxy.proxied_session import Origin
from headstart.integrations.mcp_proxy.tool_calls import (
    CALL,
    GuessedCallError,
    complete_result,
    guessed_params,
)

Send = Callable[[JSONRPCRequest | JSONRPCNotification], Coroutine[Any, Any, None]]
"""Sends a message to the server."""


class GuessedCalls:
    """The guessed calls under way. Their ids begin in a way that no client can know."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._prefix = f"headstart-guess-{uuid4()}-"
        self._count = 0
        self._waiting: dict[str, tuple[str, asyncio.Future[Mapping[str, Any]]]] = {}
        self._cancellations = Cancellations()

    @property
    def tools(self) -> list[str]:
        """The tools of the guessed calls that are under way."""
        return [tool for tool, _ in self._waiting.values()]

    async def make(
        self, origin: Origin, tool: str, arguments: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Make a guessed call, and return its result. The server is notified if it is cancelled.

        Raises `GuessedCallError` where there is no result that could answer a call.
        """
        self._count += 1
        request_id = f"{self._prefix}{self._count}"
        result: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = tool, result
        params = guessed_params(tool, arguments, origin.meta)
        try:
            await self._send(
                JSONRPCRequest(jsonrpc="2.0", id=request_id, method=CALL, params=params)
            )
            return complete_result(await result)
        except asyncio.CancelledError:
            self._cancel(request_id)
            raise
        finally:
            del self._waiting[request_id]

    def take(self, message: JSONRPCResponse | JSONRPCError) -> bool:
        """Handle a response; False if it is of no guessed call. Late ones are dropped."""
        if not isinstance(message.id, str) or not message.id.startswith(self._prefix):
            return False
        _, result = self._waiting.get(message.id, ("", None))
        if result is not None and not result.done():
            if isinstance(message, JSONRPCResponse):
                result.set_result(message.result)
            else:
                result.set_exception(GuessedCallError(message.error.message))
        return True

    def end(self, reason: str) -> None:
        """Let all fail: the server is gone."""
        for _, result in self._waiting.values():
            if not result.done():
                result.set_exception(GuessedCallError(reason))

    def _cancel(self, request_id: str) -> None:
        message = JSONRPCNotification(
            jsonrpc="2.0", method=CANCELLED, params=dict(cancellation(request_id))
        )
        self._cancellations.send(self._send(message))
