"""Everything that runs during chaos: services, workers under supervision, executors."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from aiokafka.errors import KafkaError

from deploy.local import Addresses
from deploy.supervisor import Supervisor
from deploy.system import prepare, total_lag
from tests.chaos.cluster import Cluster
from tests.chaos.executor import Work, command
from tests.chaos.proxy import Proxy
from tests.chaos.services import KillableServer, Startable, services
from tests.patience import until
from topics.epoch import Epoch, read_epoch

PARTITIONS = 4
EXECUTORS = 3
READY_S = 300.0
WORKERS = (("0", ("episodes", "thresholds", "history")), ("1", ("thresholds",)))
"""By instance."""
LOADED_S = 3.0
"""For spares to load their code."""

Undo = Callable[[], None]
"""What ends a fault that lasts: brings back what was killed."""


class World:
    """A system on Apache Kafka with two threshold workers, from `with` to its end."""

    def __init__(self, folder: Path, brokers: int = 1, before: Path | None = None) -> None:
        """`brokers`: 1, or as many as a `Cluster` has; then each record has as many copies.

        `before`: the tree of another version, which begins.
        """
        self.folder = folder
        self.services: dict[str, KillableServer] = services(folder / "services")
        self._copies, self._cluster = brokers, None
        if brokers > 1:
            del self.services["kafka"]
            self._cluster = Cluster(folder / "services" / "kafka-cluster")
        self.addresses = Addresses("", "", "")
        self.epoch = Epoch(0, 0)
        self.proxy: Proxy | None = None
        """Between workers and Postgres."""
        self.spool = folder / "spool"
        self.executors: dict[int, subprocess.Popen[bytes]] = {}
        self.messages: list[str] = []
        self._supervisors: list[Supervisor] = []
        self._started = 0
        self._before = before

    @property
    def cluster(self) -> Cluster:
        """The brokers, if there are several."""
        assert self._cluster is not None, "this fault needs --brokers 3"
        return self._cluster

    def _all_services(self) -> dict[str, Startable]:
        cluster = {} if self._cluster is None else {"kafka": self._cluster}
        return {**cluster, **self.services}

    def __enter__(self) -> World:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        found = {name: service.start() for name, service in self._all_services().items()}
        self.addresses = Addresses(**found)
        if self._before is None:
            self.epoch = asyncio.run(prepare(self.addresses, PARTITIONS, replication=self._copies))
        else:
            self._prepare_before(self._before)
        self.proxy = Proxy(urlsplit(found["postgres"]).port or 0)
        for instance, names in WORKERS:
            self._supervisors.append(self.supervise(instance, names, self._before))
        self.wait_ready()
        self.sleep(LOADED_S)

    def _prepare_before(self, tree: Path) -> None:
        """Create tables and topics by the commands of another version."""
        at = self.addresses
        settings = {"HEADSTART_KAFKA": at.kafka, "HEADSTART_POSTGRES": at.postgres}
        environment = {**settings, "HEADSTART_REDIS": at.redis, **code_of(tree)}
        self._run(["-P", "-m", "cli", "migrate"], environment)
        partitions = ["--partitions", str(PARTITIONS)]
        self._run(["-P", "-m", "cli", "topics", "create", *partitions], environment)
        self.epoch = asyncio.run(read_epoch(at.kafka))

    def upgrade(self, instance: str) -> None:
        """Replace the workers of one instance by those of this version; wait until they work."""
        place, names = next(
            (place, names) for place, (own, names) in enumerate(WORKERS) if own == instance
        )
        self._supervisors[place].stop()
        self._supervisors[place] = self.supervise(instance, names)
        self.wait_ready()

    def upgrade_executor(self, number: int) -> None:
        """Replace an executor by one of this version."""
        self._before = None
        self.kill_executor(number)

    def wait_ready(self) -> None:
        """Wait until all workers are ready, and have their spares."""
        until(
            lambda: all(each.ready and each.spared for each in self._supervisors),
            READY_S, 0.2, meanwhile=self.look_after, seen=lambda: "the workers are not ready",
        )  # fmt: skip

    def __exit__(self, *_: object) -> None:
        for executor in self.executors.values():
            executor.kill()
            executor.wait()
        for supervisor in self._supervisors:
            supervisor.stop()
        for service in self._all_services().values():
            service.close()
        if self.proxy is not None:
            self.proxy.close()

    def supervise(
        self,
        instance: str,
        names: tuple[str, ...],
        tree: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> Supervisor:
        """Start workers of one instance, in their own data directory; return their supervisor.

        `tree`: of another version, whose code they run. `settings`: further ones.
        """
        assert self.proxy is not None
        at = self.addresses
        port = str(urlsplit(at.postgres).port)
        environment = {
            "HEADSTART_KAFKA": at.kafka,
            "HEADSTART_POSTGRES": at.postgres.replace(port, str(self.proxy.port)),
            "HEADSTART_REDIS": at.redis,
            "HEADSTART_DATA": str(self.data(instance)),
            "HEADSTART_INSTANCE": instance,
            **(code_of(tree) if tree else {}),
            **(settings or {}),
        }
        supervisor = Supervisor(self.data(instance) / "workers", environment, names)
        supervisor.start()
        return supervisor

    def data(self, instance: str) -> Path:
        """The data directory of one instance."""
        return self.folder / f"instance-{instance}"

    def look_after(self) -> None:
        """Start workers again that ended."""
        for supervisor in self._supervisors:
            self.messages += supervisor.check()

    def sleep(self, seconds: float) -> None:
        """Let time pass, looking after the workers."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.look_after()
            time.sleep(0.1)

    @property
    def workers(self) -> dict[str, int]:
        """Process ids by `worker-instance`."""
        return {
            f"{name}-{number}": pid
            for number, supervisor in enumerate(self._supervisors)
            for name, pid in supervisor.pids.items()
        }

    def kill_worker(self, name: str, *, wipe: bool = False) -> None:
        """Kill a worker -9, as a whole group; wipe its data directory too."""
        instance = name.rsplit("-", 1)[1]
        pid, folder = self.workers[name], self.data(instance) / "workers" / name
        if wipe:  # in one instant, before the next one opens anything in it
            folder = folder.rename(folder.with_suffix(f".{pid}"))
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        if wipe:
            shutil.rmtree(folder)

    def start_executors(self, tenant: str, journal: Path, events_per_s: float) -> None:
        """Start executors that emit for one tenant."""
        for number in range(EXECUTORS):
            self.start_executor(number, tenant, journal, events_per_s / EXECUTORS)

    def start_executor(self, number: int, tenant: str, journal: Path, events_per_s: float) -> None:
        """Start one, in the place of one that ended."""
        self._started += 1
        kafka, seed = self.addresses.kafka, self._started
        file = str(journal / str(number))
        work = Work(kafka, str(self.spool), tenant, file, events_per_s, seed)
        self._restart = (tenant, journal, events_per_s)
        with (self.folder / f"executor-{number}.log").open("ab") as log:
            # Each a session, as workers and services are: the kernel shares processors out among
            # sessions first, and three executors and this process would have to do with one share.
            environment = {**os.environ, **(code_of(self._before) if self._before else {})}
            self.executors[number] = subprocess.Popen(
                command(work), stdout=log, stderr=log, start_new_session=True, env=environment
            )

    def kill_executor(self, number: int) -> None:
        """Kill an executor -9 in mid-burst and start another one."""
        self.executors[number].kill()
        self.executors[number].wait()
        self.start_executor(number, *self._restart)

    def queued_s(self) -> float:
        """Return for how long an executor was ready to run and was not run, on average."""
        waits = [
            int(Path(f"/proc/{each.pid}/schedstat").read_text().split()[1])
            for each in self.executors.values()
        ]
        return sum(waits) / len(waits) / 1e9

    def stop_executors(self) -> None:
        """Ask all to end; what they spooled is shipped by others."""
        for executor in self.executors.values():
            executor.terminate()
        for executor in self.executors.values():
            executor.wait(30)
        self.executors.clear()

    def wait_through(self, seconds: float) -> None:
        """Wait until spools are empty and workers have processed everything; ship nothing."""
        deadline = time.monotonic() + seconds
        while (self._spools() or self._lag()) and time.monotonic() < deadline:
            self.sleep(0.1)

    def _spools(self) -> int:
        return sum(each.is_dir() for each in self.spool.iterdir())

    def drain(self, seconds: float) -> int:
        """Wait until spools are empty and workers have taken in everything; return what is left."""
        deadline = time.monotonic() + seconds
        ship = ["-m", "cli", "ship", "--spool", str(self.spool), "--drain", "--timeout", "60"]
        self._run(ship)
        while (lag := self._lag()) and time.monotonic() < deadline:
            self.sleep(0.5)
        return lag

    def _run(self, words: list[str], settings: Mapping[str, str] | None = None) -> None:
        environment = {**os.environ, **(settings or {})}
        with (self.folder / "commands.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *words], stdout=log, stderr=log, env=environment
            )
            while process.poll() is None:
                self.sleep(0.2)
        assert process.returncode == 0, f"{words}: see {self.folder / 'commands.log'}"

    def _lag(self) -> int:
        try:
            return asyncio.run(total_lag(self.addresses, self.epoch.number))
        except (OSError, KafkaError):  # a service that is just coming back
            return -1


def code_of(tree: Path) -> dict[str, str]:
    """Return the environment in which a process runs the code of another tree."""
    return {"PYTHONPATH": os.pathsep.join([str(tree), str(tree / "client")])}


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process for the length of a block, as a frozen machine would."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
