"""The tools that a server lists: which of them may be guessed, by their annotations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcp.shared.inbound import mcp_param_headers, x_mcp_header_map

_MOST: Final = 10_000
"""Most tools of a listing that are looked at."""


class KnownTools:
    """The tools that were listed to the client. Without a listing none is guessed.

    `trust_annotations`: the operator trusts the server, so that `readOnlyHint` allows guesses. In
    any case `destructiveHint`, and whatever asks for an approval, forbids them.
    """

    def __init__(self, *, trust_annotations: bool = False) -> None:
        self._trusted = trust_annotations
        self._hints: dict[str, object] = {}
        self._headers: dict[str, Mapping[tuple[str, ...], str]] = {}
        self._twice: set[str] = set()
        self._forbidden: dict[str, object] = {}

    @property
    def hints(self) -> Mapping[str, object]:
        """The hints of each tool that may be guessed, for a run of an agent; not to be changed."""
        return self._hints

    def listed(self, params: object, result: Mapping[str, Any]) -> None:
        """Read one page of a listing. `params`: of the request; the first page has no cursor."""
        continued = isinstance(params, Mapping) and params.get("cursor") is not None
        hints = dict(self._hints) if continued else {}
        if not continued:
            self._headers, self._twice = {}, set()
        tools = result.get("tools")
        for tool in tools[:_MOST] if isinstance(tools, list) else ():
            name = tool.get("name") if isinstance(tool, Mapping) else None
            if not isinstance(name, str) or not name:
                continue
            if name in self._headers:  # which of both is called is not known
                self._twice.add(name)
            self._headers[name] = x_mcp_header_map(tool.get("inputSchema"))
            if not _is_task(tool):
                hints[name] = self._hints_of(tool)
        for name in self._twice:
            hints.pop(name, None)
        self._hints = {**hints, **self._forbidden}

    def changed(self) -> None:
        """Forget the tools until they are listed again."""
        self._hints = {}

    def forbid(self, tool: str) -> None:
        """Never guess a tool again: it asked the user for something."""
        self._forbidden[tool] = {"requires_user_input": True}
        self._hints = {**self._hints, **self._forbidden}

    def headers(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, str]:
        """Return the `Mcp-Param-*` headers that a call has over HTTP in protocol 2026-07-28."""
        named = self._headers.get(tool)
        return mcp_param_headers(named, arguments) if named else {}

    def _hints_of(self, tool: Mapping[str, Any]) -> object:
        hints = {"annotations": tool.get("annotations"), "meta": tool.get("_meta")}
        trusted = {"annotations": tool.get("annotations")} if self._trusted else {}
        return {**trusted, "extra": hints}  # in `extra` they can forbid, but not allow


def _is_task(tool: Mapping[str, Any]) -> bool:
    """Return whether a tool is only called as a task."""
    execution = tool.get("execution")
    return isinstance(execution, Mapping) and execution.get("taskSupport") == "required"
