"""Keys and context paths: which partition an event belongs to, and which thresholds answer for it.

A path is nested, coarse to fine, of `key=value` parts, so that no two contexts share one:
`workflow_type=refund/domain=retail/user_id=u7`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import unquote

from headstart.events.schema import MAX_IDENTIFIER

SEPARATOR: Final = "\x1f"
"""Between the parts of a Kafka key; no identifier may hold it."""

DEFAULT_LEVELS: Final = ("domain", "user_id")
"""Keys that refine a workflow type, in order, each level holding those before it."""

DEFAULT_PATH: Final = "default"
"""In the place of a context path: what a tenant's workflow types have in common."""

MODES: Final = "headstart:modes"
"""The Redis hash of everybody's mode, and the channel on which every change of a mode is said."""

PUBLISHED: Final = "published"
"""The field of everybody's hash of modes by which a Redis has all modes; it is no mode itself.

The service sets it, to the server's run id, once every mode of the log of commands is there.
"""

PUBLISHING: Final = b"begun "
"""What the field begins with while modes are being published: as if it were not there yet."""

_ESCAPES = {ord(c): f"%{ord(c):02X}" for c in "%/="} | {n: f"%{n:02X}" for n in (*range(32), 127)}


def event_key(tenant: str, workflow_type: str) -> bytes:
    """Return the Kafka key of every event of one tenant and workflow type."""
    return f"{tenant}{SEPARATOR}{workflow_type}".encode()


def threshold_key(tenant: str, path: str) -> bytes:
    """Return the key of a context in the compacted thresholds topic."""
    return f"{tenant}{SEPARATOR}{path}".encode()


def redis_key(tenant: str, workflow_type: str) -> str:
    """Return the Redis hash that holds every context of one tenant and workflow type."""
    return f"headstart:thresholds:{_redis_part(tenant)}:{_redis_part(workflow_type)}"


def modes_key(tenant: str | None = None) -> str:
    """Return the Redis hash that holds the modes of a tenant, or everybody's."""
    return MODES if tenant is None else f"{MODES}:{_redis_part(tenant)}"


def _redis_part(text: str) -> str:
    return text.translate(_ESCAPES).replace(":", "%3A")


def context_paths(
    workflow_type: str, lookup: Callable[[str], object], levels: Sequence[str] = DEFAULT_LEVELS
) -> tuple[str, ...]:
    """Return the paths of one context, coarse to fine, beginning with its workflow type.

    `lookup` gives a level's value (None where the context has none: that level is skipped).
    What `level_value` refuses counts as missing.
    """
    path = f"workflow_type={workflow_type.translate(_ESCAPES)}"
    paths = [path]
    for level in levels:
        value = level_value(lookup(level))
        if value is None:
            continue
        path = f"{path}/{level.translate(_ESCAPES)}={value.translate(_ESCAPES)}"
        paths.append(path)
    return tuple(paths)


def level_value(value: object) -> str | None:
    """Return a level's value as text; None where it names no context.

    That is where it is missing, no string, number or boolean, or longer than an identifier.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        value = str(value)
    return value if isinstance(value, str) and len(value) <= MAX_IDENTIFIER else None


def workflow_type_of(path: str) -> str:
    """Return the workflow type that a path begins with; "" for `DEFAULT_PATH`."""
    if path == DEFAULT_PATH:
        return ""
    return unquote(path.partition("/")[0].removeprefix("workflow_type="))
