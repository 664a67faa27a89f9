"""The log of commands on the broker: begun once, read to its end or followed, and added to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any, Final, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from headstart.kafka_producer import BrokerUnreachable, start_producer
from topics.catalogue import COMMANDS
from topics.commands.messages import (
    Begin,
    Command,
    CommandState,
    CommandTarget,
    command_key,
    encode_command,
)
from topics.commands.tail import CommandTail, outside_transactions
from topics.kafka.admin import TopicsMissing
from topics.kafka.reader import read_records, reading, topic_state

BY_HEADER: Final = "headstart.by"
REASON_HEADER: Final = "headstart.reason"
"""Of a record without a value, which says who no longer wants something set, and why."""
_PATIENCE_S: Final = 5.0
"""How long a broker that is asked where the log ends may take."""
_MOST_AHEAD_S: Final = 1_000 * 366 * 86_400
"""How far a log's number may be ahead of the clock. It grows with the clock, so that a log that
begins anew after one with the largest number can still have a larger one."""


class PreviousCommands(NamedTuple):
    """What an earlier log left elsewhere: what was in force, and the log's number, 0 if none."""

    commands: Sequence[Command]
    number: int


async def read_commands(kafka: str) -> CommandState:
    """Return what is in force now. What is no command is passed over.

    Commands that an open transaction holds back count, up to the high watermark, unless they are
    part of a transaction themselves: see `topics.commands.tail`.

    Raises `BrokerUnreachable`, and `TopicsMissing` where the log was not begun.
    """
    found = await _read(kafka)
    if found.number is None:
        raise TopicsMissing(kafka, [COMMANDS.name])
    return found


async def _read(kafka: str) -> CommandState:
    state, found = await topic_state(kafka, COMMANDS.name), _empty_state()
    async for record in read_records(kafka, COMMANDS.name, state.begin, state.end):
        _apply(found, record)
    async for record in outside_transactions(kafka, COMMANDS.name, state.end[0], state.high[0]):
        _apply(found, record)
    found.read_to = max(state.end[0], state.high[0])
    return found


async def is_whole(kafka: str, state: CommandState) -> bool:
    """Return whether `state` is what all of the log says: nothing was appended since it was read.

    False, too, where the broker does not say in time where the log ends.
    """
    try:
        async with asyncio.timeout(_PATIENCE_S):
            now = await topic_state(kafka, COMMANDS.name)
    except (KafkaError, OSError, TopicsMissing):  # of which one is `TimeoutError`
        return False
    return max(now.end[0], now.high[0]) == state.read_to


def _empty_state() -> CommandState:
    return CommandState(int(time.time()) + _MOST_AHEAD_S)


def _apply(state: CommandState, record: Any) -> CommandTarget | None:
    """Take a record; what is no command is passed over: the worker that follows the log says so."""
    with suppress(ValueError):
        return state.apply(record.key, record.value, record.offset)
    return None


async def begin_commands(
    kafka: str, remembered: Callable[[], Awaitable[PreviousCommands]]
) -> int | None:
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


async def send_commands(kafka: str, commands: Iterable[Command]) -> int:
    """Set something; return the last record's offset, -1 without any, once the broker has it.

    Raises `BrokerUnreachable`.
    """
    return await _send(kafka, [(command_key(each), encode_command(each)) for each in commands])


async def unset_commands(kafka: str, keys: Iterable[bytes], by: str, reason: str) -> int:
    """Take back what is set under these keys; return as `send_commands` does.

    Raises `BrokerUnreachable`.
    """
    headers = [(BY_HEADER, by.encode()), (REASON_HEADER, reason.encode())]
    return await _send(kafka, [(key, None) for key in keys], headers)


async def _send(
    kafka: str,
    records: Iterable[tuple[bytes, bytes | None]],
    headers: Sequence[tuple[str, bytes]] = (),
) -> int:
    last = -1
    try:
        producer = await start_producer(kafka)
        try:
            for key, value in records:  # one after the other: their order is what they mean
                sent = await producer.send_and_wait(
                    COMMANDS.name, value, key=key, partition=0, headers=list(headers)
                )
                last = sent.offset
        finally:
            await producer.stop()
    except (KafkaError, OSError) as error:
        raise BrokerUnreachable(kafka, error) from error
    return last


class CommandFollower:
    """Follows the log outside any group; `state` is what is in force as far as it was read."""

    def __init__(self, kafka: str) -> None:
        self._kafka = kafka
        self.state = self._committed = _empty_state()
        self._tail = CommandTail(kafka, COMMANDS.name)

    async def changes(
        self, refused: Callable[[int, str], None], idle_ms: int
    ) -> AsyncGenerator[set[CommandTarget], None]:
        """Yield the places that changed; the first time, once all of the log is read.

        After `idle_ms` without a change it yields none. What an open transaction holds back is read
        as `read_commands` does. `refused` is told the offset of what is no command, and why. Raises
        `BrokerUnreachable` and `TopicsMissing`; a broker that is only away for a while is waited
        for.
        """
        log = await topic_state(self._kafka, COMMANDS.name)
        self.state = self._committed = _empty_state()
        self._tail = CommandTail(self._kafka, COMMANDS.name)
        tp, changed = TopicPartition(COMMANDS.name, 0), set[CommandTarget]()
        begin, earliest = {0: log.begin[0]}, {"auto_offset_reset": "earliest"}
        async with reading(self._kafka, COMMANDS.name, begin, **earliest) as consumer:
            try:
                while True:
                    for records in (await consumer.getmany(tp, timeout_ms=idle_ms)).values():
                        changed |= self._apply(records, refused)
                    at = await consumer.position(tp)
                    if at < max(log.end[0], consumer.last_stable_offset(tp) or 0):
                        continue
                    high = max(log.high[0], consumer.highwater(tp) or 0)
                    whole = await self._overlay(at, high, changed)
                    self.state.read_to = max(at, high)
                    if whole and self.state.number is not None:
                        yield changed
                        changed = set()
            except (KafkaError, OSError) as error:
                raise BrokerUnreachable(self._kafka, error) from error

    async def _overlay(self, at: int, high: int, changed: set[CommandTarget]) -> bool:
        """Have `state` be that up to `high`; add the places that changed since the last time.

        Return False where what is held back between `at` and `high` could not be read.
        """
        before = {each.offset for each in self._tail.records}
        whole = await self._tail.read(at, high)
        if not self._tail.records:
            self.state = self._committed
        else:
            self.state = deepcopy(self._committed)
            for record in self._tail.records:
                place = _apply(self.state, record)
                if place is not None and record.offset not in before:
                    changed.add(place)
        return whole

    def _apply(
        self, records: Iterable[Any], refused: Callable[[int, str], None]
    ) -> set[CommandTarget]:
        changed = set()
        for record in records:
            try:
                place = self._committed.apply(record.key, record.value, record.offset)
            except ValueError as error:
                refused(record.offset, str(error))
            else:
                changed |= {place} if place else set()
        return changed
