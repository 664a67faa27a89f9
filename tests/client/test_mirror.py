"""Laws of the mirror, whatever arrives in whatever order: bounded, never back, and it converges.

The world here is Redis as far as a mirror sees it: a hash of versions, answers that may come late,
and a line on which subscriptions and announcements arrive in the order in which they happened.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headstart.keys import context_paths, redis_key
from headstart.thresholds.cache import ThresholdCache
from headstart.thresholds.cache_entries import REPAIRED_FIELD, CacheQuery, SubscriptionHeartbeat
from headstart.thresholds.overrides import OVERRIDES_FIELD
from headstart.thresholds.threshold import Threshold

LIMIT = 3
FOREVER = 1e9
FOREIGN = 1_000_000
"""Offsets from here on are none that the service published."""
CONTEXTS = [
    {"workflow_type": w, "tenant": "t", "domain": "d", "user_id": u}
    for w in ("refund", "booking")
    for u in ("u1", "u2")
] + [{"workflow_type": "refund", "tenant": "t"}]
places = st.sampled_from(range(len(CONTEXTS)))


def key_of(place: int) -> str:
    return redis_key("t", str(CONTEXTS[place]["workflow_type"]))


def paths_of(place: int) -> tuple[str, ...]:
    context = CONTEXTS[place]
    return context_paths(str(context["workflow_type"]), context.get)


def value_of(offset: int) -> dict[str, Any]:
    return {
        "speculate": offset % 100 / 100, "suggest": 0.5, "epoch": 1, "offset": offset, "outcomes": 1
    }  # fmt: skip


class World(RuleBasedStateMachine):
    """Any interleaving of reads, late answers, writes, announcements and lost lines."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.mirror = ThresholdCache(
            ("domain", "user_id"), limit=LIMIT, staleness_s=1.0, clock=lambda: self.now
        )
        self.stored: dict[str, dict[str, int]] = {}
        self.right: dict[str, dict[str, int]] = {}  # the same, without what is foreign
        self.repairs: dict[str, int] = {}
        self.overrides: dict[str, list[dict[str, Any]]] = {}
        self.offset = 0
        self.line: SubscriptionHeartbeat | None = None
        self.channels: set[str] = set()
        self.arriving: deque[Callable[[], Any]] = deque()  # on the line, in order
        self.flying: list[tuple[CacheQuery, list[bytes | None], float]] = []
        self.asking: list[tuple[CacheQuery, list[bytes | None], SubscriptionHeartbeat]] = []
        self.seen: dict[str, tuple[int, int]] = {}  # what was answered, by path

    # Redis

    @rule(place=places, level=st.integers(0, 2))
    def learn(self, place: int, level: int) -> None:
        self.offset += 1
        key = key_of(place)
        path = paths_of(place)[-1] if level == 2 else paths_of(place)[0]
        self.right.setdefault(key, {})[path] = self.offset
        if self.stored.setdefault(key, {}).get(path, 0) < FOREIGN:  # else Redis takes nothing lower
            self.stored[key][path] = self.offset
            self.announce(key, [{"path": path, **value_of(self.offset)}])

    @rule(place=places, level=st.integers(0, 2), announced=st.booleans())
    def tamper(self, place: int, level: int, announced: bool) -> None:
        """Something else writes a version that the log never had, and may announce it."""
        key, path = key_of(place), paths_of(place)[-1 if level == 2 else 0]
        self.offset += 1
        self.stored.setdefault(key, {})[path] = FOREIGN + self.offset
        if announced:
            self.announce(key, [{"path": path, **value_of(FOREIGN + self.offset)}])

    @rule(place=places)
    def repair(self, place: int) -> None:
        key = key_of(place)
        stored, right = self.stored.get(key, {}), self.right.get(key, {})
        values: list[dict[str, Any]] = []
        for path in [path for path, offset in stored.items() if offset >= FOREIGN]:
            if path in right:
                stored[path] = right[path]
                values.append({"path": path, **value_of(right[path])})
            else:
                del stored[path]
                values.append({"path": path})
        if values:
            self.repairs[key] = self.repairs.get(key, 0) + 1
            self.announce(key, {"repair": self.repairs[key], "values": values})

    @rule(place=places, speculate=st.sampled_from([None, 0.11, 0.22, 0.33]))
    def override(self, place: int, speculate: float | None) -> None:
        key = key_of(place)
        self.overrides[key] = [] if speculate is None else [{"path": "", "speculate": speculate}]
        self.announce(key, {"overrides": self.overrides[key]})

    def announce(self, key: str, message: object) -> None:
        if key in self.channels:
            payload = orjson.dumps(message)
            self.arriving.append(lambda: self.mirror.apply_announcement(key, payload))

    def answer(self, query: CacheQuery) -> list[bytes | None]:
        stored = self.stored.get(query.key, {})
        found: list[bytes | None] = []
        for field in query.fields:
            if field == OVERRIDES_FIELD:
                kept = self.overrides.get(query.key)
                found.append(orjson.dumps(kept) if kept else None)
            elif field == REPAIRED_FIELD:
                repairs = self.repairs.get(query.key)
                found.append(None if repairs is None else b"%d" % repairs)
            else:
                offset = stored.get(field)
                found.append(None if offset is None else orjson.dumps(value_of(offset)))
        return found

    # The reader

    @rule(place=places, late=st.booleans())
    def read(self, place: int, late: bool) -> None:
        context = CONTEXTS[place]
        found = self.mirror.lookup(context, None)
        if found is None:
            asked = self.mirror.build_query(context, None)
            if isinstance(asked, CacheQuery):
                pending = (asked, self.answer(asked), self.now)
                if late:
                    self.flying.append(pending)
                    return
                found = self.mirror.store_response(*pending)
            else:
                found = asked
        self.check(found)

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def land(self, data: st.DataObject) -> None:
        pending = self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))
        self.check(self.mirror.store_response(*pending))

    @rule(place=places)
    def read_without_redis(self, place: int) -> None:
        asked = self.mirror.build_query(CONTEXTS[place], None)
        if isinstance(asked, CacheQuery):
            answer = self.mirror.last_known(asked)
            assert answer.stale
            self.check(answer)

    def check(self, answer: Threshold) -> None:
        assert not answer.known or answer.version is not None
        if answer.version is None or answer.version[1] >= FOREIGN:
            return
        assert answer.version >= self.seen.get(answer.level, (0, 0))
        self.seen[answer.level] = answer.version

    # The follower

    @rule(seconds=st.sampled_from([0.1, 0.4, 2.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def connect(self) -> None:
        self.lose()
        self.line = SubscriptionHeartbeat(self.now)
        self.mirror.connected(self.line)

    @rule()
    def lose(self) -> None:
        self.line = None
        self.channels.clear()
        self.arriving.clear()
        self.asking.clear()
        self.mirror.disconnected()

    @precondition(lambda self: self.line)
    @rule()
    def subscribe(self) -> None:
        begin, end = self.mirror.take_subscription_changes()
        for key in begin:
            self.channels.add(key)
            self.arriving.append(lambda key=key: self.confirm(key))  # type: ignore[misc]
        self.channels -= set(end)

    def confirm(self, key: str) -> None:
        assert self.line is not None
        if self.mirror.confirm_subscription(key) and (
            asked := self.mirror.build_refresh_query(key)
        ):
            self.asking.append((asked, self.answer(asked), self.line))

    @precondition(lambda self: self.line)
    @rule()
    def ping(self) -> None:
        line, sent = self.line, self.now
        assert line is not None
        self.arriving.append(lambda: setattr(line, "confirmed_at", sent))

    @rule(most=st.integers(1, 5))
    def receive(self, most: int) -> None:
        for _ in range(min(most, len(self.arriving))):
            self.arriving.popleft()()

    @precondition(lambda self: self.asking)
    @rule()
    def refill(self) -> None:
        asked, values, _ = self.asking.pop(0)
        self.mirror.store_refresh(asked, values)

    @precondition(lambda self: self.line)
    @rule()
    def settle(self) -> None:
        """Everything under way arrives, and is repaired: what is followed is then the truth."""
        line = self.line
        assert line is not None
        for place in range(len(CONTEXTS)):
            self.repair(place)
        self.subscribe()
        while self.arriving or self.asking:
            self.receive(1)
            if self.asking:
                self.refill()
        for place, context in enumerate(CONTEXTS):
            query = self.mirror.build_query(context, None)
            entry = self.mirror._entries.get(
                (context["workflow_type"], "t", context.get("domain"), context.get("user_id"))
            )
            if entry is None or entry.heartbeat is not line:
                continue
            truth = ThresholdCache(("domain", "user_id"), limit=1, staleness_s=1.0)
            asked = truth.build_query(context, None)
            assert isinstance(asked, CacheQuery)
            expected = truth.store_response(asked, self.answer(asked), 0.0)
            known = isinstance(query, Threshold)
            answer = query if known else self.mirror.last_known(query)
            assert answer[:7] == expected[:7], place

    @invariant()
    def bounded(self) -> None:
        mirror = self.mirror
        assert len(mirror) <= LIMIT
        assert len(mirror) == mirror.counts.contexts
        held = {entry.hash.key for entry in mirror._entries.values()}
        assert set(mirror._hashes) == held
        for owner in mirror._hashes.values():
            paths = {path for entry in owner.entries for path in entry.paths}
            assert set(owner.paths) == paths
        # what is evicted is forgotten: an answer that was late may then be older than one before
        known = {path for owner in mirror._hashes.values() for path in owner.paths}
        self.seen = {path: version for path, version in self.seen.items() if path in known}

    @invariant()
    def fresh_within_the_bound(self) -> None:
        for place in range(len(CONTEXTS)):
            known = self.mirror.lookup(CONTEXTS[place], None)
            assert known is None or (0.0 <= known.age_s <= 1.0 and not known.stale)


TestWorld = World.TestCase


def store_response(mirror: ThresholdCache, context: dict[str, Any], **values: Any) -> Threshold:
    asked = mirror.build_query(context, None)
    assert isinstance(asked, CacheQuery)
    raw = [orjson.dumps(values[f]) if f in values else None for f in asked.fields]
    return mirror.store_response(asked, raw, mirror.clock())


def test_the_least_recently_used_context_is_evicted() -> None:
    ticking = itertools.count()
    mirror = ThresholdCache((), limit=2, staleness_s=FOREVER, clock=lambda: float(next(ticking)))
    for name in ("a", "b"):
        store_response(mirror, {"workflow_type": name})
    assert mirror.lookup({"workflow_type": "a"}, None) is not None
    store_response(mirror, {"workflow_type": "c"})
    known = [mirror.lookup({"workflow_type": name}, None) is not None for name in "abc"]
    assert known == [True, False, True]
    assert mirror.counts.evictions == 1


def test_the_most_recently_used_stay() -> None:
    ticking = itertools.count()
    mirror = ThresholdCache((), limit=64, staleness_s=FOREVER, clock=lambda: float(next(ticking)))
    for number in range(200):
        store_response(mirror, {"workflow_type": f"w{number}"})
        kept = range(max(0, number - 59), number + 1)
        assert all(mirror.lookup({"workflow_type": f"w{n}"}, None) for n in kept)
    assert mirror.counts.contexts <= 64


@given(st.sampled_from([1, True, 1.0, "1", "true", "1.0", None, [1], "x" * 300, ""]))
def test_values_that_look_alike_are_kept_apart(value: object) -> None:
    mirror = ThresholdCache(("domain",), limit=99, staleness_s=9.0)
    for other in (1, True, 1.0, None, "", "x"):
        asked = mirror.build_query({"workflow_type": "w", "domain": other}, None)
        assert isinstance(asked, CacheQuery)
        finest = {**value_of(1), "speculate": len(str(asked.paths[0])) / 100}
        mirror.store_response(
            asked, [orjson.dumps(finest), *[None] * len(asked.fields[1:])], mirror.clock()
        )
    context = {"workflow_type": "w", "domain": value}
    found = mirror.lookup(context, None) or mirror.build_query(context, None)
    level = found.level if isinstance(found, Threshold) else found.paths[0]
    assert level == context_paths("w", context.get, ("domain",))[-1]


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[]", b"[1]", b'[{"path":3}]', b'{"a":1}', b"null"]
)
def test_a_corrupt_announcement_changes_nothing(payload: bytes) -> None:
    mirror = ThresholdCache((), limit=2, staleness_s=9.0)
    before = store_response(mirror, {"workflow_type": "a"})
    mirror.apply_announcement(redis_key("default", "a"), payload)
    after = mirror.lookup({"workflow_type": "a"}, None)
    assert after is not None
    assert after[:8] == before[:8]
    assert mirror.counts.changes == 0


@pytest.mark.parametrize(("limit", "staleness_s"), [(0, 1.0), (1, -1.0), (1, float("nan"))])
def test_a_mirror_has_bounds(limit: int, staleness_s: float) -> None:
    with pytest.raises(ValueError, match="limit"):
        ThresholdCache((), limit=limit, staleness_s=staleness_s)
