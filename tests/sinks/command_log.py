"""A log of commands in memory, and serving its states in Redis."""

from __future__ import annotations

import asyncio
from typing import Any

from sinks.redis.commands import CommandPublisher
from topics.commands.messages import (
    Begin,
    Command,
    CommandState,
    ThresholdOverride,
    command_key,
    encode_command,
)

PATH = "workflow_type=refund/domain=retail"


def override(tenant: str, speculate: float = 0.9, **more: Any) -> ThresholdOverride:
    return ThresholdOverride(
        tenant=tenant, workflow_type="refund", speculate=speculate, at=1, **more
    )


class Log:
    """A log of commands in memory, and the states after its prefixes."""

    def __init__(self, number: int = 1) -> None:
        begin = Begin(number=number)
        self.records: list[tuple[bytes, bytes | None]] = [(b"log", encode_command(begin))]

    def add(self, command: Command, *, kept: bool = True) -> None:
        self.records.append((command_key(command), encode_command(command) if kept else None))

    def state(self, length: int | None = None) -> CommandState:
        state = CommandState()
        for offset, (key, value) in enumerate(self.records[:length]):
            state.apply(key, value, offset)
        return state


def log_of(*commands: tuple[Command, bool]) -> Log:
    """A log of commands; one that is not set any more has False beside it."""
    log = Log()
    for each, kept in commands:
        log.add(each, kept=kept)
    return log


def serve(url: str, *states: CommandState, now: int = 0) -> list[int]:
    async def run() -> list[int]:
        async with CommandPublisher(url) as publisher:
            return [await publisher.serve(state, state.targets, now) for state in states]

    return asyncio.run(run())
