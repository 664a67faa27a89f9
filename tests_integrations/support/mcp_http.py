"""The server and the proxy over HTTP, each at a free port of this machine."""

from __future__ import annotations

import argparse
import asyncio
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn
from mcp_programs import SERVER, Notes, environment
from scripted import wait_until

from headstart.integrations.mcp_proxy.http_listener import application
from headstart.integrations.mcp_proxy.options import Upstream
from headstart.integrations.mcp_proxy.proxied_session import ProxyTimes
from headstart.integrations.setup import SpeculationSetup

_RESERVED: list[socket.socket] = []
"""Bound and not listening, while the process lives: the kernel gives their ports to no other socket
that asks for a free one, and a server can still bind them."""


def free_port() -> int:
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the servers do
    reserved.bind(("127.0.0.1", 0))
    _RESERVED.append(reserved)
    return int(reserved.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def http_server(notes: Notes) -> Iterator[str]:
    """Run the server in a process; give its URL."""
    port = free_port()
    process = subprocess.Popen(
        [*SERVER, str(port)], env=environment(notes), stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: listens(port))
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[int]:
    """Serve an application in this loop; give its port."""
    port = free_port()
    config = uvicorn.Config(
        app, "127.0.0.1", port, log_config=None, access_log=False, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve())
    while not server.started:  # noqa: ASYNC110 - there is no event of it
        await asyncio.sleep(0.005)
    try:
        yield port
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def http_proxy(setup: SpeculationSetup, url: str, **given: Any) -> AsyncIterator[str]:
    """Run the proxy in this loop; give its URL."""
    options: dict[str, Any] = {
        "host": "127.0.0.1", "trust_annotations": False, "session_header": None,
        "single_client": False, "ignore": [], **given,
    }  # fmt: skip
    times = options.pop("times", ProxyTimes())
    headers = options.pop("headers", {})
    app = application(setup, times, Upstream([], url, headers), argparse.Namespace(**options))
    async with listening(app) as port:
        yield f"http://127.0.0.1:{port}/mcp"
