"""Kafka keys, Redis keys, and context paths, which identify thresholds.

A path consists of `key=value` parts, coarse to fine, so that no two contexts share one:
`workflow_type=refund/domain=retail/user_id=u7`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import unquote

from headstart.events.schema import MAX_IDENTIFIER

SEPARATOR: Final = "\x1f"
"""Separates the parts of a Kafka key; no identifier may contain it."""

DEFAULT_LEVELS: Final = ("domain", "user_id")
"""Keys that refine a workflow type, coarse to fine."""

DEFAULT_PATH: Final = "default"
"""Stands for a context path: the learned default of a tenant."""

MODES: Final = "headstart:modes"
"""The Redis hash of the global mode, and the channel that announces every change of a mode."""

MODES_KEYS: Final = (f"{MODES}*", f"{{{MODES}}}:*")
"""The patterns of all hashes of modes: the second is of tenants' on Redis Cluster."""

PUBLISHED: Final = "published"
"""Field of the global hash that marks a Redis to which all modes were published.

The service sets it to the server's run id once every mode of the command log is there.
"""

PUBLISHING: Final = b"begun "
"""Prefix of that field while modes are being published: readers treat it as absent."""

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


def model_key(tenant: str, workflow_type: str) -> str:
    """Return the Redis hash with the snapshot of the model of one tenant and workflow type."""
    return f"headstart:model:{_redis_part(tenant)}:{_redis_part(workflow_type)}"


def key_names(key: bytes) -> tuple[str, str]:
    """Return the tenant and workflow type of an event's Kafka key."""
    tenant, _, workflow_type = key.decode().partition(SEPARATOR)
    return tenant, workflow_type


def modes_key(tenant: str | None = None, *, clustered: bool = False) -> str:
    """Return the Redis hash with the modes of a tenant, or the global one.

    `clustered`: on Redis Cluster, where all hashes of modes are in one slot: the marker that all
    modes were published is lost together with any of them.
    """
    if tenant is None:
        return MODES
    part = _redis_part(tenant)
    if clustered:
        return f"{{{MODES}}}:{part.replace('{', '%7B').replace('}', '%7D')}"
    return f"{MODES}:{part}"


def modes_owner(key: str) -> str | None:
    """Return the tenant of a hash of modes; None for the global one."""
    if key == MODES:
        return None
    return unquote(key.removeprefix(f"{{{MODES}}}:").removeprefix(f"{MODES}:"))


def slot_mate(prefix: str, key: str) -> str:
    """Return a key that begins with `prefix`, in the slot that `key` has on Redis Cluster.

    Not for a key with a brace that closes, unless it begins with one that opens.
    """
    return prefix + (key if key.startswith("{") else f"{{{key}}}")


def _redis_part(text: str) -> str:
    return text.translate(_ESCAPES).replace(":", "%3A")


def context_paths(
    workflow_type: str, lookup: Callable[[str], object], levels: Sequence[str] = DEFAULT_LEVELS
) -> tuple[str, ...]:
    """Return the paths of one context, coarse to fine, beginning with its workflow type.

    `lookup` returns a level's value. A level is skipped if `level_value` returns None for it.
    """
    path = f"workflow_type={workflow_type.translate(_ESCAPES)}"
    paths = [path]
    for level in levels:
        value = level_value(lookup(level))
        if value is None:
            continue
        path = f"{path}/{context_part(level, value)}"
        paths.append(path)
    return tuple(paths)


def context_part(level: str, value: str) -> str:
    """Return the part that a level's value is in context paths: `user_id=u7`."""
    return f"{level.translate(_ESCAPES)}={value.translate(_ESCAPES)}"


def level_value(value: object) -> str | None:
    """Return a level's value as text.

    None if it is missing, not a string, number or boolean, or longer than an identifier.
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
