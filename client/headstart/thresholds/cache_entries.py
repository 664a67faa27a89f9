"""What a reader's mirror is made of: hashes of Redis, their paths, the contexts that look at them.

A path is held once, however many contexts have it in their chain. What is done with all of it, and
which lock guards it, is `mirror`'s affair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from headstart.thresholds.heartbeat import SubscriptionHeartbeat
from headstart.thresholds.overrides import Override
from headstart.thresholds.threshold import StoredThreshold

Context = tuple[str | None, ...]
"""Workflow type, tenant, and the values of all levels."""


REPAIRED_FIELD: Final = "!repaired"
"""Beside the paths in a hash of thresholds: the number of its last repair, which only grows."""


class CachedPath:
    """What is known of one path, and how many contexts of the mirror look at it."""

    __slots__ = ("heard", "known", "repair", "users")

    def __init__(self) -> None:
        self.known: StoredThreshold | None = None
        self.users = 0
        self.repair = 0
        """The repair of the hash as of which `known` was said."""
        self.heard = 0
        """The announcement, counted by the hash, that last said something of this path."""


class CachedHash:
    """What is known of one Redis hash. `line`: where its changes were last announced."""

    __slots__ = (
        "cells", "generation", "heard", "key", "line", "members", "overrides", "repair", "replaced"
    )  # fmt: skip

    def __init__(self, key: str) -> None:
        self.key = key
        self.cells: dict[str, CachedPath] = {}
        self.members: set[Entry] = set()
        self.line: SubscriptionHeartbeat | None = None
        self.generation = 0  # grows with every change
        self.overrides: tuple[Override, ...] = ()
        self.replaced = 0  # what was asked for at another count says nothing of the overrides now
        self.repair = 0  # the number of the last repair that is known of
        self.heard = 0  # announcements


NEVER: Final = SubscriptionHeartbeat(float("-inf"))
"""The line of a context that nothing has been heard of."""


class Entry:
    """One context. `built`: (generation, answer without its age), replaced as one.

    It is of an earlier generation where overrides are: which one applies is seen at each answer.
    """

    __slots__ = ("built", "cells", "hash", "line", "paths", "used")

    def __init__(self, owner: CachedHash, paths: tuple[str, ...]) -> None:
        self.hash, self.paths = owner, paths
        self.cells = tuple([owner.cells.get(path) or CachedPath() for path in paths])
        self.built: tuple[int, tuple[Any, ...]] = (-1, ())
        self.line = NEVER
        self.used = 0.0


class CacheQuery(NamedTuple):
    """What to ask Redis for a context: these fields of a hash. Paths come fine to coarse, then the
    number of its last repair, and the overrides.

    The rest is what was known of the hash when it was asked: only if that still holds when the
    answer comes, nothing was missed in between.
    """

    context: Context
    tool: str | None
    key: str
    fields: tuple[str, ...]
    owner: CachedHash | None = None
    line: SubscriptionHeartbeat | None = None
    replaced: int = 0
    repair: int = 0
    heard: int = 0

    @property
    def paths(self) -> tuple[str, ...]:
        """The context's paths, fine to coarse."""
        return self.fields[:-2]


def repair_of(raw: bytes | None) -> int | None:
    """Return the number of a hash's last repair, as it is stored; None where it is not."""
    return int(raw) if raw is not None and raw.isdigit() and len(raw) < 20 else None


def announced_values(
    owner: CachedHash, values: object
) -> Iterator[tuple[CachedPath, Mapping[str, Any]]]:
    """Yield the values of an announcement whose paths are held, and note that it was heard."""
    for value in values if isinstance(values, list) else ():
        path = value.get("path") if isinstance(value, dict) else None
        if isinstance(path, str) and (cell := owner.cells.get(path)):
            cell.heard = owner.heard
            yield cell, value
