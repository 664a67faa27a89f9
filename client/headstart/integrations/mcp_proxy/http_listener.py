"""Listens for clients over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ipaddress
import signal
from collections.abc import AsyncIterator
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Final

import httpx2
import uvicorn
from mcp.server.transport_security import (
    RequestBodyLimitMiddleware,
    TransportSecurityMiddleware,
    TransportSecuritySettings,
)
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headstart.integrations.mcp_proxy.http_client import TIMEOUT
from headstart.integrations.mcp_proxy.http_guesses import HttpGuesses
from headstart.integrations.mcp_proxy.http_proxy import HttpProxy
from headstart.integrations.mcp_proxy.http_relay import ClientGone, HttpRelay
from headstart.integrations.mcp_proxy.options import Upstream
from headstart.integrations.mcp_proxy.proxied_session import ProxyTimes
from headstart.integrations.setup import SpeculationSetup

LARGEST_REQUEST: Final = 64 * 1024 * 1024
"""Bytes of a request."""
GRACE_S: Final = 2
"""Seconds that responses have to end, at the end of the process: streams of events do not end."""


def listen(
    setup: SpeculationSetup, times: ProxyTimes, upstream: Upstream, options: argparse.Namespace
) -> int:
    """Serve clients until the process gets a signal to stop; return the exit code."""
    app = application(setup, times, upstream, options)
    config = uvicorn.Config(
        app, options.host, options.port, log_config=None, access_log=False,
        timeout_graceful_shutdown=GRACE_S,
    )  # fmt: skip
    server = uvicorn.Server(config)

    def stop(*_: object) -> None:
        server.should_exit = True

    for each in (signal.SIGTERM, signal.SIGINT):  # at its end, uvicorn raises them once more
        signal.signal(each, stop)
    server.run()
    return 0 if server.started else 1


def application(
    setup: SpeculationSetup, times: ProxyTimes, upstream: Upstream, options: argparse.Namespace
) -> Starlette:
    """Return the proxy as an ASGI application, at the path of the server's URL.

    Browsers of other sites cannot reach it on a loopback address (DNS rebinding).
    """
    url = str(upstream.url)
    security = TransportSecurityMiddleware(_security(options.host))
    proxies: list[HttpProxy] = []

    async def answer(request: Request) -> Response:
        refused = await security.validate_request(request)
        if refused is not None:
            return refused
        try:
            return await proxies[0].answer(request)
        except ClientGone:
            return Response(status_code=499)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:  # noqa: ARG001 - Starlette gives it
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
        none_kept = CookieJar(DefaultCookiePolicy(allowed_domains=()))  # each client has its own
        async with httpx2.AsyncClient(timeout=TIMEOUT, limits=limits, cookies=none_kept) as client:
            relay = HttpRelay(client, url, upstream.headers)
            guesses = HttpGuesses(client, url, upstream.headers)
            proxies.append(
                HttpProxy(
                    setup, relay, guesses, times,
                    trust_annotations=options.trust_annotations,
                    session_header=options.session_header,
                    single_client=options.single_client,
                    ignored=options.ignore,
                )
            )  # fmt: skip
            yield
            proxies.pop().close()
            await setup.close()
            await asyncio.sleep(0)

    path = httpx2.URL(url).path
    route = Route(path, answer, methods=["GET", "POST", "DELETE"])
    limit = Middleware(RequestBodyLimitMiddleware, max_body_size=LARGEST_REQUEST)
    return Starlette(routes=[route], middleware=[limit], lifespan=lifespan)


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _security(host: str) -> TransportSecuritySettings:
    if not is_loopback(host):
        return TransportSecuritySettings(enable_dns_rebinding_protection=False)
    names = ["127.0.0.1", "localhost", "[::1]"]
    return TransportSecuritySettings(
        allowed_hosts=[f"{name}:*" for name in names],
        allowed_origins=[f"http://{name}:*" for name in names],
    )
