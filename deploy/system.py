"""The whole of Headstart on one machine: local stack, topics, schema, workers; and its drain.

A service that dies is started again. Where that is the embedded broker its log is lost: the workers
are ended before another one begins, and what executors had sent comes again from their spools
(docs/decisions/0026).

`headstart up`, the demo and the integration tests all run this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psycopg
from aiokafka.errors import KafkaError

from deploy.local import Addresses, Stack, StackConfig, StackError, running
from deploy.partition_check import require_partitions
from deploy.supervisor import WORKERS, Supervisor
from headstart.shipping.supervisor import ship_leftovers
from sinks.connections import connect_postgres
from sinks.epochs import known_epochs, remember_epoch
from sinks.postgres.migrate import migrate
from sinks.postgres.progress import stored_offsets
from sinks.postgres.rights import require_rights
from sinks.redis.commands import CommandPublisher, commands_in_redis
from topics.catalogue import EPISODES_GROUP, EVENTS, HISTORY_GROUP, THRESHOLDS, THRESHOLDS_GROUP
from topics.commands.log import begin_commands, is_whole, read_commands
from topics.epoch import Epoch, ensure_topics
from topics.kafka.admin import committed_offsets, describe_topics

READY_S: Final = 120.0
_LAG_S: Final = 10.0
"""How long to ask for the lag: without its broker a Kafka client may wait for ever."""
_HEARD_S: Final = 1.0
"""How long the broker outlives the workers' last commits, so that shippers hear of them and need
not send what is taken in once more at the next start."""
_AWAY: Final = (ConnectionError, OSError, KafkaError, psycopg.Error, LookupError)
"""What is raised where a service is away for a while."""


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
        spool: Path | None = None,
        ending: Callable[[], bool] = lambda: False,
        exact: bool = False,
    ) -> None:
        """`environment`: further settings for the workers. `say`: where progress goes.

        `exact`: refuse topics that exist with another number of partitions.
        `spool`: a directory; its spools for the embedded broker are shipped when that begins a new
        log, also where no executor runs any more. `ending`: whether to stop without draining to the
        end.
        """
        self.stack = Stack(config)
        self.data = Path(config.data)
        self._partitions, self._exact = partitions, exact
        self._environment = dict(environment or {})
        self._with_workers = workers
        self._say = say
        self._spool, self._ending = spool, ending
        self._given_up = self._log_lost = False
        self._waits_for = ""
        self.supervisor: Supervisor | None = None
        self.epoch: Epoch | None = None

    @property
    def addresses(self) -> Addresses:
        """Where clients connect."""
        return self.stack.addresses

    def start(self) -> Addresses:
        """Start what is configured. Raises `StackError` and what topics and schema raise."""
        # Its topics are about to be created; where a stack runs already, starting says so.
        if self.stack.forgets and running(self.data) is None:
            require_partitions(self.data, self._partitions)
        self._say("starting broker, Postgres and Redis")
        addresses = self.stack.start()
        try:
            self.epoch = self._prepared()
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
                    f"the workers are not ready after {READY_S:.0f} s: "
                    f"{'; '.join(self.supervisor.unready)}; see the logs in "
                    f"{self.data / 'workers' / 'logs'}"
                )
            time.sleep(0.1)
        self.check()  # Postgres has begun processes for them since the last time

    def _prepared(self) -> Epoch:
        epoch = asyncio.run(
            prepare(
                self.addresses,
                self._partitions,
                volatile=self.stack.forgets,
                exact=self._exact,
            )
        )
        if self._spool is not None and self.stack.forgets:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                ship_leftovers(self._spool, self.addresses.kafka)
        return epoch

    def check(self) -> None:
        """Start services and workers again that died, and say so.

        Returns when a service that was started answers. Raises `StackError` where one ends again
        and again. Call it from the main thread, every second or oftener.
        """
        try:
            for outcome in self.stack.restart_services(self._before_restart):
                self._say(str(outcome))
        except StackError:
            self._given_up = True
            raise
        if self._log_lost:
            self._begin_log()
        for line in self.supervisor.check() if self.supervisor else ():
            self._say(line)

    def _before_restart(self, name: str) -> None:
        if name == "broker" and self.stack.forgets:
            self._log_lost = True
            if self.supervisor is not None:
                self.supervisor.halt()

    def _begin_log(self) -> None:
        """Make the new broker's topics and log epoch, then start the workers again."""
        if self.stack.down:
            return
        try:
            self.epoch = self._prepared()
        except _AWAY as error:
            if self._waits_for != str(error):
                self._waits_for = str(error)
                self._say(f"the new log waits: {error}")
            return
        self._log_lost, self._waits_for = False, ""
        self._say(
            f"the broker's log was lost with it; log epoch {self.epoch.number} begins, workers "
            "start again, and what they had not taken in comes again from the spools"
        )
        if self.supervisor is not None:
            self.supervisor.resume()

    def drain(self, timeout_s: float) -> bool:
        """Wait until the workers have taken in everything; return whether they have."""
        deadline = time.monotonic() + timeout_s
        while True:
            lag = self._lag()
            if lag == 0:
                return True
            if time.monotonic() > deadline or self._ending():
                left = "a service is away" if lag is None else f"{lag} records are not yet taken in"
                self._say(f"not drained: {left}")
                return False
            self._check_while_draining()
            time.sleep(0.2)

    def _check_while_draining(self) -> None:
        """As `check`; where a service was given up, only the workers are looked after."""
        if not self._given_up:
            self.check()
        elif self.supervisor is not None:
            for line in self.supervisor.check():
                self._say(line)

    def _lag(self) -> int | None:
        """Return how many records the workers have yet to take in; None while a service is away."""
        if self._log_lost or self.epoch is None:
            return None
        try:
            lag = total_lag(self.addresses, self.epoch.number)
            return asyncio.run(asyncio.wait_for(lag, _LAG_S))
        except _AWAY:
            return None

    def stop(self, *, drain: bool = True, drain_s: float = 6.0) -> None:
        """Stop everything; drain first where the broker's log ends with it."""
        drained = False
        try:
            if drain and self.stack.forgets and self.supervisor is not None:
                self._say("draining: the embedded broker forgets its log when it stops")
                with contextlib.suppress(StackError):  # given up meanwhile, and said below
                    drained = self.drain(drain_s)
        finally:
            if self.supervisor is not None:
                self.supervisor.stop()
                self.supervisor = None
            if drained and not self._ending():
                time.sleep(_HEARD_S)
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


async def prepare(
    addresses: Addresses, partitions: int, *, volatile: bool = False, exact: bool = False
) -> Epoch:
    """Create what is missing on the broker and in Postgres; return the log epoch in force.

    Modes and overrides are published to Redis. `volatile`: the broker keeps its log in memory.
    `exact`: see `ensure_topics`.
    """
    await migrate(addresses.postgres)
    await require_rights(addresses.postgres)  # else the worker episodes waits, and nothing says why
    known = await known_epochs(addresses.postgres, addresses.redis)
    _created, epoch = await ensure_topics(
        addresses.kafka, partitions=partitions, known=known, volatile=volatile, exact=exact
    )
    await remember_epoch(addresses.redis, epoch.number)
    now = time.time_ns() // 1_000_000
    await begin_commands(addresses.kafka, commands_in_redis(addresses.redis, now))
    async with CommandPublisher(addresses.redis) as publisher:  # before executors can ask
        state = await read_commands(addresses.kafka)
        await publisher.serve_all(state, now, partial(is_whole, addresses.kafka, state))
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
