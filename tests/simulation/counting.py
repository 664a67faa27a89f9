"""Outcomes per context by a count that knows nothing of the core: the log read once, plainly.

It knows what counts (by what each executor emitted), and which contexts go: the idle ones when an
hour begins, by clock records or before them by event time, and the oldest of a tenant that has too
many.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from processing.records.partitioner import partition_for
from tests.simulation.broker import PARTITIONS, Record
from tests.simulation.clocks import HOUR_MS, Reference
from tests.simulation.world import World
from topics.catalogue import EVENTS

STEP_MS: Final = 3_600_000
"""How far a clock record moves the clock."""


def counted(world: World, partition: int) -> dict[bytes, tuple[int, int]]:
    """Return outcomes and feedback of each context of a partition that is still there, by key."""
    count = _Count(world, partition)
    for broker in [*(broker for _epoch, broker in world.past), world.broker]:
        for record in broker.logs[EVENTS.name][partition].everything:
            count.take(record)
    return {key: held[1:] for key, held in count.contexts.items()}


class _Count:
    def __init__(self, world: World, partition: int) -> None:
        self._world, self._partition = world, partition
        self._seen: set[str] = set()
        self._clock = Reference()
        self._followed: dict[tuple[Any, ...], tuple[int, str]] = {}
        self.contexts: dict[bytes, tuple[int, int, int]] = {}
        """(time of the newest outcome, outcomes, feedback) by row key."""

    def take(self, record: Record) -> None:
        if record.headers:
            self._intervene(orjson.loads(record.value or b"{}"))
        if record.headers or ("thresholds", record.value) in self._world.refused:
            return
        loaded = orjson.loads(record.value or b"[]")
        for event in loaded if isinstance(loaded, list) else [loaded]:
            self._event(event)

    def _intervene(self, control: dict[str, Any]) -> None:
        """Follow a reset or a seed, unless a later one of the same subject was; and the clock."""
        kind = control.get("kind")
        if kind == "clock":
            before = self._clock.now if self._clock.began else -1
            self._clock.clock_record(control["at"], STEP_MS)
            self._expire(before)
        if kind not in {"reset", "seed"}:
            return
        subject = (kind, control.get("tenant"), control.get("pattern"))
        order = (control["at"], control["id"])
        if self._followed.get(subject, (0, "")) >= order:
            return
        self._followed[subject] = order
        if kind == "seed":
            for each in control["contexts"]:
                key = f"c{control['tenant']}\x1f{each['path']}".encode()
                self.contexts[key] = (self._at(key, control["at"]), each["outcomes"], 0)
                self._bound(control["tenant"])
            return
        words = [word.removesuffix("*") for word in control["pattern"].split("/")]
        tenant = "" if control.get("tenant") is None else f"c{control['tenant']}\x1f"
        for key in list(self.contexts):
            if key.decode().startswith(tenant) and all(word in key.decode() for word in words):
                del self.contexts[key]

    def _event(self, event: dict[str, Any]) -> None:
        before = self._clock.now
        self._clock.event(event["timestamp"])
        self._expire(before)
        known = self._world.appended.get(event["id"])
        if known is None or event["id"] in self._seen:
            return
        self._seen.add(event["id"])
        assert partition_for(*known.key, PARTITIONS) == self._partition
        tenant = known.key[0]
        for path in known.counts or known.feedback:
            key = f"c{tenant}\x1f{path}".encode()
            _at, outcomes, feedback = self.contexts.get(key, (0, 0, 0))
            outcomes += path in known.counts
            feedback += path in known.feedback
            self.contexts[key] = (self._at(key, event["timestamp"]), outcomes, feedback)
        self._bound(tenant)

    def _at(self, key: bytes, control: int) -> int:
        """Return the time of a context's newest outcome, another one saying its own."""
        at = self.contexts.get(key, (0,))[0]
        if self._clock.began and at > self._clock.now:
            return self._clock.now
        return max(at, self._clock.arrival(control))

    def _bound(self, tenant: str) -> None:
        mine = [key for key in self.contexts if key.startswith(f"c{tenant}\x1f".encode())]
        while len(mine) > self._world.schedule.most_contexts:
            oldest = min(mine, key=lambda key: (self._newest(key), -len(key), key))
            mine.remove(oldest)
            del self.contexts[oldest]

    def _newest(self, key: bytes) -> int:
        return self._clock.newest(self.contexts[key][0])

    def _expire(self, before: int) -> None:
        if self._clock.now // HOUR_MS == before // HOUR_MS:
            return
        oldest = self._clock.oldest(self._world.rules.idle_ms)
        oldest += self._world.rules.idle_ms
        oldest = oldest // HOUR_MS * HOUR_MS - self._world.rules.idle_ms
        for key in list(self.contexts):
            if self._newest(key) < oldest:
                del self.contexts[key]
