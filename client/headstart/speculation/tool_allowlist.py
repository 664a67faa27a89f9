"""Which tools may run on a guess: only those declared safe, never one declared dangerous.

A tool is declared safe by name, or by hints that it is read-only
(`headstart.speculation.tool_hints`). No confidence makes another tool eligible.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from headstart.arguments.options import by_tool, names_in
from headstart.speculation.tool_hints import Hints, read_hints

SAFE: Final = ""
"""The refusal reason of a tool that may run on a guess: none."""


class ToolAllowlist:
    """The declarations about an executor's tools.

    `allowed`: names that are safe to run early and to discard. `dangerous`: names never run on a
    guess. `annotations`: by tool name, MCP annotations, a framework's metadata, or its tool, as
    mappings or objects. Raises `InvalidArgument` naming one that cannot be used.
    """

    def __init__(
        self,
        *,
        allowed: Collection[str] = (),
        dangerous: Collection[str] = (),
        annotations: Mapping[str, object] | None = None,
    ) -> None:
        self._allowed = names_in("allowed", allowed)
        self._dangerous = names_in("dangerous", dangerous)
        declared = by_tool("annotations", annotations)
        self._hints = {tool: read_hints(tool, said) for tool, said in declared.items()}

    def refusal_reason(self, tool: str) -> str:
        """Return why a tool may not run on a guess; `SAFE` if it may."""
        hints = self._hints.get(tool, Hints())
        if tool in self._dangerous:
            return "the tool is declared dangerous"
        if hints.destructive:
            return "the tool's annotations call it destructive"
        if hints.approval:
            return "the tool's calls need approval"
        if tool in self._allowed or hints.read_only:
            return SAFE
        if tool in self._hints:
            return "the tool's annotations do not say that it is read-only; allow it by name"
        return "the tool is not declared safe; allow it by name"
