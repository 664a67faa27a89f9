"""Reads hints about a tool's safety, in every spelling and nesting of the frameworks.

MCP has `readOnlyHint` and `destructiveHint` (its Python SDK 2.x `read_only_hint`,
`destructive_hint`). Frameworks keep them under `annotations` or `metadata` of the tool. A hint that
is ambiguous is read so that the tool does not run on a guess.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

READ_ONLY: Final = (
    "readOnlyHint", "read_only_hint", "readOnly", "read_only", "side_effect_free",
)  # fmt: skip
DESTRUCTIVE: Final = ("destructiveHint", "destructive_hint", "destructive")
APPROVAL: Final = (
    "needs_approval", "requires_approval", "require_approval", "approval_required", "approval_mode",
    "requires_confirmation", "require_confirmation", "human_in_the_loop",
)  # fmt: skip
"""Hints of a tool whose calls a person must approve."""
_NO_APPROVAL: Final = ("never", "never_require")
"""Their values, besides False, that mean no approval."""
_UNAPPROVED: Final = "unapproved"
"""The `kind` of a tool that needs approval in Pydantic AI."""
NESTED: Final = ("annotations", "metadata", "mcp_annotations", "mcp", "tool")
"""Where frameworks keep hints: LangChain in `metadata["mcp"]["tool"]["annotations"]`."""
_DEPTH: Final = 5
_UNREADABLE: Final = object()
"""Stands for an attribute that raised when it was read."""

_LOG = logging.getLogger(__name__)


class Hints(NamedTuple):
    """Hints about a tool; False if absent or ambiguous."""

    read_only: bool = False
    destructive: bool = False
    approval: bool = False


def read_hints(tool: str, declared: object) -> Hints:
    """Return the hints about `tool` in `declared`: annotations, metadata, or the tool itself.

    All spellings are read. A tool is read-only if all hints about that agree, destructive if one
    says so. A hint that is not a boolean is warned of and read as the unsafe value.
    """
    levels = list(_levels(declared, _DEPTH))
    read_only = _values(tool, levels, READ_ONLY)
    destructive = _values(tool, levels, DESTRUCTIVE)
    approval = [hint for _, hint in _hints(levels, APPROVAL)]
    return Hints(
        bool(read_only) and all(hint is True for hint in read_only),
        any(hint is not False for hint in destructive),
        any(hint is not False and hint not in _NO_APPROVAL for hint in approval)
        or any(hint == _UNAPPROVED for _, hint in _hints(levels, ("kind",))),
    )


def _values(tool: str, levels: list[object], spellings: tuple[str, ...]) -> list[object]:
    found = []
    for name, hint in _hints(levels, spellings):
        if not isinstance(hint, bool):
            message = "annotations of %r: %s is %.64r, not a boolean; it counts as unsafe"
            _LOG.warning(message, tool, name, hint)
        found.append(hint)
    return found


def _hints(levels: list[object], spellings: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    """Yield (name, value) of the hints with these spellings; None means absent, as in the SDK.

    Keys of mappings may be in any case and have any separators.
    """
    plain = {_plain(name) for name in spellings}
    for level in levels:
        if isinstance(level, Mapping):
            named = [(str(key), hint) for key, hint in level.items() if _plain(str(key)) in plain]
        else:
            named = [(name, _field(level, name)) for name in spellings]
        yield from ((name, hint) for name, hint in named if hint is not None)


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _levels(declared: object, depth: int) -> Iterator[object]:
    """Yield a declaration and those nested in it."""
    if declared is None or depth == 0:
        return
    yield declared
    for name in NESTED:
        yield from _levels(_field(declared, name), depth - 1)


def _field(holder: object, name: str) -> object:
    if isinstance(holder, Mapping):
        return holder.get(name)
    try:
        return getattr(holder, name, None)
    except Exception:  # a property that raises is not trusted
        return _UNREADABLE
