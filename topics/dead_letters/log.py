"""The dead letters on the broker: read in order, sent again, and what was done about each.

A log cannot forget one record, so what was replayed or dropped is noted in a topic of its own.
First the replay is acknowledged, then it is noted: a crash between the two repeats a replay, which
its lane shows to be the same, and never loses one.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
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
from topics.kafka.admin import TopicState
from topics.kafka.limits import LARGEST_MS
from topics.kafka.reader import read_records, topic_state
from topics.kafka.sender import send_all

_LOG = logging.getLogger("headstart.dead_letters")

SENT_AT_ONCE: Final = 200
"""How many dead letters to send together; bounds memory, and what a crash repeats."""


class Handling(msgspec.Struct, frozen=True):
    """What was done about a dead letter, and when (Unix ms)."""

    did: Literal["replayed", "dropped"]
    at: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_MS)]


class DeadLetterLog:
    """The dead letters there were when it was opened. Later ones are not seen."""

    def __init__(self, kafka: str, state: TopicState, handled: Mapping[str, Handling]) -> None:
        self._kafka, self._state, self._handled = kafka, state, handled

    @classmethod
    async def open(cls, kafka: str) -> Self:
        """Return the log as it is now. Raises `BrokerUnreachable` and `TopicsMissing`."""
        state = await topic_state(kafka, DEAD_LETTERS.name)
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
        """Return what was done about a dead letter."""
        return self._handled.get(letter.identity)

    async def letters(
        self, wanted: DeadLetterFilter, *, handled: bool = False
    ) -> AsyncIterator[DeadLetterRecord]:
        """Yield what is wanted, oldest first; `handled`: also what was replayed or dropped."""
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
    """Return which dead letter was handled, and how; None where the record does not say so.

    The topic is open to be written to, and such a record must not hide all dead letters.
    """
    try:
        return record.key.decode(), msgspec.json.decode(record.value or b"", type=Handling)
    except (AttributeError, ValueError):  # no key, or what is no note; msgspec's are ValueErrors
        return None


def _warn_of(skipped: Sequence[int]) -> None:
    """Say once how many records say of no dead letter that it was handled."""
    if skipped:
        _LOG.warning(
            "%s: records that name no handled dead letter are skipped: %d, the first at offset %d",
            HANDLED.name, len(skipped), skipped[0],
        )  # fmt: skip


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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Disconnect."""
        if self._producer is not None:
            await self._producer.stop()

    async def replay(
        self, replays: Sequence[tuple[DeadLetterRecord, OutgoingRecord]], at: int
    ) -> None:
        """Send each again and, once all are acknowledged, note it. Raises `KafkaError`."""
        await self._send(EVENTS.name, [outgoing for _letter, outgoing in replays])
        await self._note([letter for letter, _outgoing in replays], Handling("replayed", at))

    async def drop(self, letters: Sequence[DeadLetterRecord], at: int) -> None:
        """Note that nothing more shall be done about these. Raises `KafkaError`."""
        await self._note(letters, Handling("dropped", at))

    async def _note(self, letters: Iterable[DeadLetterRecord], handling: Handling) -> None:
        value = msgspec.json.encode(handling)
        notes = [OutgoingRecord(0, letter.identity.encode(), value, ()) for letter in letters]
        await self._send(HANDLED.name, notes)

    async def _send(self, topic: str, records: Iterable[OutgoingRecord]) -> None:
        assert self._producer is not None
        await send_all(self._producer, topic, records)
