"""Producers whose clocks are wrong, and what must be the same as if they were right.

The log that a run leaves is applied once more with the timestamps that a right clock would have
given: the rows must be the same, except the time within a tick of a context's newest outcome.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson

from headstart.keys import event_key
from processing.records.partitioner import partition_for
from processing.state.clock import TICK_MS
from processing.state.rows import CONTEXT, PARTITION_KEY, decode_context, encode_context
from replay.log.live_table import Rows
from tests.simulation.broker import PARTITIONS, Record
from tests.simulation.faults import Stranger
from tests.simulation.traffic import Event
from topics.catalogue import EVENTS
from topics.control.messages import is_control

if TYPE_CHECKING:
    from tests.simulation.world import World

HOUR_MS: Final = 3_600_000
YEARS_MS: Final = 74 * 365 * 24 * HOUR_MS
_AHEAD: Final = {"fast": 3_588_000, "slow": -3 * HOUR_MS, "future": YEARS_MS, "seconds": 0}


def witnessed(world: World) -> bool:
    """Return whether every partition has a clock record: before that events move the clock."""
    return all(
        any(is_clock(record) for record in log.everything) for log in world.broker.logs[EVENTS.name]
    )


def is_clock(record: Record) -> bool:
    """Return whether a record is a clock record."""
    return is_control(record.headers) and b'"kind":"clock"' in (record.value or b"")


def write(world: World, fault: Stranger) -> None:
    """Append what a producer writes whose clock is wrong."""
    for _ in range(fault.events):
        key = "acme", world.chance.choice(["refund", "joined"])
        event = _event(world, key)
        fields, now_ms = orjson.loads(event.value), world.wall_ms()
        right = orjson.dumps({**fields, "timestamp": now_ms})
        sent_ms = now_ms + _AHEAD[fault.clock]
        timestamp = now_ms
        if fault.clock == "seconds":
            sent_ms //= 1000
        elif fault.clock == "future":
            timestamp = sent_ms
        value = orjson.dumps({**fields, "timestamp": sent_ms})
        place = partition_for(*key, PARTITIONS)
        world.append_record(place, event_key(*key), value, timestamp=timestamp)
        if fault.clock == "seconds":
            world.righted[value] = None
            world.refused += [("thresholds", value), ("episodes", value)]
        else:
            world.righted[value] = right, now_ms
            world.appended[event.id] = event


def _event(world: World, key: tuple[str, str]) -> Event:
    chance = world.chance
    name = str(uuid.UUID(int=chance.getrandbits(128), version=4))
    top = f"workflow_type={key[1]}"
    paths = top, f"{top}/domain=air", f"{top}/domain=air/user_id=stranger"
    kind = chance.choice(["task_complete", "task_complete", "speculation_start", "hil_decision"])
    counts = paths if kind == "task_complete" else ()
    value = {
        "id": name, "event_type": kind, "tenant": key[0], "workflow_type": key[1],
        "workflow_id": "stranger", "task_id": name, "user_id": "stranger", "confidence": 0.9,
        "data": {"context": {"domain": "air"}, "prediction": {"was_correct": True}},
    }  # fmt: skip
    return Event(name, key, orjson.dumps(value), counts)


def righted(world: World, records: Sequence[Record]) -> list[Record]:
    """Return records as they would be, were every producer's clock right."""
    found = []
    for record in records:
        right = world.righted.get(record.value or b"", (record.value, record.timestamp))
        if right is not None:
            value, timestamp = right
            found.append(
                Record(record.offset, record.key, value, timestamp, record.at, record.headers)
            )
    return found


def differences(partition: int, found: Rows, right: Rows) -> Iterator[str]:
    """Yield where a table is another one than if every producer's clock were right."""
    one, other = _without_moments(found), _without_moments(right)
    for key in sorted(one.keys() | other.keys()):
        if one.get(key) != other.get(key):
            yield (
                f"a foreign clock: {key!r} in partition {partition} is {one.get(key)!r}, "
                f"were that clock right {other.get(key)!r}"
            )


def _without_moments(rows: Rows) -> Rows:
    return {
        key: _to_the_tick(row) if key.startswith(CONTEXT) else row
        for key, row in rows.items()
        if key != PARTITION_KEY
    }


def _to_the_tick(raw: bytes) -> bytes:
    row = decode_context(raw)
    return encode_context(row._replace(at=row.at // TICK_MS * TICK_MS))


class Reference:
    """The time of a partition, computed each time from all clock records."""

    def __init__(self) -> None:
        self.now = self.began = 0
        self._eras: list[tuple[int, int, bool]] = []
        """(begin, end, whether the clock record at the end could not move the clock far enough)."""
        self._late = False
        self._in_a_row = 0

    def event(self, at: int) -> None:
        """Take in an event's time."""
        if not self.began:
            self.now = max(self.now, at)

    def clock_record(self, at: int, step: int) -> None:
        """Take in a clock record."""
        at -= at % TICK_MS
        if not self.began:
            most = (self.now + step) - (self.now + step) % TICK_MS if self.now else at
            self.now = self.began = min(at, most)
            self._in_a_row = int(at > most)
            return
        most = self.now + step * 2**self._in_a_row
        continues, self._in_a_row = self._in_a_row, 0 if at <= most else self._in_a_row + 1
        if at > self.now:
            self._eras.append((self.now, min(at, most), bool(continues)))
            self.now = min(at, most)

    def oldest(self, life: int) -> int:
        """Return from when on a thing is younger than `life`, or may be."""
        if not self.began:
            return self.now - life
        oldest = self.now - 2 * TICK_MS - life
        for begin, end in self._gaps():
            if begin <= oldest < end:
                return begin
        return oldest

    def _gaps(self) -> list[tuple[int, int]]:
        gaps: list[tuple[int, int]] = []
        for begin, end, continues in self._eras:
            if continues and gaps and gaps[-1][1] == begin:
                gaps[-1] = gaps[-1][0], end
            elif continues or end - begin > 2 * TICK_MS:
                gaps.append((begin, end))
        return [gap for gap in gaps if self.now - gap[1] <= 10 * (gap[1] - gap[0])]

    def arrival(self, at: int) -> int:
        """Return when an item of the time `at` arrived."""
        return self.now if self.began else at

    def newest(self, at: int) -> int:
        """Return when a context's newest outcome arrived, by its row."""
        if not self.began:
            return at
        return at - at % TICK_MS if at < self.now + TICK_MS else self.began


def signed_clock(record: Record) -> dict[str, Any] | None:
    """Return the time of a clock record; None for any other record."""
    return orjson.loads(record.value or b"{}") if is_clock(record) else None
