"""Guessed calls to a server over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

import httpx2
import orjson
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_NAME_HEADER, encode_header_value

from headstart.integrations.mcp_proxy.cancellations import CANCELLED, Cancellations, cancellation
from headstart.integrations.mcp_proxy.http_identity import header_bytes
from headstart.integrations.mcp_proxy.http_messages import MessageReader
from headstart.integrations.mcp_proxy.known_tools import KnownTools
from headstart.integrations.mcp_proxy.proxied_session import Origin
from headstart.integrations.mcp_proxy.tool_calls import (
    CALL,
    GuessedCallError,
    complete_result,
    guessed_params,
)

LARGEST_RESULT: Final = 16 * 1024 * 1024
"""Bytes of the result of a guessed call that are kept for the call it may answer."""


class HttpGuesses:
    """Makes guessed calls with the headers of the last call of their run."""

    def __init__(self, client: httpx2.AsyncClient, url: str, more: Mapping[str, str]) -> None:
        self._client, self._url, self._more = client, url, more
        self._cancellations = Cancellations()

    async def make(
        self, tools: KnownTools, origin: Origin, tool: str, arguments: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Make a guessed call, and return its result. The server is notified if it is cancelled.

        Raises `GuessedCallError` where there is no result that could answer a call, and
        `httpx2.HTTPError`.
        """
        request_id = f"headstart-guess-{uuid4()}"
        body = {
            "jsonrpc": "2.0", "id": request_id, "method": CALL,
            "params": guessed_params(tool, arguments, origin.meta),
        }  # fmt: skip
        headers = {**self._more, **origin.headers, "accept-encoding": "identity"}
        modern = MCP_METHOD_HEADER in headers
        if modern:
            headers[MCP_NAME_HEADER] = encode_header_value(tool)
            headers |= tools.headers(tool, arguments)
        try:
            answer = await self._post(body, headers, request_id)
        except asyncio.CancelledError:
            if not modern:  # there, closing the response is the cancellation
                self._cancel(request_id, headers)
            raise
        if answer.get("method") is not None:  # the server asks the client for something
            tools.forbid(tool)
            self._cancel(request_id, headers)
            raise GuessedCallError(f"the server asks for {answer['method']}")
        result = answer.get("result")
        if not isinstance(result, Mapping):
            raise GuessedCallError(f"the server answered {str(answer.get('error'))[:200]}")
        return complete_result(result)

    async def _post(
        self, body: Mapping[str, Any], headers: Mapping[str, str], request_id: str
    ) -> Mapping[str, Any]:
        """Return the first request or response of the server."""
        found: list[Mapping[str, Any]] = []

        def read(message: Mapping[str, Any]) -> None:
            if message.get("id") == request_id or ("id" in message and "method" in message):
                found.append(message)

        content = orjson.dumps(body)
        async with self._client.stream(
            "POST", self._url, content=content, headers=header_bytes(headers.items())
        ) as response:
            kind = response.headers.get("content-type", "")
            reader = MessageReader(kind, read, LARGEST_RESULT)
            async for chunk in response.aiter_raw():
                reader.feed(chunk)
                if found or reader.unread:
                    break
            else:
                reader.end()
        if not found:
            raise GuessedCallError(f"no result in the response, of status {response.status_code}")
        return found[0]

    def _cancel(self, request_id: str, headers: Mapping[str, str]) -> None:
        body = {"jsonrpc": "2.0", "method": CANCELLED, "params": cancellation(request_id)}
        self._cancellations.send(
            self._client.post(
                self._url, content=orjson.dumps(body), headers=header_bytes(headers.items())
            )
        )
