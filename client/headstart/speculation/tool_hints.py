"""What a tool's annotations say of its safety, in every spelling and nesting of the frameworks.

MCP says `readOnlyHint` and `destructiveHint` (its Python SDK 2.x `read_only_hint`,
`destructive_hint`). Frameworks keep them under `annotations` or `metadata` of the tool. Whatever is
doubtful is read so that the tool does not run on a guess.
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
"""What frameworks say of a tool whose calls a person must approve."""
_NO_APPROVAL: Final = ("never", "never_require")
"""Values of these, besides False, that say that nobody has to."""
_UNAPPROVED: Final = "unapproved"
"""The `kind` of such a tool in Pydantic AI."""
NESTED: Final = ("annotations", "metadata", "mcp_annotations", "mcp", "tool")
"""Where frameworks keep hints: LangChain in `metadata["mcp"]["tool"]["annotations"]`."""
_DEPTH: Final = 5
_UNREADABLE: Final = object()
"""In the place of an attribute that raised when it was read."""

_LOG = logging.getLogger(__name__)


class Hints(NamedTuple):
    """What is said of a tool; False where it is not said, or not to be relied on."""

    read_only: bool = False
    destructive: bool = False
    approval: bool = False


def read_hints(tool: str, declared: object) -> Hints:
    """Return what is said of `tool` by `declared`: annotations, metadata, or the tool itself.

    Every spelling is looked at. Read-only is what all that say something say; destructive is what
    one says. A hint that is no boolean is warned of and read as the less safe one.
    """
    levels = list(_levels(declared, _DEPTH))
    read_only = _values(tool, levels, READ_ONLY)
    destructive = _values(tool, levels, DESTRUCTIVE)
    approval = [said for _, said in _said(levels, APPROVAL)]
    return Hints(
        bool(read_only) and all(said is True for said in read_only),
        any(said is not False for said in destructive),
        any(said is not False and said not in _NO_APPROVAL for said in approval)
        or any(said == _UNAPPROVED for _, said in _said(levels, ("kind",))),
    )


def _values(tool: str, levels: list[object], spellings: tuple[str, ...]) -> list[object]:
    found = []
    for name, said in _said(levels, spellings):
        if not isinstance(said, bool):
            message = "annotations of %r: %s is %.64r, no boolean; it counts as the unsafe answer"
            _LOG.warning(message, tool, name, said)
        found.append(said)
    return found


def _said(levels: list[object], spellings: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    """Yield what is said under some names; None says nothing, as in the SDK's objects.

    Keys of mappings may be written in any case, with any separators.
    """
    plain = {_plain(name) for name in spellings}
    for level in levels:
        if isinstance(level, Mapping):
            named = [(str(key), said) for key, said in level.items() if _plain(str(key)) in plain]
        else:
            named = [(name, _field(level, name)) for name in spellings]
        yield from ((name, said) for name, said in named if said is not None)


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _levels(declared: object, depth: int) -> Iterator[object]:
    """Yield a declaration and what is nested in it."""
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
    except Exception:  # a property that fails says nothing that could be relied on
        return _UNREADABLE
