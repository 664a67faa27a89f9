"""The whole of Headstart on one machine: local stack, topics, schema, workers; and its drain.

`headstart up`, the demo and the integration tests all run this one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from deploy.local import Addresses, Stack, StackConfig
from deploy.partitions import require_partitions
from deploy.supervisor import WORKERS, Supervisor
from sinks.commands import remembered_by
from sinks.connections import connect_postgres
from sinks.epochs import known_epochs, remember_epoch
from sinks.migrate import migrate
from sinks.progress import stored_offsets
from topics.admin import committed_offsets, describe_topics
from topics.catalogue import EPISODES_GROUP, EVENTS, HISTORY_GROUP, THRESHOLDS, THRESHOLDS_GROUP
from topics.command_log import begin_commands
from topics.epoch import Epoch, ensure_topics

READY_S: Final = 120.0


class System:
    """Starts everything, in order; stops it in the reverse, drained where the broker forgets."""

    def __init__(
        self,
        config: StackConfig,
        *,
        partitions: int = 8,
        environment: Mapping[str, str] | None = None,
        workers: bool = True,
        say: Callable[[str], None] = lambda _line: None,
    ) -> None:
        """`environment`: further settings for the workers. `say`: where progress goes."""
        self.stack = Stack(config)
        self.data = Path(config.data)
        self._partitions = partitions
        self._environment = dict(environment or {})
        self._with_workers = workers
        self._say = say
        self.supervisor: Supervisor | None = None
        self.epoch: Epoch | None = None

    @property
    def addresses(self) -> Addresses:
        """Where clients connect."""
        return self.stack.addresses

    def start(self) -> Addresses:
        """Start what is configured. Raises `StackError` and what topics and schema raise."""
        if self.stack.forgets:  # its topics are about to be created
            require_partitions(self.data, self._partitions)
        self._say("starting broker, Postgres and Redis")
        addresses = self.stack.start()
        try:
            self.epoch = asyncio.run(prepare(addresses, self._partitions))
            if self._with_workers:
                require_partitions(self.data, self.epoch.partitions)
                self._start_workers(addresses)
        except BaseException:
            self.stop(drain=False)
            raise
        return addresses

    def _start_workers(self, addresses: Addresses) -> None:
        environment = {
            "HEADSTART_KAFKA": addresses.kafka,
            "HEADSTART_POSTGRES": addresses.postgres,
            "HEADSTART_REDIS": addresses.redis,
            "HEADSTART_DATA": str(self.data),
            **self._environment,
        }
        self.supervisor = Supervisor(self.data / "workers", environment, WORKERS)
        self.supervisor.start()
        self._say(f"starting the workers {', '.join(WORKERS)}")
        deadline = time.monotonic() + READY_S
        while not self.supervisor.ready:
            self.check()
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"the workers are not ready after {READY_S:.0f} s; see the logs in "
                    f"{self.data / 'workers' / 'logs'}"
                )
            time.sleep(0.1)
        self.check()  # Postgres has begun processes for them since the last time

    def check(self) -> None:
        """Raise `StackError` when a service died; start workers again that did."""
        self.stack.check()
        for line in self.supervisor.check() if self.supervisor else ():
            self._say(line)

    def drain(self, timeout_s: float) -> bool:
        """Wait until the workers have taken in everything; return whether they have."""
        assert self.epoch is not None
        lag = wait_drained(self.addresses, self.epoch.number, self.check, timeout_s)
        if lag:
            self._say(f"not drained: {lag} records are not yet taken in")
        return lag == 0

    def stop(self, *, drain: bool = True, drain_s: float = 6.0) -> None:
        """Stop everything; drain first where the broker's log ends with it."""
        try:
            if drain and self.stack.forgets and self.supervisor is not None:
                self._say("draining: the embedded broker forgets its log when it stops")
                self.drain(drain_s)
        finally:
            if self.supervisor is not None:
                self.supervisor.stop()
                self.supervisor = None
            self.stack.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop(drain=error is None)


async def prepare(addresses: Addresses, partitions: int) -> Epoch:
    """Create what is missing on the broker and in Postgres; return the log epoch in force."""
    await migrate(addresses.postgres)
    known = await known_epochs(addresses.postgres, addresses.redis)
    _created, epoch = await ensure_topics(addresses.kafka, partitions=partitions, known=known)
    await remember_epoch(addresses.redis, epoch.number)
    now = time.time_ns() // 1_000_000
    await begin_commands(addresses.kafka, remembered_by(addresses.redis, now))
    return epoch


def wait_drained(
    addresses: Addresses, epoch: int, check: Callable[[], None], timeout_s: float
) -> int:
    """Wait until the workers have taken in everything; return how many records are left.

    `check` is called in between; what it raises ends the waiting.
    """
    deadline = time.monotonic() + timeout_s
    while (lag := asyncio.run(total_lag(addresses, epoch))) > 0 and time.monotonic() < deadline:
        check()
        time.sleep(0.2)
    return lag


async def total_lag(addresses: Addresses, epoch: int) -> int:
    """Return how many records the three groups have yet to take in, together."""
    states = await describe_topics(addresses.kafka, [EVENTS.name, THRESHOLDS.name])
    events, thresholds = states[EVENTS.name], states[THRESHOLDS.name]
    learned = await committed_offsets(
        addresses.kafka, THRESHOLDS_GROUP, EVENTS.name, events.partitions
    )
    async with await connect_postgres(addresses.postgres) as connection:
        stored = await stored_offsets(connection, EPISODES_GROUP, EVENTS.name, epoch)
        kept = await stored_offsets(connection, HISTORY_GROUP, THRESHOLDS.name, epoch)
    return (
        _behind(events.end, learned) + _behind(events.end, stored) + _behind(thresholds.end, kept)
    )


def _behind(end: Mapping[int, int], reached: Mapping[int, int]) -> int:
    return sum(max(0, offset - reached.get(partition, 0)) for partition, offset in end.items())
