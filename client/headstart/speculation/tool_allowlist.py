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
        self._hints = {tool: read_hints(tool, hints) for tool, hints in declared.items()}
        self._given = frozenset(declared)
        self._seen: dict[str, object] = {}
        """The annotations read last by `declare`, to read them once."""

    def declare(self, annotations: Mapping[str, object]) -> None:
        """Add annotations of tools; of two that disagree the unsafe one applies.

        Annotations given at construction decide whether their tools are read-only; later ones can
        only forbid those. Raises `InvalidArgument`.
        """
        for tool, hints in by_tool("annotations", annotations).items():
            if self._seen.get(tool) is hints:
                continue
            self._seen[tool] = hints
            found, known = read_hints(tool, hints), self._hints.get(tool)
            if known is not None:
                found = Hints(
                    known.read_only and (found.read_only or tool in self._given),
                    known.destructive or found.destructive,
                    known.approval or found.approval,
                )
            self._hints[tool] = found

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
            return "the tool is not annotated as read-only; allow it by name"
        return "the tool is not declared safe; allow it by name"
