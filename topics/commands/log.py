"""Creates, reads, follows and appends to the log of commands on the broker."""

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
"""Author and reason of a tombstone, which has no value to hold them."""
_END_TIMEOUT_S: Final = 5.0
"""Timeout of the request for the log's end."""
_MAX_NUMBER_AHEAD_S: Final = 1_000 * 366 * 86_400
"""How far a log's number may be ahead of the clock. The limit grows with the clock, so that a new
log can always have a larger number than the one before."""


class PreviousCommands(NamedTuple):
    """The commands in force and the number of an earlier log (0: none), as stored elsewhere."""

    commands: Sequence[Command]
    number: int


async def read_commands(kafka: str) -> CommandState:
    """Return the commands in force now. Invalid records are skipped, and noted in `refused`.

    Reads up to the high watermark: commands behind an open transaction count, unless they are part
    of a transaction themselves (see `topics.commands.tail`).

    Raises `BrokerUnreachable`, and `TopicsMissing` if the log has no `Begin` record.
    """
    found = await _read(kafka)
    if found.number is None:
        raise TopicsMissing(kafka, [COMMANDS.name])
    return found


async def _read(kafka: str) -> CommandState:
    state, found = await topic_state(kafka, COMMANDS.name), _empty_state()
    async for record in read_records(kafka, COMMANDS.name, state.begin, state.end):
        apply_or_note(found, record)
    async for record in outside_transactions(kafka, COMMANDS.name, state.end[0], state.high[0]):
        apply_or_note(found, record)
    found.read_to = max(state.end[0], state.high[0])
    return found


async def is_whole(kafka: str, state: CommandState) -> bool:
    """Return whether nothing was appended to the log since `state` was read.

    Also False if the broker does not return the log's end in time.
    """
    try:
        async with asyncio.timeout(_END_TIMEOUT_S):
            now = await topic_state(kafka, COMMANDS.name)
    except (KafkaError, OSError, TopicsMissing):  # `TimeoutError` is an `OSError`
        return False
    return max(now.end[0], now.high[0]) == state.read_to


def _empty_state() -> CommandState:
    return CommandState(int(time.time()) + _MAX_NUMBER_AHEAD_S)


def _apply(state: CommandState, record: Any) -> CommandTarget | None:
    """Apply a record. Invalid ones are skipped: the worker that follows the log reports them."""
    with suppress(ValueError):
        return state.apply(record.key, record.value, record.offset)
    return None


def apply_or_note(state: CommandState, record: Any) -> None:
    """Apply a record; note an invalid one in `state.refused`."""
    try:
        state.apply(record.key, record.value, record.offset)
    except ValueError as error:
        state.refused[record.offset] = str(error)


async def begin_commands(
    kafka: str, previous: Callable[[], Awaitable[PreviousCommands]]
) -> int | None:
    """Begin a new log; return its number, None if the log has one already.

    The embedded broker loses its log when it stops. The commands that `previous` returns are then
    appended first. No command can be lost in between: none is appended to a log without `Begin`.
    Raises `BrokerUnreachable`, `TopicsMissing`, and what `previous` raises.
    """
    if (await _read(kafka)).number is not None:
        return None
    earlier = await previous()
    begin = Begin(number=max(int(time.time()), earlier.number + 1))
    records = [(command_key(each), encode_command(each)) for each in (*earlier.commands, begin)]
    await _send(kafka, records)
    return begin.number


async def send_commands(kafka: str, commands: Iterable[Command]) -> int:
    """Append commands; return the last acknowledged offset, -1 if there were none.

    Raises `BrokerUnreachable`.
    """
    return await _send(kafka, [(command_key(each), encode_command(each)) for each in commands])


async def unset_commands(kafka: str, keys: Iterable[bytes], by: str, reason: str) -> int:
    """Append tombstones for these keys; return the last offset. Raises `BrokerUnreachable`."""
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
            for key, value in records:  # one after the other, because their order has a meaning
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
    """Follows the log without a consumer group; `state` is what is in force so far."""

    def __init__(self, kafka: str) -> None:
        self._kafka = kafka
        self.state = self._committed = _empty_state()
        self._tail = CommandTail(kafka, COMMANDS.name)

    async def changes(
        self, refused: Callable[[int, str], None], idle_ms: int
    ) -> AsyncGenerator[set[CommandTarget], None]:
        """Yield the targets that changed; the first time, once the whole log is read.

        Yields an empty set after `idle_ms` without a change. Commands behind an open transaction
        are read as in `read_commands`. `refused` is called with the offset of an invalid record and
        the reason. Retries while the broker is away for a short time. Raises `BrokerUnreachable`
        and `TopicsMissing`.
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
        """Set `state` to that at offset `high`, and add to `changed` what differs from before.

        Return False if the records between `at` and `high` could not be read.
        """
        before = {each.offset for each in self._tail.records}
        whole = await self._tail.read(at, high)
        if not self._tail.records:
            self.state = self._committed
        else:
            self.state = deepcopy(self._committed)
            for record in self._tail.records:
                target = _apply(self.state, record)
                if target is not None and record.offset not in before:
                    changed.add(target)
        return whole

    def _apply(
        self, records: Iterable[Any], refused: Callable[[int, str], None]
    ) -> set[CommandTarget]:
        changed = set()
        for record in records:
            try:
                target = self._committed.apply(record.key, record.value, record.offset)
            except ValueError as error:
                refused(record.offset, str(error))
            else:
                changed |= {target} if target else set()
        return changed
