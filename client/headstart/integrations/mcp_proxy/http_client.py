"""How the proxy reaches a server over HTTP."""

from __future__ import annotations

import logging
from typing import Any, Final

import httpx2
from mcp_types import CONNECTION_CLOSED

TIMEOUT: Final = httpx2.Timeout(30.0, read=None)
"""Of requests. Tools take as long as they take, and streams of events stay open."""
_LOG: Final = logging.getLogger(__name__)


class ReportingClient(httpx2.AsyncClient):  # type: ignore[misc]
    """An HTTP client that answers a request with an error where the server cannot be reached.

    An exception would end the connection, and all requests of the client with it.
    """

    async def send(self, request: Any, **options: Any) -> Any:
        """Send a request."""
        try:
            return await super().send(request, **options)
        except httpx2.TransportError as error:
            _LOG.warning("the MCP server cannot be reached: %r", error)
            problem = {"code": CONNECTION_CLOSED, "message": "the MCP server cannot be reached"}
            body = {"jsonrpc": "2.0", "id": None, "error": problem}
            return httpx2.Response(502, json=body, request=request)
