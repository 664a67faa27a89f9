"""Which tools Claude Code calls without asking, as far as the options of an agent say so."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

BYPASS: Final = "bypassPermissions"


class Permissions:
    """The permission rules of an agent's options.

    `allowed`, `disallowed`: rules as in `allowed_tools` and `disallowed_tools`. `mode`: the
    permission mode in which a session begins. Rules in settings files are not known here.
    """

    def __init__(
        self, allowed: Collection[str], disallowed: Collection[str], mode: str | None
    ) -> None:
        self._allowed, self._disallowed, self._mode = tuple(allowed), tuple(disallowed), mode

    def allow(self, tool: str, mode: str | None = None) -> bool:
        """Return whether a tool of an MCP server is called without a question.

        `tool`: as `mcp__server__tool`. `mode`: the current permission mode; None: as at the begin.
        """
        if any(_forbids(rule, tool) for rule in self._disallowed):
            return False
        return (mode or self._mode) == BYPASS or any(_allows(rule, tool) for rule in self._allowed)


class SubagentLimits(NamedTuple):
    """What the definition of a subagent allows it. `tools`: rules; None: all. `mode`: its own."""

    tools: tuple[str, ...] | None = None
    disallowed: tuple[str, ...] = ()
    mode: str | None = None

    def allow(self, tool: str) -> bool:
        """Return whether the subagent has a tool of an MCP server."""
        if any(_forbids(rule, tool) for rule in self.disallowed):
            return False
        return self.tools is None or any(_allows(rule, tool) for rule in self.tools)


UNLIMITED: Final = SubagentLimits()


def _allows(rule: str, tool: str) -> bool:
    """Return whether a rule names a tool, its server (`mcp__server`), or tools by a `*`."""
    kind, _, rest = rule.partition("__")
    server, _, name = rest.partition("__")
    if kind != "mcp" or not server or set(rule) & set("?[(") or "*" in server:
        return rule == tool
    return fnmatchcase(tool, f"mcp__{server}__{name or '*'}")


def _forbids(rule: str, tool: str) -> bool:
    """Return whether a rule may forbid a tool. Where it is unclear, it does."""
    name = rule.partition("(")[0]
    return fnmatchcase(tool, name) or tool.startswith(f"{name}__")
