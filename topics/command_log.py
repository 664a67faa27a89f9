"""The log of commands on the broker: begun once, read to its end or followed, and added to."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from headstart.producing import BrokerUnreachable, start_producer
from topics.admin import TopicsMissing
from topics.catalogue import COMMANDS
from topics.commands import Begin, Command, CommandState, Place, command_key, encode_command
from topics.reading import read_records, reading, topic_state

BY_HEADER: Final = "headstart.by"
REASON_HEADER: Final = "headstart.reason"
"""Of a record without a value, which says who no longer wants something set, and why."""


class Remembered(NamedTuple):
    """What an earlier log left elsewhere: what was in force, and the log's number, 0 if none."""

    commands: Sequence[Command]
    number: int


async def read_commands(kafka: str) -> CommandState:
    """Return what is in force now. What is no command is passed over.

    Raises `BrokerUnreachable`, and `TopicsMissing` where the log was not begun.
    """
    found = await _read(kafka)
    if found.number is None:
        raise TopicsMissing(kafka, [COMMANDS.name])
    return found


async def _read(kafka: str) -> CommandState:
    state, found = await topic_state(kafka, COMMANDS.name), CommandState()
    async for record in read_records(kafka, COMMANDS.name, state.begin, state.end):
        try:
            found.apply(record.key, record.value, record.offset)
        except ValueError:
            continue  # the worker that follows the log says so
    return found


async def begin_commands(kafka: str, remembered: Callable[[], Awaitable[Remembered]]) -> int | None:
    """Begin the log where it is new; return its number, None where it had begun already.

    The embedded broker forgets its log whenever it stops: what was in force until then is what
    `remembered` returns, and is set again. Nobody can have set anything since, for nobody adds to a
    log that has no beginning. Raises `BrokerUnreachable`, `TopicsMissing`, and what `remembered`
    raises.
    """
    if (await _read(kafka)).number is not None:
        return None
    earlier = await remembered()
    begin = Begin(number=max(int(time.time()), earlier.number + 1))
    records = [(command_key(each), encode_command(each)) for each in (*earlier.commands, begin)]
    await _send(kafka, records)
    return begin.number


async def send_commands(kafka: str, commands: Iterable[Command]) -> None:
    """Set something; returns once the broker has it. Raises `BrokerUnreachable`."""
    await _send(kafka, [(command_key(each), encode_command(each)) for each in commands])


async def unset_commands(kafka: str, keys: Iterable[bytes], by: str, reason: str) -> None:
    """Take back what is set under these keys. Raises `BrokerUnreachable`."""
    headers = [(BY_HEADER, by.encode()), (REASON_HEADER, reason.encode())]
    await _send(kafka, [(key, None) for key in keys], headers)


async def _send(
    kafka: str,
    records: Iterable[tuple[bytes, bytes | None]],
    headers: Sequence[tuple[str, bytes]] = (),
) -> None:
    try:
        producer = await start_producer(kafka)
        try:
            for key, value in records:  # one after the other: their order is what they mean
                await producer.send_and_wait(
                    COMMANDS.name, value, key=key, partition=0, headers=list(headers)
                )
        finally:
            await producer.stop()
    except (KafkaError, OSError) as error:
        raise BrokerUnreachable(kafka, error) from error


class CommandFollower:
    """Follows the log outside any group; `state` is what is in force as far as it was read."""

    def __init__(self, kafka: str) -> None:
        self._kafka = kafka
        self.state = CommandState()

    async def changes(
        self, refused: Callable[[int, str], None], idle_ms: int
    ) -> AsyncGenerator[set[Place], None]:
        """Yield the places that changed; the first time, once all of the log is read.

        After `idle_ms` without a change it yields none. `refused` is told the offset of what is no
        command, and why. Raises `BrokerUnreachable` and `TopicsMissing`; a broker that is only away
        for a while is waited for.
        """
        log, self.state = await topic_state(self._kafka, COMMANDS.name), CommandState()
        tp, changed = TopicPartition(COMMANDS.name, 0), set[Place]()
        begin, earliest = {0: log.begin[0]}, {"auto_offset_reset": "earliest"}
        async with reading(self._kafka, COMMANDS.name, begin, **earliest) as consumer:
            try:
                while True:
                    for records in (await consumer.getmany(tp, timeout_ms=idle_ms)).values():
                        changed |= self._apply(records, refused)
                    begun = self.state.number is not None
                    if begun and await consumer.position(tp) >= log.end[0]:
                        yield changed
                        changed = set()
            except (KafkaError, OSError) as error:
                raise BrokerUnreachable(self._kafka, error) from error

    def _apply(self, records: Iterable[Any], refused: Callable[[int, str], None]) -> set[Place]:
        changed = set()
        for record in records:
            try:
                place = self.state.apply(record.key, record.value, record.offset)
            except ValueError as error:
                refused(record.offset, str(error))
            else:
                changed |= {place} if place else set()
        return changed
