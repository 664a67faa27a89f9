"""Which tools may be run on a guess: only those declared safe, never one that is dangerous.

The declaration is an allowlist, or the tool's MCP annotations (`readOnlyHint`, `idempotentHint`,
`destructiveHint`, Model Context Protocol 2025-06-18). Whether a guess is worth it is asked
elsewhere: no confidence makes a tool eligible.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint")

SAFE: Final = ""
"""The objection to a tool that may be run on a guess: none."""


class Eligibility:
    """What was declared of the tools of an executor.

    `allowed`: names that are safe to run early and to throw away. `dangerous`: never these.
    `annotations`: MCP annotations by tool name, as mappings or as the SDK's objects.
    """

    def __init__(
        self,
        *,
        allowed: Collection[str] = (),
        dangerous: Collection[str] = (),
        annotations: Mapping[str, object] | None = None,
    ) -> None:
        for name, given in (("allowed", allowed), ("dangerous", dangerous)):
            if isinstance(given, str):
                raise ValueError(f"{name} is a collection of names, not the string {given!r:.64}")
        self._allowed, self._dangerous = frozenset(allowed), frozenset(dangerous)
        self._objections = {
            tool: _objection(*_hints(hints)) for tool, hints in (annotations or {}).items()
        }
        self._destructive = {
            tool
            for tool, hints in (annotations or {}).items()
            if _hints(hints)[1] is True  # said, not merely assumed
        }

    def objection(self, tool: str) -> str:
        """Return why a tool may not be run on a guess; "" where it may (`SAFE`)."""
        if tool in self._dangerous:
            return "the tool is declared dangerous"
        if tool in self._destructive:
            return "the tool's annotations call it destructive"
        if tool in self._allowed:
            return SAFE
        return self._objections.get(tool, "the tool is not declared safe")


def _hints(annotations: object) -> tuple[bool | None, ...]:
    if annotations is None:
        return (None,) * len(HINTS)
    if isinstance(annotations, Mapping):
        return tuple(annotations.get(hint) for hint in HINTS)
    return tuple(getattr(annotations, hint, None) for hint in HINTS)


def _objection(read_only: bool | None, destructive: bool | None, idempotent: bool | None) -> str:
    """Return what MCP annotations say against a tool; where they say nothing, they say the worst.

    Read-only is enough. Else it must be said that the tool destroys nothing (the protocol's default
    is that it does) and that running it twice is as good as once.
    """
    if read_only is True:
        return SAFE
    if destructive is not False:
        return "the tool's annotations do not say that it destroys nothing"
    if idempotent is not True:
        return "the tool's annotations do not say that it is idempotent"
    return SAFE
