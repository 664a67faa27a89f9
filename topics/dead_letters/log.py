"""Reads, replays and drops dead letters.

Single records of a log cannot be deleted, so `headstart.dead-letters-handled` records which were
replayed or dropped. A replay is acknowledged before it is recorded: a crash in between repeats the
replay, which is deduplicated by its origin, and never loses one.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, Self

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from headstart.kafka_producer import BrokerUnreachable, start_producer
from topics.catalogue import DEAD_LETTERS, EVENTS, HANDLED
from topics.dead_letters.messages import (
    DeadLetterFilter,
    DeadLetterRecord,
    OutgoingRecord,
    parse_dead_letter,
)
from topics.kafka.limits import LARGEST_MS
from topics.kafka.reader import read_records, topic_state
from topics.kafka.sender import send_all
from topics.kafka.topic_states import TopicState

_LOG = logging.getLogger("headstart.dead_letters")

NEWEST: Final = 10_000
"""Dead letters of a partition that are searched for lost records."""
SENT_AT_ONCE: Final = 200
"""Dead letters per batch; bounds memory and what a crash repeats."""


class Handling(msgspec.Struct, frozen=True):
    """What was done about a dead letter, and when (Unix ms)."""

    did: Literal["replayed", "dropped"]
    at: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_MS)]


class DeadLetterLog:
    """The dead letters that existed when it was opened."""

    def __init__(self, kafka: str, state: TopicState, handled: Mapping[str, Handling]) -> None:
        self._kafka, self._state, self._handled = kafka, state, handled

    @classmethod
    async def open(cls, kafka: str, newest: int | None = None) -> Self:
        """Open the log as it is now. Raises `BrokerUnreachable` and `TopicsMissing`.

        `newest`: only so many dead letters of each partition; default: all.
        """
        state = await topic_state(kafka, DEAD_LETTERS.name)
        if newest is not None:
            first = {p: max(begin, state.end[p] - newest) for p, begin in state.begin.items()}
            state = replace(state, begin=first)
        notes = await topic_state(kafka, HANDLED.name)
        handled, skipped = {}, list[int]()
        async for record in read_records(kafka, HANDLED.name, notes.begin, notes.end):
            if (note := _note_in(record)) is not None:
                handled[note[0]] = note[1]
            else:
                skipped.append(record.offset)
        _warn_of(skipped)
        return cls(kafka, state, handled)

    def handling(self, letter: DeadLetterRecord) -> Handling | None:
        """Return how a dead letter was handled, None if it was not."""
        return self._handled.get(letter.identity)

    async def letters(
        self, wanted: DeadLetterFilter, *, handled: bool = False
    ) -> AsyncIterator[DeadLetterRecord]:
        """Yield matching dead letters, oldest first; `handled`: also those already handled."""
        begin, end = self._state.begin, self._state.end
        async for record in read_records(self._kafka, DEAD_LETTERS.name, begin, end):
            letter = parse_dead_letter(record)
            if wanted.takes(letter) and (handled or self.handling(letter) is None):
                yield letter

    async def letter(self, partition: int, offset: int) -> DeadLetterRecord:
        """Return one dead letter. Raises `LookupError`."""
        begin, end = self._state.begin.get(partition), self._state.end.get(partition, 0)
        if begin is not None and begin <= offset < end:
            place = {partition: offset}, {partition: offset + 1}
            async for record in read_records(self._kafka, DEAD_LETTERS.name, *place):
                return parse_dead_letter(record)
        there = [f"{p}:{self._state.begin[p]} to {p}:{n - 1}" for p, n in self._ends() if n]
        raise LookupError(
            f"there is no dead letter {partition}:{offset}; "
            f"{DEAD_LETTERS.name} holds {', '.join(there) or 'none'}"
        )

    def _ends(self) -> Iterable[tuple[int, int]]:
        filled = {p: n for p, n in self._state.end.items() if n > self._state.begin[p]}
        return sorted(filled.items())


def _note_in(record: Any) -> tuple[str, Handling] | None:
    """Return the identity of a handled dead letter, and how it was handled; None if invalid.

    Any client may write to the topic, and one invalid record must not break the listing.
    """
    try:
        return record.key.decode(), msgspec.json.decode(record.value or b"", type=Handling)
    except (AttributeError, ValueError):  # no key, or invalid; msgspec's errors are ValueErrors
        return None


def _warn_of(skipped: Sequence[int]) -> None:
    """Log one warning for all invalid records."""
    if skipped:
        _LOG.warning(
            "%s: skipped %d invalid records, the first at offset %d",
            HANDLED.name,
            len(skipped),
            skipped[0],
        )


async def lost_records(kafka: str) -> list[DeadLetterRecord]:
    """Return the dead letters of records that retention deleted unread, without dropped ones.

    Of the `NEWEST` of each partition. Raises `BrokerUnreachable` and `TopicsMissing`.
    """
    log = await DeadLetterLog.open(kafka, NEWEST)
    return [each async for each in log.letters(DeadLetterFilter()) if each.lost_until is not None]


class DeadLetterSender:
    """Replays and drops dead letters."""

    def __init__(self, kafka: str) -> None:
        self._kafka = kafka
        self._producer: AIOKafkaProducer | None = None

    async def __aenter__(self) -> Self:
        """Connect. Raises `BrokerUnreachable`."""
        try:
            self._producer = await start_producer(self._kafka)
        except (KafkaError, OSError) as error:
            raise BrokerUnreachable(self._kafka, error) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        if self._producer is not None:
            await self._producer.stop()

    async def replay(
        self, replays: Sequence[tuple[DeadLetterRecord, OutgoingRecord]], at: int
    ) -> None:
        """Send records and, once all are acknowledged, record it. Raises `KafkaError`."""
        await self._send(EVENTS.name, [outgoing for _letter, outgoing in replays])
        await self._note([letter for letter, _outgoing in replays], Handling("replayed", at))

    async def drop(self, letters: Sequence[DeadLetterRecord], at: int) -> None:
        """Record that these were dropped. Raises `KafkaError`."""
        await self._note(letters, Handling("dropped", at))

    async def _note(self, letters: Iterable[DeadLetterRecord], handling: Handling) -> None:
        value = msgspec.json.encode(handling)
        notes = [OutgoingRecord(0, letter.identity.encode(), value, ()) for letter in letters]
        await self._send(HANDLED.name, notes)

    async def _send(self, topic: str, records: Iterable[OutgoingRecord]) -> None:
        assert self._producer is not None
        await send_all(self._producer, topic, records)
