"""Serves one client over stdin and stdout."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NoReturn

from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server

from headstart.integrations.mcp_proxy.http_client import TIMEOUT, ReportingClient
from headstart.integrations.mcp_proxy.options import Upstream
from headstart.integrations.mcp_proxy.stream_proxy import StreamProxy
from headstart.integrations.setup import SpeculationSetup

FLUSH_S: Final = 0.2
"""Seconds for the SDK to write the last messages: it does not report when they are written."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_LOG: Final = logging.getLogger(__name__)


async def serve(
    proxy: StreamProxy, upstream: Upstream, setup: SpeculationSetup, save: Callable[[], None]
) -> int:
    """Pass messages until one side ends; return the exit code.

    It exits the process where the client still writes: the thread that reads stdin cannot be
    stopped. `save`: called at the end.
    """
    async with stdio_server() as client:
        connected = asyncio.Event()
        running = asyncio.ensure_future(_with_server(proxy, upstream, client, connected))
        loop = asyncio.get_running_loop()
        for each in _SIGNALS:
            with suppress(NotImplementedError):  # on Windows
                loop.add_signal_handler(each, running.cancel)
        by_client = False
        try:
            by_client = await running
            code = 0 if by_client else 1
        except asyncio.CancelledError:
            code = 0
        except Exception as error:
            if connected.is_set():
                _LOG.error("the proxy has failed", exc_info=error)
            else:
                _LOG.error("the MCP server cannot be started: %r", error)
            code = 1
        await setup.close()
        await asyncio.to_thread(save)
        await client[1].aclose()
        if not by_client:
            await asyncio.sleep(FLUSH_S)
            _leave(code)
    return code


async def _with_server(
    proxy: StreamProxy, upstream: Upstream, client: Any, connected: asyncio.Event
) -> bool:
    """`connected`: set as soon as there is a connection to the server."""
    if upstream.url is None:
        command, *rest = upstream.command
        server = StdioServerParameters(command=command, args=rest, env=dict(os.environ))
        async with stdio_client(server) as streams:
            connected.set()
            return await proxy.run(client, streams)
    async with (
        ReportingClient(headers=dict(upstream.headers), timeout=TIMEOUT) as http,
        streamable_http_client(upstream.url, http_client=http, max_sse_event_size=None) as streams,
    ):
        connected.set()
        return await proxy.run(client, streams)


def _leave(code: int) -> NoReturn:
    """Exit now. Events are on disk as soon as they are emitted."""
    logging.shutdown()
    os._exit(code)
