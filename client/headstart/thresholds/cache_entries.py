"""What the threshold cache consists of: Redis hashes, their context paths, contexts that read them.

A path is stored once, however many contexts have it in their chain. Callers hold the cache's lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from headstart.thresholds.metrics import ReaderCounts
from headstart.thresholds.overrides import OVERRIDES_FIELD, Override, decode_overrides
from headstart.thresholds.threshold import StoredThreshold, decode_value

Context = tuple[str | None, ...]
"""Workflow type, tenant, and the values of all levels."""


REPAIRED_FIELD: Final = "!repaired"
"""Beside the paths in a hash of thresholds: the number of its last repair, which only grows."""


class SubscriptionHeartbeat:
    """One connection on which changes are announced; that of a closed one never advances.

    `confirmed_at`: all that was announced before this moment has arrived (monotonic seconds).
    """

    __slots__ = ("confirmed_at",)

    def __init__(self, confirmed_at: float) -> None:
        self.confirmed_at = confirmed_at


NEVER: Final = SubscriptionHeartbeat(float("-inf"))
"""The heartbeat of a context that was never confirmed."""


class CachedPath:
    """The stored threshold of one path, and how many cached contexts use it."""

    __slots__ = ("announcement", "known", "repair", "users")

    def __init__(self) -> None:
        self.known: StoredThreshold | None = None
        self.users = 0
        self.repair = 0
        """Number of the hash's repair that `known` reflects."""
        self.announcement = 0
        """Number, within the hash, of the last announcement about this path."""


class CachedHash:
    """The cached part of a Redis hash. `heartbeat`: of the connection that announces it."""

    __slots__ = (
        "announcements", "counts", "entries", "generation", "heartbeat", "key", "overrides",
        "overrides_version", "paths", "repair",
    )  # fmt: skip

    def __init__(self, key: str, counts: ReaderCounts) -> None:
        self.key, self.counts = key, counts
        self.paths: dict[str, CachedPath] = {}
        self.entries: set[Entry] = set()
        self.heartbeat: SubscriptionHeartbeat | None = None
        self.generation = 0  # grows with every change
        self.overrides: tuple[Override, ...] = ()
        self.overrides_version = 0  # a query sent at another version must not replace overrides
        self.repair = 0  # the last repair that is known
        self.announcements = 0

    def merge(self, query: CacheQuery, values: Sequence[bytes | None]) -> bool:
        """Apply a response; return False if it must be queried again to be certain."""
        # Overrides have no version: a response must not undo what was announced meanwhile.
        replace = query.owner is self and query.overrides_version == self.overrides_version
        stored = repair_of(values[-2])
        self.repair = max(self.repair, stored or 0)
        # Without the number, as after a loss, only the time of the query orders the response.
        repair = query.repair if stored is None else stored
        # A path that was not cached when its repair was announced must be queried again.
        certain = max(query.repair, stored or 0) == self.repair
        for field, raw in zip(query.fields, values, strict=True):
            if field == OVERRIDES_FIELD:
                if replace:
                    self.set_overrides(decode_overrides(raw))
            elif path := self.paths.get(field):
                found = None if raw is None else decode_value(raw)
                if repair == path.repair:
                    self.store_newer(path, found)
                elif repair > path.repair:
                    certain &= self._store_repaired(path, found, repair, query, stored is not None)
                # else it predates a repair that was announced
        return certain

    def _store_repaired(
        self, path: CachedPath, found: StoredThreshold | None, repair: int, query: CacheQuery,
        numbered: bool,
    ) -> bool:  # fmt: skip
        """Store a value of a later repair than the cached one; return whether that is certain.

        `numbered`: whether the response itself contained the repair's number.
        """
        announced_since = query.owner is not self or path.announcement > query.announcements
        known = path.known
        if known is None or (found is not None and found.version > known.version):
            self.store_newer(path, found)
        elif announced_since and found != known:
            return False  # the announcement may be newer
        elif numbered:
            self.replace(path, found)
        path.repair = repair
        return True

    def replace(self, path: CachedPath, found: StoredThreshold | None) -> None:
        """Store a value, also one of a lower version."""
        if found != path.known:
            path.known = found
            self._note_change()

    def store_newer(self, path: CachedPath, found: StoredThreshold | None) -> None:
        """Store a value if its version is higher than the cached one's."""
        known = path.known
        if found is not None and (known is None or found.version > known.version):
            path.known = found
            self._note_change()

    def set_overrides(self, overrides: tuple[Override, ...]) -> None:
        """Replace all overrides."""
        if overrides != self.overrides:
            self.overrides = overrides
            self._note_change()

    def _note_change(self) -> None:
        self.generation += 1
        self.counts.changes += 1

    def announced(self, values: object) -> Iterator[tuple[CachedPath, Mapping[str, Any]]]:
        """Yield the values of an announcement whose paths are cached."""
        for value in values if isinstance(values, list) else ():
            name = value.get("path") if isinstance(value, dict) else None
            if isinstance(name, str) and (path := self.paths.get(name)):
                path.announcement = self.announcements
                yield path, value


class Entry:
    """One context. `built`: (generation, answer without its age), replaced as one.

    With overrides the generation stays an earlier one: which of them applies is decided per answer.
    """

    __slots__ = ("built", "chain", "hash", "heartbeat", "paths", "used")

    def __init__(self, owner: CachedHash, paths: tuple[str, ...]) -> None:
        self.hash, self.paths = owner, paths
        self.chain = tuple([owner.paths.get(path) or CachedPath() for path in paths])
        self.built: tuple[int, tuple[Any, ...]] = (-1, ())
        self.heartbeat = NEVER
        self.used = 0.0


class CacheQuery(NamedTuple):
    """What to query for a context: fields of a hash. First the paths, fine to coarse, then the
    number of the last repair, and the overrides.

    The rest is the state of the cached hash when the query was built: nothing was missed in between
    only if it is unchanged when the response arrives.
    """

    context: Context
    tool: str | None
    key: str
    fields: tuple[str, ...]
    owner: CachedHash | None = None
    heartbeat: SubscriptionHeartbeat | None = None
    overrides_version: int = 0
    repair: int = 0
    announcements: int = 0

    @property
    def commands(self) -> tuple[tuple[str, ...], ...]:
        """The command that queries the fields, word by word."""
        return (("HMGET", self.key, *self.fields),)

    @property
    def paths(self) -> tuple[str, ...]:
        """The context's paths, fine to coarse."""
        return self.fields[:-2]


def repair_of(raw: bytes | None) -> int | None:
    """Return the stored number of a hash's last repair; None if absent or not a number."""
    return int(raw) if raw is not None and raw.isdigit() and len(raw) < 20 else None
