"""Starts and stops the services of a stack in order, owned by one process.

The services are in `postgres.py`, `redis.py`, `tansu.py` and `apache_kafka.py`.
"""

import os
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Self

from deploy.local import readiness
from deploy.local.apache_kafka import Apache
from deploy.local.config import Addresses, StackConfig
from deploy.local.data_dir_lock import DataDirectoryLock
from deploy.local.errors import StackError, unusable
from deploy.local.ports import Ports
from deploy.local.postgres import Postgres
from deploy.local.process_group import ProcessGroup
from deploy.local.redis import Redis
from deploy.local.secure.credentials import Credentials, require_unsecured
from deploy.local.secure.programs import require_programs
from deploy.local.secure.servers import SecuredBroker, SecuredPostgres, SecuredRedis
from deploy.local.service import ExternalService, Service
from deploy.local.service_restart import Failure, Restart, ServiceRestarter
from deploy.local.tansu import Tansu
from deploy.process_priority import copy_to_child_sessions


class Stack:
    """Broker, Postgres and Redis, from `start` to `stop`, or within a `with` block.

    Start it from the main thread: on Linux the children end with the thread that forked them. They
    end with this process in any case; see `parent_death.py` for platforms without prctl.
    """

    def __init__(self, config: StackConfig) -> None:
        self._config = config
        self._data = config.data.expanduser().resolve()
        self._owner = 0
        self._lock: DataDirectoryLock | None = None
        self._group: ProcessGroup | None = None
        self._addresses: Addresses | None = None
        self.credentials: Credentials | None = None
        """Of a stack that is secured and started."""
        self._restarters: list[ServiceRestarter] = []

    @property
    def addresses(self) -> Addresses:
        """The addresses for clients. Raises `StackError` if it does not run."""
        if self._addresses is None:
            raise StackError("this stack is not started: start it first")
        return self._addresses

    @property
    def forgets(self) -> bool:
        """Whether the broker is the embedded one, whose log is lost when it stops."""
        return self._config.kafka == "embedded"

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of the children, by name."""
        return {child.name: child.pid for child in self._group.children} if self._group else {}

    def start(self) -> Addresses:
        """Start all services and wait until each answers; on a failure stop them all."""
        if self._lock is not None and self._owner == os.getpid():
            raise StackError("this stack is started already: stop it first")
        lock = DataDirectoryLock.acquire(self._data)
        self._lock, self._owner = lock, os.getpid()
        try:
            if self._config.secure:
                require_programs()
                self.credentials = Credentials.opened(self._data)
            else:
                require_unsecured(self._data)
            self._group = ProcessGroup(self._data)
            self._addresses = self._start(lock, self._group)
            return self._addresses
        except BaseException as error:
            self.stop()
            if isinstance(error, OSError):
                raise unusable(self._data, error) from error
            raise

    def stop(self) -> None:
        """Stop every child, if any runs; takes under 7 s unless the machine is busy."""
        if self._owner != os.getpid():  # not started, or forked from the owner
            return
        self._addresses = None
        self._restarters = []
        if self._group is not None:
            self._group.close()
            self._group = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def check(self) -> None:
        """Raise `StackError` if a child has died; copy priorities to the children's processes."""
        for child in self._group.children if self._group else ():
            if not child.alive:
                raise child.failure(child.outcome, "start the stack again")
            copy_to_child_sessions(child.pid)

    def restart_services(
        self, before: Callable[[str], None] = lambda _name: None
    ) -> list[Restart | Failure]:
        """Restart services that died, with back-off, on the same port and data; return the results.

        Calls `before` with a service's name before starting it, and waits until it answers. Raises
        `StackError` if a service ends too often. Main thread.
        """
        done = [
            found
            for restarter in self._restarters
            if (found := restarter.check(before)) is not None
        ]
        if any(isinstance(each, Restart) for each in done) and self._lock is not None:
            self._lock.announce(self.addresses, self.pids, self.restarts)
        for child in self._group.children if self._group else ():
            if child.alive:
                copy_to_child_sessions(child.pid)
        return done

    @property
    def restarts(self) -> dict[str, int]:
        """Number of restarts by name, for services that were restarted."""
        return {
            restarter.name: restarter.restarts
            for restarter in self._restarters
            if restarter.restarts
        }

    @property
    def down(self) -> list[str]:
        """The services that have died and do not answer again yet."""
        return [restarter.name for restarter in self._restarters if restarter.down]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self, lock: DataDirectoryLock, group: ProcessGroup) -> Addresses:
        ports = Ports(self._data)
        try:
            # Postgres first: the others are prepared while initdb runs.
            postgres, redis, kafka = parts = self._parts(group, ports)
            for part in parts:
                part.prepare()
            for part in parts:
                part.launch()
            group.launched()
            found = self._all_ready({"postgres": postgres, "redis": redis, "kafka": kafka})
        finally:
            ports.release()
        addresses = Addresses(**found)
        ports.remember()
        named = {"postgres": postgres, "redis": redis, "broker": kafka}
        self._restarters = [ServiceRestarter(name, part, group) for name, part in named.items()]
        lock.announce(addresses, self.pids)
        return addresses

    def _parts(self, group: ProcessGroup, ports: Ports) -> tuple[Service, Service, Service]:
        if self.credentials is not None:
            return self._secured_parts(group, ports, self.credentials)
        config = self._config
        postgres: Service = ExternalService("Postgres", config.postgres, readiness.postgres)
        redis: Service = ExternalService("Redis", config.redis, readiness.redis)
        kafka: Service = ExternalService("Kafka", config.kafka, readiness.kafka)
        if config.postgres == "embedded":
            postgres = Postgres(group, ports, config.postgres_port)
        if config.redis == "embedded":
            redis = Redis(group, ports, config.redis_port)
        if config.kafka == "embedded":
            kafka = Tansu(group, ports, config.kafka_port)
        elif config.kafka == "apache":
            kafka = Apache(group, ports, config.kafka_port)
        return postgres, redis, kafka

    def _secured_parts(
        self, group: ProcessGroup, ports: Ports, credentials: Credentials
    ) -> tuple[Service, Service, Service]:
        config = self._config
        return (
            Postgres(group, ports, config.postgres_port, SecuredPostgres(credentials)),
            Redis(group, ports, config.redis_port, SecuredRedis(credentials)),
            Apache(group, ports, config.kafka_port, secured=SecuredBroker(credentials)),
        )

    def _all_ready(self, parts: dict[str, Service]) -> dict[str, str]:
        pool = ThreadPoolExecutor(len(parts), thread_name_prefix="ready")
        waiting = {name: pool.submit(part.ready) for name, part in parts.items()}
        try:
            wait(waiting.values(), return_when=FIRST_EXCEPTION)
            for future in waiting.values():
                if future.done():
                    future.result()
            return {name: future.result() for name, future in waiting.items()}
        except BaseException:
            self.stop()  # before joining the pool: the other threads wait for their children
            raise
        finally:
            pool.shutdown()
