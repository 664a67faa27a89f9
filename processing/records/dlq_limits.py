"""Limits how much of a partition may be rejected before its worker stops. Pure.

One bad record is a dead letter. Many in a row are a mistake to be fixed before a whole topic is
drained into the dead letters. The idea, and the two limits, are those of getsentry/arroyo
(`dlq.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from headstart.events.frames import MAX_FRAME_BYTES, MAX_FRAME_EVENTS
from processing.records.batch import RecordBatch
from processing.records.dead_letters import DeadLetter
from processing.records.decode import MALFORMED, split_frame
from topics.control.messages import is_control

EXIT_CODE: Final = 65
"""Exit code of a worker that stopped at a limit (EX_DATAERR of sysexits.h)."""
LEAST_SEEN: Final = 200
"""Records of a partition before its ratio counts, or the window where that is smaller."""
_WHOLE: Final = 1_000_000


@dataclass(frozen=True)
class DlqLimits:
    """Limits for one partition; 0 switches either off.

    `ratio`: share of the last `window` records that may be rejected. `run`: how many records in a
    row may be rejected. A record counts once, whatever it holds: in the ratio by the share of its
    events that are rejected, in the run if all of them are. Control records do not count, because
    producers do not send them.
    """

    ratio: float = 0.5
    window: int = 1000
    run: int = 1000


class Refused(NamedTuple):
    """A record of which something is rejected: its number in the partition, and how much of it."""

    number: int
    offset: int
    millionths: int
    reason: str


class RefusalState(msgspec.Struct, frozen=True):
    """What the limits of one partition have seen, up to and without the offset `reached`."""

    reached: int
    seen: int = 0
    run: int = 0
    last: int = -1
    """Number of the last record that was rejected whole."""
    recent: tuple[Refused, ...] = ()


class Slice(NamedTuple):
    """The records of a batch that one step handled: positions `begin` to `end`, exclusive."""

    batch: RecordBatch
    begin: int
    end: int

    @property
    def reached(self) -> int:
        """The first offset after it, holes included."""
        batch = self.batch
        return batch.end if self.end >= len(batch) else batch.offsets[self.end]


class BatchExtent(NamedTuple):
    """How much a step handled: records, and their newest Kafka timestamp, Unix ms."""

    records: int = 0
    newest: int = -1


def extent(parts: Iterable[Slice], before: BatchExtent = BatchExtent()) -> BatchExtent:  # noqa: B008 - a tuple
    """Return the extent of slices, added to `before`; the last record of each is its newest."""
    records, newest = before
    for part in parts:
        if part.end > part.begin:
            records += part.end - part.begin
            newest = max(newest, part.batch.timestamps[part.end - 1])
    return BatchExtent(records, newest)


class RefusalLimitExceeded(RuntimeError):
    """Too much of a partition is rejected; nothing of this step may be committed."""

    def __init__(self, share: str, setting: str, batch: RecordBatch, found: Sequence[Refused]):
        first = ", ".join(str(each.offset) for each in found[:3])
        super().__init__(
            f"{share} of partition {batch.partition} of {batch.topic} are refused, beginning with "
            f"offsets {first}; the last because {found[-1].reason[:200]!r}. Fix the producer; "
            "`headstart dead-letters list` shows what was refused so far. To take the rest in as "
            f"dead letters too, raise {setting}, or set it to 0, and start again"
        )


def examine(
    state: RefusalState, limits: DlqLimits, part: Slice, letters: Sequence[DeadLetter]
) -> RefusalState:
    """Return the state after a slice, with the dead letters of its step.

    `letters` may be of other slices and partitions too. Raises `RefusalLimitExceeded`.
    """
    run, last, recent = state.run, state.last, deque(state.recent)
    total = sum(each.millionths for each in recent)
    controls = _controls(part)
    for refused in _refused(part, letters, state.seen, controls):
        recent.append(refused)
        total += refused.millionths
        while recent[0].number <= refused.number - limits.window:
            total -= recent.popleft().millionths
        if refused.millionths == _WHOLE:
            run = run + 1 if last == refused.number - 1 else 1
            last = refused.number
            if 0 < limits.run <= run:
                found = list(recent)[-run:]
                share = f"{run} records in a row"
                raise RefusalLimitExceeded(share, "HEADSTART_REFUSED_RUN", part.batch, found)
        judged = min(refused.number + 1, limits.window)
        enough = judged >= min(LEAST_SEEN, limits.window)
        if limits.ratio and enough and total > limits.ratio * judged * _WHOLE:
            share = f"{total / (judged * _WHOLE):.1%} of the last {judged} records"
            raise RefusalLimitExceeded(share, "HEADSTART_REFUSED_RATIO", part.batch, list(recent))
    seen = state.seen + part.end - part.begin - len(controls)
    return RefusalState(part.reached, seen, run, last, tuple(recent))


def _controls(part: Slice) -> list[int]:
    """Return the positions of a slice's control records, in order."""
    batch = part.batch
    if not batch.headers:
        return []
    return [
        position
        for position in range(part.begin, part.end)
        if is_control(batch.headers.get(batch.offsets[position], ()))
    ]


def _refused(
    part: Slice, letters: Sequence[DeadLetter], seen: int, controls: Sequence[int]
) -> Iterator[Refused]:
    """Yield, in order, the records of a slice of which something is rejected.

    `controls`: the positions of its control records.
    """
    batch = part.batch
    by_offset: dict[int, list[DeadLetter]] = {}
    for letter in letters:
        if letter.partition == batch.partition:
            by_offset.setdefault(letter.offset, []).append(letter)
    for offset in sorted(by_offset):
        position = bisect_left(batch.offsets, offset, part.begin, part.end)
        if position < part.end and batch.offsets[position] == offset:
            before = bisect_left(controls, position)
            if controls[before : before + 1] == [position]:
                continue
            events = _events_in(batch.values[position] or b"")
            share = min(_WHOLE, _WHOLE * len(by_offset[offset]) // events)
            number = seen + position - part.begin - before
            yield Refused(number, offset, share, by_offset[offset][-1].reason)


def _events_in(value: bytes) -> int:
    """Return how many events a record holds; 1 where it is not a frame, or is rejected whole."""
    if len(value) > MAX_FRAME_BYTES or value.lstrip()[:1] != b"[":
        return 1
    try:
        events = len(split_frame(value))
    except MALFORMED:
        return 1
    return events if 0 < events <= MAX_FRAME_EVENTS else 1
