"""Outcomes per context by a count that knows nothing of the core: the log read once, plainly.

It knows what counts (by what each executor emitted), and which contexts go: the idle ones when an
hour of event time begins, and the oldest of a tenant that has too many.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from processing.placement import owner
from tests.simulation.broker import PARTITIONS, Record
from tests.simulation.world import World
from topics.catalogue import EVENTS

HOUR_MS: Final = 3_600_000


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
        self._clock = 0
        self._followed: dict[tuple[Any, ...], tuple[int, str]] = {}
        self.contexts: dict[bytes, tuple[int, int, int]] = {}
        """(event time of the newest outcome, outcomes, feedback) by row key."""

    def take(self, record: Record) -> None:
        if record.headers:
            self._intervene(orjson.loads(record.value or b"{}"))
        if record.headers or ("thresholds", record.value) in self._world.refused:
            return
        loaded = orjson.loads(record.value or b"[]")
        for event in loaded if isinstance(loaded, list) else [loaded]:
            self._event(event)

    def _intervene(self, said: dict[str, Any]) -> None:
        """Follow a reset or a seed, unless a later one of the same subject was."""
        kind = said.get("kind")
        if kind not in {"reset", "seed"}:
            return
        subject = (kind, said.get("tenant"), said.get("pattern"))
        order = (said["at"], said["id"])
        if self._followed.get(subject, (0, "")) >= order:
            return
        self._followed[subject] = order
        if kind == "seed":
            for each in said["contexts"]:
                key = f"c{said['tenant']}\x1f{each['path']}".encode()
                at = self.contexts.get(key, (0, 0, 0))[0]
                self.contexts[key] = (max(at, said["at"]), each["outcomes"], 0)
                self._bound(said["tenant"])
            return
        words = [word.removesuffix("*") for word in said["pattern"].split("/")]
        tenant = "" if said.get("tenant") is None else f"c{said['tenant']}\x1f"
        for key in list(self.contexts):
            if key.decode().startswith(tenant) and all(word in key.decode() for word in words):
                del self.contexts[key]

    def _event(self, event: dict[str, Any]) -> None:
        self._tick(event["timestamp"])
        known = self._world.appended.get(event["id"])
        if known is None or event["id"] in self._seen:
            return
        self._seen.add(event["id"])
        assert owner(*known.key, PARTITIONS) == self._partition
        tenant = known.key[0]
        for path in known.counts or known.feedback:
            key = f"c{tenant}\x1f{path}".encode()
            at, outcomes, feedback = self.contexts.get(key, (0, 0, 0))
            outcomes += path in known.counts
            feedback += path in known.feedback
            self.contexts[key] = (max(at, event["timestamp"]), outcomes, feedback)
        self._bound(tenant)

    def _bound(self, tenant: str) -> None:
        mine = [key for key in self.contexts if key.startswith(f"c{tenant}\x1f".encode())]
        while len(mine) > self._world.schedule.most_contexts:
            oldest = min(mine, key=lambda key: (self.contexts[key][0], -len(key), key))
            mine.remove(oldest)
            del self.contexts[oldest]

    def _tick(self, timestamp: int) -> None:
        before, self._clock = self._clock, max(self._clock, timestamp)
        if self._clock // HOUR_MS == before // HOUR_MS:
            return
        oldest = self._clock // HOUR_MS * HOUR_MS - self._world.rules.idle_ms
        for key, (at, *_counts) in list(self.contexts.items()):
            if at < oldest:
                del self.contexts[key]
