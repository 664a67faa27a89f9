"""What a reader keeps of Redis: a bounded mirror of thresholds that never goes back. No I/O.

The drivers (headstart.thresholds) ask what `question` says and hand the answer to `filled`; the
follower (headstart.thresholds.subscriber) tells what is announced. Whatever arrives, in whatever
order: a path keeps its highest version. Only a repair lowers one: the service then replaced a value
that it had never published, and says so by a number that grows with each repair of a hash.

A context is *followed* from when it was asked for on a line that already announced its hash: from
then on it is as fresh as the line. Otherwise it is as old as its answer.
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
from headstart.thresholds import threshold
from headstart.thresholds.cache_entries import (
    REPAIRED_FIELD,
    CachedHash,
    CachedPath,
    CacheQuery,
    Context,
    Entry,
    announced_values,
    repair_of,
)
from headstart.thresholds.heartbeat import SubscriptionHeartbeat
from headstart.thresholds.metrics import ReaderCounts
from headstart.thresholds.overrides import (
    OVERRIDES_FIELD,
    Override,
    applying,
    decode_overrides,
    read_overrides,
)
from headstart.thresholds.threshold import StoredThreshold, Threshold, resolve

Given = Mapping[str, object]

_new: Final[Callable[..., Threshold]] = tuple.__new__  # a tenth of calling the class


class ThresholdCache:
    """The thresholds of the contexts that were asked for, the last used `limit` of them.

    From any number of threads: a hit takes no lock, all else does. `clock` is monotonic, `wall`
    Unix time, both in seconds. Hashes that are to be followed, or no longer, are in `unfollowed`.
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
            raise ValueError(f"a mirror needs limit >= 1, staleness_s >= 0: {limit}, {staleness_s}")
        require_levels(levels)
        self._names = ("workflow_type", "tenant", *levels)
        self._pick: Callable[[Given], Context] = itemgetter(*self._names)
        self._levels, self._limit, self.staleness_s = tuple(levels), limit, staleness_s
        self.clock, self._wall = clock, wall
        self._entries: dict[Context, Entry] = {}
        self._hashes: dict[str, CachedHash] = {}
        self._line: SubscriptionHeartbeat | None = None
        self.unfollowed: dict[str, bool] = {}  # hash -> whether it is to be followed
        self._awaited: dict[str, int] = {}  # hash -> subscriptions that are not confirmed
        self.lock = threading.Lock()
        self.counts = counts or ReaderCounts()
        self.counts.contexts = 0

    def __len__(self) -> int:
        return len(self._entries)

    def hit(self, given: Given, tool: str | None) -> Threshold | None:
        """Return what is known and confirmed within the bound, at once; else None."""
        try:
            entry = self._entries[self._pick(given)]
        except (KeyError, TypeError):  # unknown, with gaps, or of unhashable values
            found = self._found_with_gaps(given)
            if found is None:
                return None
            entry = found
        now = self.clock()
        age = now - entry.line.heard
        if age > self.staleness_s:
            return None
        entry.used = now
        self.counts.hits += 1
        generation, values = entry.built
        if generation == entry.hash.generation:
            return _new(Threshold, values + (age,))  # noqa: RUF005 - dearer by a list
        return self._answer(entry, tool, False, age)

    def _found_with_gaps(self, given: Given) -> Entry | None:
        """Return the entry of a context that leaves out its tenant or a level."""
        workflow_type, tenant, *levels = map(given.get, self._names)
        if tenant is None and "tenant" in given:
            return None  # a tenant that is unknown is not the default one: it is refused
        key: tuple[Any, ...] = (workflow_type, "default" if tenant is None else tenant, *levels)
        try:
            return self._entries.get(key)
        except TypeError:
            return None

    def question(self, given: Given, tool: str | None) -> CacheQuery | Threshold:
        """Return what to ask Redis for a context; or the answer, known by another spelling.

        Raises `ValueError` where the context has no workflow type.
        """
        workflow_type, tenant = given.get("workflow_type"), given.get("tenant")
        tenant = "default" if tenant is None else tenant
        for name, value in (("workflow_type", workflow_type), ("tenant", tenant)):
            if not isinstance(value, str) or not value:
                raise ValueError(f"a context needs a {name}: a string, not {value!r:.64}")
        values = [given.get(level) for level in self._levels]
        levels = [level_value(value) for value in values]
        context = (str(workflow_type), str(tenant), *levels)
        if levels != values:
            respelt = dict(zip(self._names, context, strict=True))
            if (found := self.hit(respelt, tool)) is not None:
                return found
        lookup = dict(zip(self._levels, levels, strict=True)).get
        paths = context_paths(str(workflow_type), lookup, self._levels)
        key = redis_key(str(tenant), str(workflow_type))
        return self._question(context, tool, key, paths[::-1])

    def default_question(self, tenant: str) -> CacheQuery | Threshold:
        """Return what to ask Redis for a tenant's learned default; or it, where it is known."""
        given: dict[str, object] = dict.fromkeys(self._names)
        given |= {"workflow_type": "", "tenant": tenant}
        if (found := self.hit(given, None)) is not None:
            return found
        context = ("", tenant, *(None for _ in self._levels))
        return self._question(context, None, redis_key(tenant, ""), (DEFAULT_PATH,))

    def _question(
        self, context: Context, tool: str | None, key: str, paths: Sequence[str]
    ) -> CacheQuery:
        fields = (*paths, REPAIRED_FIELD, OVERRIDES_FIELD)
        owner = self._hashes.get(key)
        if owner is None:
            return CacheQuery(context, tool, key, fields)
        line = owner.line if owner.line is self._line else None
        counts = owner.replaced, owner.repair, owner.heard
        return CacheQuery(context, tool, key, fields, owner, line, *counts)

    def filled(
        self, question: CacheQuery, values: Sequence[bytes | None], asked_at: float
    ) -> Threshold:
        """Keep the answer to a question asked at `asked_at`, and return it."""
        with self.lock:
            new = question.key not in self._hashes
            entry = self._entries.get(question.context) or self._insert(question)
            if new:  # so there is nothing that this answer could be older than
                question = question._replace(owner=entry.hash, replaced=0, line=None)
            whole = self._merge(entry.hash, question, values)
            if whole and question.line is not None and self._unbroken(question, entry.hash):
                entry.line = question.line
            elif asked_at > entry.line.heard:
                entry.line = SubscriptionHeartbeat(asked_at)
            entry.used = self.clock()
            if len(self._entries) > self._limit:
                self._evict()
        return self._answer(entry, question.tool, False, 0.0)

    def last_known(self, question: CacheQuery) -> Threshold:
        """Return what is known, however old, as stale; the default where nothing is."""
        entry = self._entries.get(question.context)
        if entry is not None:
            return self._answer(entry, question.tool, True, self.clock() - entry.line.heard)
        owner = self._hashes.get(question.key)
        if owner is None:
            return Threshold(stale=True, age_s=float("inf"))
        known = [
            owner.cells[path].known if path in owner.cells else None for path in question.paths
        ]
        return self._served(owner, question.paths, question.tool, known, True, float("inf"))

    def _answer(self, entry: Entry, tool: str | None, stale: bool, age: float) -> Threshold:
        owner = entry.hash
        generation = owner.generation  # read first: what is built is at least as new
        chain = [cell.known for cell in entry.cells]
        if owner.overrides or stale:
            return self._served(owner, entry.paths, tool, chain, stale, age)
        values = resolve(entry.paths, chain)[:-1]
        entry.built = (generation, values)
        return _new(Threshold, (*values, age))

    def _served(
        self,
        owner: CachedHash,
        paths: Sequence[str],
        tool: str | None,
        chain: Sequence[StoredThreshold | None],
        stale: bool,
        age: float,
    ) -> Threshold:
        """Return what was learned as it is served: with the override that applies."""
        answer = resolve(paths, chain)._replace(stale=stale, age_s=age)
        override = applying(owner.overrides, paths, tool, self._wall() * 1000.0)
        return answer if override is None else answer.overridden(override)

    def _insert(self, question: CacheQuery) -> Entry:
        owner = self._hashes.get(question.key)
        if owner is None:
            owner = self._hashes[question.key] = CachedHash(question.key)
            self.unfollowed[question.key] = True
        entry = Entry(owner, question.paths)
        for path, cell in zip(entry.paths, entry.cells, strict=True):
            cell.users += 1
            owner.cells[path] = cell
        owner.members.add(entry)
        self._entries[question.context] = entry
        self.counts.contexts += 1
        return entry

    def _evict(self) -> None:
        """Let go of the least recently used, a sixteenth at once: finding them costs a pass."""
        count = len(self._entries) - self._limit + self._limit // 16
        oldest = nsmallest(count, self._entries.items(), key=lambda item: item[1].used)
        for context, entry in oldest:
            del self._entries[context]
            self.counts.evictions += 1
            self.counts.contexts -= 1
            owner = entry.hash
            owner.members.discard(entry)
            for path, cell in zip(entry.paths, entry.cells, strict=True):
                cell.users -= 1
                if not cell.users:
                    del owner.cells[path]
            if not owner.members:
                del self._hashes[owner.key]
                self.unfollowed[owner.key] = False

    def _unbroken(self, question: CacheQuery, owner: CachedHash) -> bool:
        """Return whether the hash was followed ever since it was asked."""
        return question.owner is owner and question.line is owner.line is self._line

    def _merge(
        self, owner: CachedHash, question: CacheQuery, values: Sequence[bytes | None]
    ) -> bool:
        """Take an answer; return False where it has to be asked again to be sure of it."""
        # Overrides have no version: an answer must not undo what was announced meanwhile.
        replace = question.owner is owner and question.replaced == owner.replaced
        stored = repair_of(values[-2])
        owner.repair = max(owner.repair, stored or 0)
        # Without the number, as after a loss, all that is known is when it was asked.
        repair = question.repair if stored is None else stored
        # A path that was not held when a repair of it was announced has to be asked again.
        whole = max(question.repair, stored or 0) == owner.repair
        for field, raw in zip(question.fields, values, strict=True):
            if field == OVERRIDES_FIELD:
                if replace:
                    self._override(owner, decode_overrides(raw))
            elif cell := owner.cells.get(field):
                found = None if raw is None else threshold.decode_value(raw)
                if repair == cell.repair:
                    self._raise(owner, cell, found)
                elif repair > cell.repair:
                    whole &= self._lower(owner, cell, found, repair, question, stored is not None)
                # else it is from before a repair that was announced
        return whole

    def _lower(
        self, owner: CachedHash, cell: CachedPath, found: StoredThreshold | None, repair: int,
        question: CacheQuery, said: bool,
    ) -> bool:  # fmt: skip
        """Take a value as of a later repair than what is known; return whether that is certain.

        `said`: whether the answer itself named the repair.
        """
        since = question.owner is not owner or cell.heard > question.heard
        known = cell.known
        if known is None or (found is not None and found.version > known.version):
            self._raise(owner, cell, found)
        elif since and found != known:
            return False  # what was announced since it was asked may be newer
        elif said:
            self._replace(owner, cell, found)
        cell.repair = repair
        return True

    def _replace(self, owner: CachedHash, cell: CachedPath, found: StoredThreshold | None) -> None:
        if found != cell.known:
            cell.known = found
            owner.generation += 1
            self.counts.changes += 1

    def _raise(self, owner: CachedHash, cell: CachedPath, found: StoredThreshold | None) -> None:
        known = cell.known
        if found is not None and (known is None or found.version > known.version):
            cell.known = found
            owner.generation += 1
            self.counts.changes += 1

    def _override(self, owner: CachedHash, overrides: tuple[Override, ...]) -> None:
        if overrides != owner.overrides:
            owner.overrides = overrides
            owner.generation += 1
            self.counts.changes += 1

    # What the follower tells.

    def announced(self, key: str, payload: bytes) -> None:
        """Take an announcement on the channel of a hash; what is corrupt is passed over."""
        try:
            message = orjson.loads(payload)
        except orjson.JSONDecodeError:
            return
        with self.lock:
            owner = self._hashes.get(key)
            if owner is None:
                return
            self.counts.announcements += 1
            owner.heard += 1
            if isinstance(message, dict) and "overrides" in message:
                owner.replaced += 1
                self._override(owner, read_overrides(message["overrides"]))
            elif isinstance(message, dict) and type(repair := message.get("repair")) is int:
                owner.repair = max(owner.repair, repair)
                for cell, value in announced_values(owner, message.get("values")):
                    if repair >= cell.repair:
                        cell.repair = repair
                        self._replace(owner, cell, threshold.read_value(value))
            else:
                for cell, value in announced_values(owner, message):
                    self._raise(owner, cell, threshold.read_value(value))

    def connected(self, line: SubscriptionHeartbeat) -> None:
        """Take a new line, on which nothing is followed yet: all of it is to be."""
        with self.lock:
            self._line = line
            self._awaited.clear()
            self.unfollowed = dict.fromkeys(self._hashes, True)

    def lost(self) -> None:
        """Note that the line is gone; what it had confirmed grows old from now on."""
        with self.lock:
            self._line = None

    def to_follow(self) -> tuple[list[str], list[str]]:
        """Return the hashes to subscribe to and to unsubscribe from, on this line, in one go."""
        with self.lock:
            wanted, self.unfollowed = self.unfollowed, {}
            begin = [key for key, follow in wanted.items() if follow]
            for key in begin:
                self._awaited[key] = self._awaited.get(key, 0) + 1
            return begin, [key for key, follow in wanted.items() if not follow]

    def subscribed(self, key: str) -> bool:
        """Take the confirmation of a subscription; return whether to ask for the hash again.

        Only the last of several counts: between them the hash was not followed.
        """
        with self.lock:
            waiting = self._awaited.pop(key, 1) - 1
            if waiting:
                self._awaited[key] = waiting
            owner = self._hashes.get(key)
            if waiting or owner is None or key in self.unfollowed:
                return False
            owner.line = self._line
            owner.replaced += 1  # what was asked before may be older than what is asked next
            return True

    def held(self, key: str) -> CacheQuery | None:
        """Return a question for all that is known of a hash, to be asked again."""
        with self.lock:
            owner = self._hashes.get(key)
            return self._question((), None, key, tuple(owner.cells)) if owner else None

    def refilled(self, question: CacheQuery, values: Sequence[bytes | None]) -> None:
        """Keep the answer to `held`: all contexts that it covers are followed from now on."""
        asked = set(question.fields)
        with self.lock:
            owner = self._hashes.get(question.key)
            if owner is None:
                return
            whole = self._merge(owner, question, values)
            if not whole or question.line is None or not self._unbroken(question, owner):
                return
            for entry in owner.members:
                if asked.issuperset(entry.paths):
                    entry.line = question.line
