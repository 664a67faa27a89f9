"""Serves `/healthz`, `/readyz` and `/metrics` of a worker.

The first two answer with the worker's report and, with status 503, the reason. The metrics are in
agents/health/metrics.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Protocol

import msgspec
from aiohttp import web

from processing.worker_report import Report

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class HealthSource(Protocol):
    """The worker that is asked."""

    report: Report
    stuck: str | None

    def metrics(self) -> bytes:
        """Return its metrics, in Prometheus's text format."""
        ...


class AddressTaken(RuntimeError):
    """The address for health checks cannot be listened at."""

    def __init__(self, address: str, reason: object) -> None:
        super().__init__(
            f"cannot answer health checks at {address} ({reason}); set a free address: "
            "--health HOST:PORT or HEADSTART_HEALTH"
        )


@asynccontextmanager
async def serving(address: str, source: HealthSource) -> AsyncIterator[None]:
    """Serve at `address`, host:port, in this event loop; an empty address serves nothing.

    Raises `AddressTaken`.
    """
    if not address:
        yield
        return

    async def healthz(_request: web.Request) -> web.Response:
        return _answer(source.report, source.stuck)

    async def readyz(_request: web.Request) -> web.Response:
        return _answer(source.report, source.stuck or unready(source.report))

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=source.metrics(), headers={"Content-Type": METRICS_TYPE})

    app = web.Application()
    routes = {"/healthz": healthz, "/readyz": readyz, "/metrics": metrics}
    app.add_routes([web.get(path, handler) for path, handler in routes.items()])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    host, _, port = address.rpartition(":")
    try:
        try:
            await web.TCPSite(runner, host.strip("[]"), int(port)).start()
        except OSError as error:
            raise AddressTaken(address, error) from error
        yield
    finally:
        await runner.cleanup()


def unready(report: Report) -> str | None:
    """Return why a worker is not ready; None if it is."""
    if report.waiting:
        return f"it {report.waiting}"
    if report.away:
        return f"no answer from {', '.join(report.away)}"
    if not report.ready:
        return "its partitions are not yet assigned and restored"
    return None


def _answer(report: Report, why: str | None) -> web.Response:
    body = msgspec.json.encode({"ok": why is None, "why": why, **msgspec.structs.asdict(report)})
    return web.Response(
        body=body, status=503 if why else 200, content_type="application/json", charset="utf-8"
    )
