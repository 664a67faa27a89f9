"""The readers' near cache of Redis: bounded, versions of a path never go back. No I/O.

Readers send the queries built here and store the responses; the subscriber applies announcements.
In whatever order these arrive, a path keeps its highest version. Only a repair lowers it: the
service then replaced a value that it had never published, under a number that grows with each
repair of a hash.

A context is *followed* once it was queried on a connection that already announced its hash: from
then on it is as fresh as that connection's heartbeat. Before, it is as old as its response.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from heapq import nsmallest
from operator import itemgetter
from typing import Any, Final

import orjson

from headstart.arguments.levels import require_levels
from headstart.keys import DEFAULT_PATH, context_paths, level_value, redis_key
from headstart.thresholds.cache_entries import (
    REPAIRED_FIELD,
    CachedHash,
    CacheQuery,
    Context,
    Entry,
    SubscriptionHeartbeat,
)
from headstart.thresholds.metrics import ReaderCounts
from headstart.thresholds.overrides import OVERRIDES_FIELD, applicable_override, read_overrides
from headstart.thresholds.threshold import StoredThreshold, Threshold, read_value, resolve

Given = Mapping[str, object]


def _has_other(given: Given, allowed: frozenset[str] | None) -> bool:
    """Return whether a context has a key that is not allowed."""
    return allowed is not None and not allowed.issuperset(given)


_new: Final[Callable[..., Threshold]] = tuple.__new__  # a tenth of calling the class


class ThresholdCache:
    """The thresholds of the `limit` contexts that were used last.

    Thread-safe: a hit takes no lock, everything else does. `clock` is monotonic, `wall` Unix time,
    both in seconds.
    """

    def __init__(
        self,
        levels: Sequence[str],
        *,
        limit: int,
        staleness_s: float,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        counts: ReaderCounts | None = None,
    ) -> None:
        if limit < 1 or not staleness_s >= 0.0:
            raise ValueError(f"limit must be >= 1 and staleness_s >= 0, not {limit}, {staleness_s}")
        require_levels(levels)
        self._names = ("workflow_type", "tenant", *levels)
        self._pick: Callable[[Given], Context] = itemgetter(*self._names)
        self._size = len(self._names)
        self._levels, self._limit, self.staleness_s = tuple(levels), limit, staleness_s
        self.clock, self._wall = clock, wall
        self._entries: dict[Context, Entry] = {}
        self._hashes: dict[str, CachedHash] = {}
        self._heartbeat: SubscriptionHeartbeat | None = None
        self.pending_subscriptions: dict[str, bool] = {}  # key -> subscribe or not
        self._unconfirmed: dict[str, int] = {}  # key -> number of them
        self.lock = threading.Lock()
        self.counts = counts or ReaderCounts()
        self.counts.contexts = 0

    def __len__(self) -> int:
        return len(self._entries)

    def lookup(
        self, given: Given, tool: str | None, allowed: frozenset[str] | None = None
    ) -> Threshold | None:
        """Return the cached answer if it was confirmed within `staleness_s` seconds, else None.

        None also for a context with a key that is not in `allowed`. A context that has all names
        and no more keys is not compared with it: that would cost a quarter of a hit.
        """
        try:
            entry = self._entries[self._pick(given)]
            if len(given) != self._size and _has_other(given, allowed):
                return None
        except (KeyError, TypeError):  # unknown, incomplete, or unhashable values
            found = None if _has_other(given, allowed) else self._find_incomplete(given)
            if found is None:
                return None
            entry = found
        now = self.clock()
        age = now - entry.heartbeat.confirmed_at
        if age > self.staleness_s:
            return None
        entry.used = now
        self.counts.hits += 1
        generation, values = entry.built
        if generation == entry.hash.generation:
            return _new(Threshold, values + (age,))  # noqa: RUF005 - a list costs more
        return self._answer(entry, tool, False, age)

    def _find_incomplete(self, given: Given) -> Entry | None:
        """Return the entry of a context that leaves out its tenant or a level."""
        workflow_type, tenant, *levels = map(given.get, self._names)
        if tenant is None and "tenant" in given:
            return None  # None is not the default tenant: it is refused later
        key: tuple[Any, ...] = (workflow_type, "default" if tenant is None else tenant, *levels)
        try:
            return self._entries.get(key)
        except TypeError:
            return None

    def build_query(self, given: Given, tool: str | None) -> CacheQuery | Threshold:
        """Return the query for a context, or the answer if its normalized values are cached.

        Raises `ValueError` if the context has no workflow type.
        """
        workflow_type, tenant = given.get("workflow_type"), given.get("tenant")
        tenant = "default" if tenant is None else tenant
        for name, value in (("workflow_type", workflow_type), ("tenant", tenant)):
            if not isinstance(value, str) or not value:
                raise ValueError(
                    f"{name} of a context must be a non-empty string, not {value!r:.64}"
                )
        values = [given.get(level) for level in self._levels]
        levels = [level_value(value) for value in values]
        context = (str(workflow_type), str(tenant), *levels)
        if levels != values:
            normalized = dict(zip(self._names, context, strict=True))
            if (found := self.lookup(normalized, tool)) is not None:
                return found
        lookup = dict(zip(self._levels, levels, strict=True)).get
        paths = context_paths(str(workflow_type), lookup, self._levels)
        key = redis_key(str(tenant), str(workflow_type))
        return self._build_query(context, tool, key, paths[::-1])

    def build_default_query(self, tenant: str) -> CacheQuery | Threshold:
        """Return the query for a tenant's learned default, or the default if it is cached."""
        given: dict[str, object] = dict.fromkeys(self._names)
        given |= {"workflow_type": "", "tenant": tenant}
        if (found := self.lookup(given, None)) is not None:
            return found
        context = ("", tenant, *(None for _ in self._levels))
        return self._build_query(context, None, redis_key(tenant, ""), (DEFAULT_PATH,))

    def _build_query(
        self, context: Context, tool: str | None, key: str, paths: Sequence[str]
    ) -> CacheQuery:
        fields = (*paths, REPAIRED_FIELD, OVERRIDES_FIELD)
        owner = self._hashes.get(key)
        if owner is None:
            return CacheQuery(context, tool, key, fields)
        heartbeat = owner.heartbeat if owner.heartbeat is self._heartbeat else None
        state = owner.overrides_version, owner.repair, owner.announcements
        return CacheQuery(context, tool, key, fields, owner, heartbeat, *state)

    def store_response(
        self, query: CacheQuery, values: Sequence[bytes | None], asked_at: float
    ) -> Threshold:
        """Cache the response to a query sent at `asked_at`; return the answer."""
        with self.lock:
            new = query.key not in self._hashes
            entry = self._entries.get(query.context) or self._insert(query)
            if new:  # so nothing cached can be newer than this response
                query = query._replace(owner=entry.hash, overrides_version=0, heartbeat=None)
            certain = entry.hash.merge(query, values)
            if certain and query.heartbeat is not None and self._was_followed(query, entry.hash):
                entry.heartbeat = query.heartbeat
            elif asked_at > entry.heartbeat.confirmed_at:
                entry.heartbeat = SubscriptionHeartbeat(asked_at)
            entry.used = self.clock()
            if len(self._entries) > self._limit:
                self._evict()
        return self._answer(entry, query.tool, False, 0.0)

    def last_known(self, query: CacheQuery) -> Threshold:
        """Return the cached answer marked as stale, whatever its age; else the constant default."""
        entry = self._entries.get(query.context)
        if entry is not None:
            age = self.clock() - entry.heartbeat.confirmed_at
            return self._answer(entry, query.tool, True, age)
        owner = self._hashes.get(query.key)
        if owner is None:
            return Threshold(stale=True, age_s=float("inf"))
        known = [owner.paths[path].known if path in owner.paths else None for path in query.paths]
        return self._with_override(owner, query.paths, query.tool, known, True, float("inf"))

    def _answer(self, entry: Entry, tool: str | None, stale: bool, age: float) -> Threshold:
        owner = entry.hash
        generation = owner.generation  # read first: the values below are at least as new
        chain = [path.known for path in entry.chain]
        if owner.overrides or stale:
            return self._with_override(owner, entry.paths, tool, chain, stale, age)
        values = resolve(entry.paths, chain)[:-1]
        entry.built = (generation, values)
        return _new(Threshold, (*values, age))

    def _with_override(
        self,
        owner: CachedHash,
        paths: Sequence[str],
        tool: str | None,
        chain: Sequence[StoredThreshold | None],
        stale: bool,
        age: float,
    ) -> Threshold:
        """Return the learned thresholds with the override that applies."""
        answer = resolve(paths, chain)._replace(stale=stale, age_s=age)
        override = applicable_override(
            owner.overrides, paths, tool, self._wall() * 1000.0, answer.speculate
        )
        return answer if override is None else answer.overridden(override)

    def _insert(self, query: CacheQuery) -> Entry:
        owner = self._hashes.get(query.key)
        if owner is None:
            owner = self._hashes[query.key] = CachedHash(query.key, self.counts)
            self.pending_subscriptions[query.key] = True
        entry = Entry(owner, query.paths)
        for name, path in zip(entry.paths, entry.chain, strict=True):
            path.users += 1
            owner.paths[name] = path
        owner.entries.add(entry)
        self._entries[query.context] = entry
        self.counts.contexts += 1
        return entry

    def _evict(self) -> None:
        """Evict the least recently used sixteenth at once: finding them is a pass over all."""
        count = len(self._entries) - self._limit + self._limit // 16
        oldest = nsmallest(count, self._entries.items(), key=lambda item: item[1].used)
        for context, entry in oldest:
            del self._entries[context]
            self.counts.evictions += 1
            self.counts.contexts -= 1
            owner = entry.hash
            owner.entries.discard(entry)
            for name, path in zip(entry.paths, entry.chain, strict=True):
                path.users -= 1
                if not path.users:
                    del owner.paths[name]
            if not owner.entries:
                del self._hashes[owner.key]
                self.pending_subscriptions[owner.key] = False

    def _was_followed(self, query: CacheQuery, owner: CachedHash) -> bool:
        """Return whether the hash was followed on one connection since the query was built."""
        return query.owner is owner and query.heartbeat is owner.heartbeat is self._heartbeat

    # Called by the subscriber.

    def apply_announcement(self, key: str, payload: bytes) -> None:
        """Apply an announcement on the channel of a hash; ignore a corrupt one."""
        try:
            message = orjson.loads(payload)
        except orjson.JSONDecodeError:
            return
        with self.lock:
            owner = self._hashes.get(key)
            if owner is None:
                return
            self.counts.announcements += 1
            owner.announcements += 1
            if isinstance(message, dict) and "overrides" in message:
                owner.overrides_version += 1
                owner.set_overrides(read_overrides(message["overrides"]))
            elif isinstance(message, dict) and type(repair := message.get("repair")) is int:
                owner.repair = max(owner.repair, repair)
                for path, value in owner.announced(message.get("values")):
                    if repair >= path.repair:
                        path.repair = repair
                        owner.replace(path, read_value(value))
            else:
                for path, value in owner.announced(message):
                    owner.store_newer(path, read_value(value))

    def connected(self, heartbeat: SubscriptionHeartbeat) -> None:
        """Subscribe to every cached hash on a new connection."""
        with self.lock:
            self._heartbeat = heartbeat
            self._unconfirmed.clear()
            self.pending_subscriptions = dict.fromkeys(self._hashes, True)

    def disconnected(self) -> None:
        """Note that the connection is closed: what it confirmed ages from now on."""
        with self.lock:
            self._heartbeat = None

    def take_subscription_changes(self) -> tuple[list[str], list[str]]:
        """Return and clear the keys to subscribe to, and those to unsubscribe from."""
        with self.lock:
            changes, self.pending_subscriptions = self.pending_subscriptions, {}
            subscribe = [key for key, follow in changes.items() if follow]
            for key in subscribe:
                self._unconfirmed[key] = self._unconfirmed.get(key, 0) + 1
            return subscribe, [key for key, follow in changes.items() if not follow]

    def confirm_subscription(self, key: str) -> bool:
        """Confirm a subscription; return whether the hash is to be queried again.

        Only the last of several confirmations counts: between them the hash was not followed.
        """
        with self.lock:
            waiting = self._unconfirmed.pop(key, 1) - 1
            if waiting:
                self._unconfirmed[key] = waiting
            owner = self._hashes.get(key)
            if waiting or owner is None or key in self.pending_subscriptions:
                return False
            owner.heartbeat = self._heartbeat
            owner.overrides_version += 1  # earlier queries may be older than the next one
            return True

    def build_refresh_query(self, key: str) -> CacheQuery | None:
        """Return a query for every cached path of a hash; None if it was evicted."""
        with self.lock:
            owner = self._hashes.get(key)
            return self._build_query((), None, key, tuple(owner.paths)) if owner else None

    def store_refresh(self, query: CacheQuery, values: Sequence[bytes | None]) -> None:
        """Cache the response to `build_refresh_query`; the contexts it covers are now followed."""
        queried = set(query.fields)
        with self.lock:
            owner = self._hashes.get(query.key)
            if owner is None:
                return
            certain = owner.merge(query, values)
            if not certain or query.heartbeat is None or not self._was_followed(query, owner):
                return
            for entry in owner.entries:
                if queried.issuperset(entry.paths):
                    entry.heartbeat = query.heartbeat
