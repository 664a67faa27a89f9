"""Results of MCP tools that are marked as errors: the SDK passes on their text alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_failed: ContextVar[list[str] | None] = ContextVar("headstart_mcp_failed", default=None)


@contextmanager
def failed_mcp_calls() -> Iterator[list[str]]:
    """Collect the names of the MCP tools whose calls fail within the block."""
    failed: list[str] = []
    token = _failed.set(failed)
    try:
        yield failed
    finally:
        _failed.reset(token)


class ErrorReportingServer:
    """An MCP server of the SDK that also reports results with `is_error` to `failed_mcp_calls`."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def __getattr__(self, name: str) -> Any:
        """Return what the server has."""
        if name == "_server":  # of a copy that is not made yet
            raise AttributeError(name)
        return getattr(self._server, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """That of the server, for `isinstance`."""
        return type(self._server)

    async def call_tool(self, tool_name: str, *arguments: Any, **more: Any) -> Any:
        """Call a tool."""
        result = await self._server.call_tool(tool_name, *arguments, **more)
        failed = _failed.get()
        if failed is not None and _is_error(result):
            failed.append(tool_name)
        return result


def _is_error(result: object) -> bool:
    return any(getattr(result, name, None) is True for name in ("is_error", "isError"))
