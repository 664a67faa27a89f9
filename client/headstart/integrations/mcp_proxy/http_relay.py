"""Passes HTTP requests to the server and its responses back, chunk by chunk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import httpx2
import orjson
from mcp_types import CONNECTION_CLOSED
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from headstart.integrations.mcp_proxy.http_identity import HOP_BY_HOP, passed_headers
from headstart.integrations.mcp_proxy.http_messages import MessageReader, Read

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)


class ClientGone(Exception):
    """The client has closed its connection."""


class HttpRelay:
    """The server behind the proxy. `more`: headers that requests have unless clients set them."""

    def __init__(self, client: httpx2.AsyncClient, url: str, more: Mapping[str, str]) -> None:
        self._client, self._url, self._more = client, url, more

    async def passed(
        self,
        request: Request,
        body: bytes,
        request_id: object = None,
        read: Read = lambda _message: None,
        ended: Callable[[int | None, bool], None] = lambda _status, _whole: None,
    ) -> Response:
        """Pass a request, and return its response as a stream.

        Args:
            request: Of the client.
            body: Of the request.
            request_id: Of the JSON-RPC request, for an error of the proxy.
            read: Called for each message of the response.
            ended: Called once, with the status (None: the server cannot be reached), and whether
                the whole body has passed.
        """
        url = httpx2.URL(self._url).copy_with(query=request.url.query.encode() or None)
        headers = passed_headers(request.headers.items(), self._more)
        outgoing = self._client.build_request(
            request.method, url if request.url.query else self._url, headers=headers, content=body
        )
        try:
            sending = self._client.send(outgoing, stream=True)
            response = await unless_gone(request.receive, sending)
        except httpx2.HTTPError as error:
            ended(None, False)
            _LOG.warning("the MCP server cannot be reached: %r", error)
            return error_response(request_id, 502, "the MCP server cannot be reached")
        except BaseException:
            ended(None, False)
            raise
        return _PassedResponse(response, read, ended)


class _PassedResponse(StreamingResponse):  # type: ignore[misc]
    """The server's response as it comes. It is closed as soon as the client has gone."""

    def __init__(
        self, response: httpx2.Response, read: Read, ended: Callable[[int | None, bool], None]
    ) -> None:
        super().__init__(self._chunks(), response.status_code)
        self.raw_headers = [
            (name.lower(), value)
            for name, value in response.headers.raw
            if name.lower() == b"content-length" or name.lower().decode("latin-1") not in HOP_BY_HOP
        ]
        self._response, self._ended, self._whole = response, ended, False
        self._reader = MessageReader(response.headers.get("content-type", ""), read)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        try:
            await unless_gone(receive, self.stream_response(send))
        except ClientGone:
            _LOG.debug("the client has gone before the end of a response")
        finally:
            self._ended(self.status_code, self._whole)
            await self._response.aclose()

    async def _chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._response.aiter_raw():
            self._reader.feed(chunk)
            yield chunk
        self._reader.end()
        self._whole = True


async def unless_gone(receive: Receive, work: Awaitable[T]) -> T:
    """Return what `work` returns; cancel it if the client goes first. Raises `ClientGone`."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        for task in (working, gone):
            task.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return


def error_response(request_id: object, status: int, reason: str) -> Response:
    """Return a JSON-RPC error of the proxy itself."""
    valid = request_id if isinstance(request_id, str | int) else None
    error = {"code": CONNECTION_CLOSED, "message": reason}
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": valid, "error": error}
    return Response(orjson.dumps(body), status, media_type="application/json")
