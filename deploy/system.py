"""Runs all of Headstart on one machine: local stack, topics, schema and workers; drains at the end.

A service that dies is restarted. If the embedded broker dies its log is lost: the workers are
killed before a new log begins, and executors' spools send their events again
(docs/decisions/0026).

Used by `headstart up`, the demo and the integration tests.
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

from deploy.access.rights import OPERATOR
from deploy.local import Addresses, Stack, StackConfig, StackError, running
from deploy.local.secure.credentials import USERS
from deploy.partition_check import require_partitions
from deploy.supervisor import Supervisor
from headstart.connections.own_security import use_security
from headstart.shipping.supervisor import ship_leftovers
from headstart.spool.layout import decisions_directory
from sinks.connections import connect_postgres
from sinks.epochs import known_epochs, remember_epoch
from sinks.postgres.migrate import migrate
from sinks.postgres.progress import stored_offsets
from sinks.postgres.rights import require_rights
from sinks.redis.commands import CommandPublisher, commands_in_redis
from topics.catalogue import (
    DECISIONS,
    EPISODES_GROUP,
    EVENTS,
    HISTORY_GROUP,
    PREDICTIONS_GROUP,
    THRESHOLDS,
    THRESHOLDS_GROUP,
)
from topics.commands.log import begin_commands, is_whole, read_commands
from topics.epoch import Epoch, LogInRecreation, ensure_topics
from topics.kafka.groups import committed_offsets
from topics.kafka.topic_states import TopicState, describe_topics
from topics.used_partitions import used_partitions

READY_S: Final = 300.0
"""Workers have a low priority: beside other work on two cores, five took over two minutes."""
_LAG_S: Final = 10.0
"""Timeout of a lag request: without its broker a Kafka client may wait for ever."""
_HEARD_S: Final = 1.0
"""How long the broker outlives the workers' last commits, so that shippers read the committed
offsets and do not send processed events again at the next start."""
_AWAY: Final = (ConnectionError, OSError, KafkaError, psycopg.Error, LookupError)
"""Errors while a service is unreachable."""


class System:
    """Starts everything in order, and stops it in reverse; drains first if the log is volatile."""

    def __init__(
        self,
        config: StackConfig,
        *,
        partitions: int = 8,
        environment: Mapping[str, str] | None = None,
        workers: bool = True,
        echo: Callable[[str], None] = lambda _line: None,
        spool: Path | None = None,
        ending: Callable[[], bool] = lambda: False,
        exact: bool = False,
    ) -> None:
        """`environment`: further settings for the workers. `echo`: called with progress messages.

        `exact`: refuse existing topics with another partition count. `spool`: a spool directory;
        its spools for the embedded broker are shipped when a new log begins, also if no executor
        runs any more. `ending`: returns whether to stop draining early.
        """
        self.stack = Stack(config)
        self.data = Path(config.data)
        self._partitions, self._exact = partitions, exact
        self._environment = dict(environment or {})
        self._with_workers = workers
        self._echo = echo
        self._spool, self._ending = spool, ending
        self._given_up = self._log_lost = False
        self._waits_for = ""
        self.supervisor: Supervisor | None = None
        self.epoch: Epoch | None = None

    @property
    def addresses(self) -> Addresses:
        """The addresses for clients."""
        return self.stack.addresses

    def start(self) -> Addresses:
        """Start everything. Raises `StackError`, and the errors of `prepare`."""
        # Its topics are about to be created; if a stack runs already, starting reports that.
        if self.stack.forgets and running(self.data) is None:
            require_partitions(self.data, self._partitions)
        self._echo("starting broker, Postgres and Redis")
        addresses = self.stack.start()
        try:
            if self.stack.credentials is not None:
                use_security(self.stack.credentials.kafka(OPERATOR))
            self.epoch = self._prepared_unless_recreated()
            if self._with_workers and self.epoch is not None:
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
        of_worker = {}
        if (credentials := self.stack.credentials) is not None:
            of_worker = {name: credentials.variables(name, addresses) for name in USERS}
        self.supervisor = Supervisor(self.data / "workers", environment, of_worker=of_worker)
        self.supervisor.start()
        self._echo(f"starting the workers {', '.join(self.supervisor.names)}")
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
        self.check()  # copies priorities to Postgres' new processes for the workers

    def _prepared_unless_recreated(self) -> Epoch | None:
        """Return the log epoch; None while the log is recreated, which needs the services only."""
        try:
            return self._prepared()
        except LogInRecreation as error:
            if self._with_workers:
                raise RuntimeError(
                    f"{error}. Without a broker of your own, start `headstart up --no-workers`, "
                    "and run it in another terminal"
                ) from error
            self._echo(str(error))
            return None

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
            for directory in (self._spool, decisions_directory(self._spool)):
                with contextlib.suppress(OSError, subprocess.SubprocessError):
                    ship_leftovers(directory, self.addresses.kafka)
        return epoch

    def check(self) -> None:
        """Restart services and workers that died, and report it.

        Waits until a restarted service answers. Raises `StackError` if one ends too often. Call it
        from the main thread, at least every second.
        """
        try:
            for outcome in self.stack.restart_services(self._before_restart):
                self._echo(str(outcome))
        except StackError:
            self._given_up = True
            raise
        if self._log_lost:
            self._begin_log()
        for line in self.supervisor.check() if self.supervisor else ():
            self._echo(line)

    def _before_restart(self, name: str) -> None:
        if name == "broker" and self.stack.forgets:
            self._log_lost = True
            if self.supervisor is not None:
                self.supervisor.halt()

    def _begin_log(self) -> None:
        """Create the new broker's topics and log epoch, then restart the workers."""
        if self.stack.down:
            return
        try:
            self.epoch = self._prepared()
        except _AWAY as error:
            if self._waits_for != str(error):
                self._waits_for = str(error)
                self._echo(f"the new log waits: {error}")
            return
        self._log_lost, self._waits_for = False, ""
        self._echo(
            f"the broker's log was lost with it; log epoch {self.epoch.number} begins, workers "
            "start again, and the spools send events again that were not processed"
        )
        if self.supervisor is not None:
            self.supervisor.resume()

    def drain(self, timeout_s: float) -> bool:
        """Wait until the workers have processed every record; return whether they have."""
        deadline = time.monotonic() + timeout_s
        while True:
            lag = self._lag()
            if lag == 0:
                return True
            if time.monotonic() > deadline or self._ending():
                left = "a service is away" if lag is None else f"{lag} records are not processed"
                self._echo(f"not drained: {left}")
                return False
            self._check_while_draining()
            time.sleep(0.2)

    def _check_while_draining(self) -> None:
        """Call `check`, or if a service is not restarted any more, check only the workers."""
        if not self._given_up:
            self.check()
        elif self.supervisor is not None:
            for line in self.supervisor.check():
                self._echo(line)

    def _lag(self) -> int | None:
        """Return the lag of the workers in records; None while a service is unreachable."""
        if self._log_lost or self.epoch is None:
            return None
        try:
            lag = total_lag(self.addresses, self.epoch.number, self.epoch.partitions)
            return asyncio.run(asyncio.wait_for(lag, _LAG_S))
        except _AWAY:
            return None

    def stop(self, *, drain: bool = True, drain_s: float = 6.0) -> None:
        """Stop everything; drain first if the broker's log is volatile."""
        drained = False
        try:
            if drain and self.stack.forgets and self.supervisor is not None:
                self._echo("draining: the embedded broker forgets its log when it stops")
                with contextlib.suppress(StackError):  # a service was given up; `drain` reports it
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
    addresses: Addresses,
    partitions: int,
    *,
    replication: int = 1,
    volatile: bool = False,
    exact: bool = False,
) -> Epoch:
    """Create missing topics and tables, publish modes and overrides; return the log epoch.

    `replication`: copies of each partition. `volatile`: the broker keeps its log in memory.
    `exact`: see `ensure_topics`.
    """
    await migrate(addresses.postgres)
    await require_rights(addresses.postgres)  # else the worker episodes waits without a message
    known = await known_epochs(addresses.postgres, addresses.redis)
    _created, epoch = await ensure_topics(
        addresses.kafka,
        partitions=partitions,
        replication=replication,
        known=known,
        volatile=volatile,
        exact=exact,
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
    """Wait until the workers have processed every record; return how many are left.

    `check` is called meanwhile; its errors are raised.
    """
    deadline = time.monotonic() + timeout_s
    while (lag := asyncio.run(total_lag(addresses, epoch))) > 0 and time.monotonic() < deadline:
        check()
        time.sleep(0.2)
    return lag


async def total_lag(addresses: Addresses, epoch: int, partitions: int | None = None) -> int:
    """Return the total lag of all groups in records.

    `partitions`: of the epoch; those that topics were given later are not read, and do not count.
    """
    states = await describe_topics(addresses.kafka, [EVENTS.name, THRESHOLDS.name, DECISIONS.name])
    if partitions is not None:
        states = used_partitions(states, partitions)
    events, decisions = states[EVENTS.name], states[DECISIONS.name]
    learned = await committed_offsets(
        addresses.kafka, THRESHOLDS_GROUP, EVENTS.name, events.partitions
    )
    modelled = await committed_offsets(
        addresses.kafka, PREDICTIONS_GROUP, DECISIONS.name, decisions.partitions
    )
    unstored = await _unstored(addresses, epoch, states)
    return unstored + _behind(events.end, learned) + _behind(decisions.end, modelled)


async def sink_lag(addresses: Addresses, epoch: int) -> int:
    """Return how many records of events and thresholds the sinks have not stored."""
    states = await describe_topics(addresses.kafka, [EVENTS.name, THRESHOLDS.name])
    return await _unstored(addresses, epoch, states)


async def _unstored(addresses: Addresses, epoch: int, states: Mapping[str, TopicState]) -> int:
    async with await connect_postgres(addresses.postgres) as connection:
        stored = await stored_offsets(connection, EPISODES_GROUP, EVENTS.name, epoch)
        kept = await stored_offsets(connection, HISTORY_GROUP, THRESHOLDS.name, epoch)
    return _behind(states[EVENTS.name].end, stored) + _behind(states[THRESHOLDS.name].end, kept)


def _behind(end: Mapping[int, int], reached: Mapping[int, int]) -> int:
    return sum(max(0, offset - reached.get(partition, 0)) for partition, offset in end.items())
