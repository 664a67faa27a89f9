"""A client, the proxy and a server of the SDK in one event loop, joined by streams of messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
from mcp import Client
from mcp.server import Server

from headstart.integrations.mcp_proxy.stream_proxy import StreamProxy

Streams = tuple[Any, Any]


def joined() -> tuple[Streams, Streams]:
    """Return the two ends of a connection: each a stream to read, and one to write."""
    to_one, from_other = anyio.create_memory_object_stream[Any](0)
    to_other, from_one = anyio.create_memory_object_stream[Any](0)
    return (from_other, to_other), (from_one, to_one)


@asynccontextmanager
async def connected(streams: Streams) -> AsyncIterator[Streams]:
    """One end of a connection as a transport of the SDK."""
    try:
        yield streams
    finally:
        for stream in streams:
            await stream.aclose()


@asynccontextmanager
async def served(server: Server[Any]) -> AsyncIterator[Streams]:
    """Run a server; give the client's end."""
    ours, theirs = joined()
    options = server.create_initialization_options()
    serving = asyncio.ensure_future(server.run(*theirs, options))
    try:
        yield ours
    finally:
        for stream in ours:
            await stream.aclose()
        await asyncio.wait([serving])


@asynccontextmanager
async def bridged(proxy: StreamProxy, server: Server[Any]) -> AsyncIterator[Streams]:
    """Run a proxy before a server; give the client's end."""
    ours, theirs = joined()
    async with served(server) as upstream:
        running = asyncio.ensure_future(proxy.run(theirs, upstream))
        try:
            yield ours
        finally:
            for stream in ours:
                await stream.aclose()
            await asyncio.wait([running])
            for stream in theirs:
                await stream.aclose()
            running.result()


def client_of(
    transport: AbstractAsyncContextManager[Streams], mode: str = "legacy", **more: Any
) -> Client:
    """Return a client, to be entered."""
    return Client(transport, mode=mode, **more)


def listen_for(heard: list[str]) -> Any:
    """Return a handler of messages that appends the methods of notifications."""

    async def handler(message: Any) -> None:
        heard.append(str(getattr(message, "method", type(message).__name__)))

    return handler
