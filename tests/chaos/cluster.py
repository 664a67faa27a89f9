"""Three Apache Kafka brokers as one cluster: each is killed, paused and started again by itself.

Every broker is a controller too (KRaft's combined mode). Two of three copies must have a record
before it is acknowledged, as `headstart topics create --replication 3` sets it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from aiokafka.errors import KafkaError

from deploy.local.apache_kafka import Apache, ClusterMember, new_cluster_id
from deploy.local.child_process import Ending
from deploy.local.ports import Ports
from deploy.local.process_group import ProcessGroup
from tests.chaos.proxy import HOST, Proxy
from tests.chaos.services import KillableServer
from tests.patience import until
from topics.kafka.admin import admin_client

BROKERS = 3
SESSION_S = 6.0
"""How long the controller waits for a broker's heartbeat before others lead its partitions."""
WHOLE_S = 120.0
STOPPING_S = 30.0
BEHIND_PROXY = 3
"""The broker that clients and other brokers reach through a proxy."""
DISK_BYTES = 4 << 30
_SPARE_BYTES = 256 << 10
_PROPERTIES = f"""\
default.replication.factor={BROKERS}
min.insync.replicas=2
offsets.topic.replication.factor={BROKERS}
transaction.state.log.replication.factor={BROKERS}
transaction.state.log.min.isr=2
share.coordinator.state.topic.replication.factor={BROKERS}
share.coordinator.state.topic.min.isr=2
broker.session.timeout.ms={SESSION_S * 1000:.0f}
"""
_JAVA_OPTIONS = ("-Xmx256m",)
# Its data is temporary, and three brokers that end at once wait for each other.
_ENDING = Ending(ask=signal.SIGTERM, insist=signal.SIGKILL, orphaned=signal.SIGKILL)

Meanwhile = Callable[[], None]


class Cluster:
    """Three brokers, numbered from 1."""

    def __init__(self, folder: Path) -> None:
        numbers = range(1, BROKERS + 1)
        self._servers: dict[int, KillableServer] = {}
        self._held: list[Ports] = []
        ports: dict[int, tuple[int, int]] = {}
        for number in numbers:
            home = folder / str(number)
            self._servers[number] = KillableServer(partial(self._broker, number), home)
            # To the end: while a broker is away, no other connection may take its port.
            held = Ports(home)
            self._held.append(held)
            ports[number] = held.reserve("Kafka"), held.reserve("Kafka controller")
            held.remember()
        self.proxy = Proxy(ports[BEHIND_PROXY][0])
        advertised = {number: of[0] for number, of in ports.items()}
        advertised[BEHIND_PROXY] = self.proxy.port
        cluster, voters = new_cluster_id(), {number: of[1] for number, of in ports.items()}
        self._members = {
            number: ClusterMember(
                cluster, properties(number, advertised[number], voters), _JAVA_OPTIONS, _ENDING
            )
            for number in numbers
        }
        self.address = ",".join(f"{HOST}:{port}" for port in advertised.values())
        self._disk = folder / str(BROKERS) / "kafka" / "log"
        self._cleanup = ExitStack()
        self.has_small_disk = False
        """Whether one broker has a disk of its own, which `full_disk` fills."""

    def _broker(self, number: int, group: ProcessGroup, ports: Ports, port: int) -> Apache:
        return Apache(group, ports, port, self._members[number])

    @property
    def numbers(self) -> list[int]:
        """The brokers."""
        return list(self._servers)

    def start(self) -> str:
        """Start all; return their addresses once they are one cluster."""
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a line a try, of what is away
        self._mount()
        for server in self._servers.values():
            server.launch()
        for server in self._servers.values():
            server.wait()
        self.wait_whole(lambda: None)
        return self.address

    def kill(self, number: int) -> None:
        """End one without a warning."""
        self._servers[number].kill()

    def terminate(self, number: int) -> None:
        """Ask one to end: it hands over what it leads."""
        self._servers[number].terminate(STOPPING_S)

    def start_again(self, number: int, meanwhile: Meanwhile) -> None:
        """Start one that has ended; return once it has all records again."""
        self._servers[number].kill()  # of one that ended by itself, what it left
        self._servers[number].launch()
        self.wait_whole(meanwhile)
        self._servers[number].wait()

    def pid(self, number: int) -> int:
        """The process id of one."""
        server = self._servers[number].server
        assert server is not None
        return server.pid

    def alive(self, number: int) -> bool:
        """Whether its process runs."""
        server = self._servers[number].server
        return server is not None and server.alive

    def wait_whole(self, meanwhile: Meanwhile) -> None:
        """Wait until every partition has all its copies in sync."""
        until(
            lambda: asyncio.run(_copies_in_sync(self.address)) == BROKERS,
            WHOLE_S, 0.3, meanwhile=meanwhile, seen=lambda: "the brokers are not in sync",
        )  # fmt: skip

    def controller(self) -> int:
        """Return the broker that leads the metadata, from what each of them noted last."""
        states = {}
        for number in self.numbers:
            home = self._home(number) / "log" / "__cluster_metadata-0"
            with suppress(OSError, ValueError):
                states[number] = json.loads((home / "quorum-state").read_text())
        return leader(states.values())

    def coordinator(self, group: str) -> int:
        """Return the broker that coordinates a consumer group."""

        async def ask() -> int:
            async with admin_client(self.address) as client:
                return int(await client.find_coordinator(group))

        return asyncio.run(ask())

    def _home(self, number: int) -> Path:
        return self._disk.parents[2] / str(number) / "kafka"

    def _mount(self) -> None:
        """Give one broker a disk of its own, in memory, if the system permits it."""
        if os.geteuid() != 0:
            return
        self._disk.mkdir(parents=True)
        self.has_small_disk = self._run("mount", "-t", "tmpfs", f"-osize={DISK_BYTES}", "chaos")
        if self.has_small_disk:
            self._cleanup.callback(self._run, "umount", "--lazy")

    @contextmanager
    def full_disk(self) -> Iterator[int]:
        """Leave one broker's disk no room, for the length of a block; yield its number."""
        found = os.statvfs(self._disk)
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        assert self._run("mount", f"-oremount,size={used + _SPARE_BYTES}")
        try:
            yield BROKERS
        finally:
            assert self._run("mount", f"-oremount,size={DISK_BYTES}")

    def _run(self, *words: str) -> bool:
        done = subprocess.run([*words, self._disk], capture_output=True, check=False)
        return done.returncode == 0

    def close(self) -> None:
        """End all at once."""
        for server in self._servers.values():
            server.kill()
            server.close()
        self._cleanup.close()
        self.proxy.close()
        for held in self._held:
            held.release()


def properties(number: int, advertised: int, voters: Mapping[int, int]) -> str:
    """Return what broker `number` has in `server.properties`, beside what one alone has.

    `advertised`: the port at which it is reached. `voters`: controller ports by number.
    """
    quorum = ",".join(f"{each}@{HOST}:{port}" for each, port in voters.items())
    return (
        f"node.id={number}\n"
        f"controller.quorum.voters={quorum}\n"
        f"advertised.listeners=PLAINTEXT://{HOST}:{advertised}\n{_PROPERTIES}"
    )


def leader(states: Iterable[Mapping[str, Any]]) -> int:
    """Return the leader of a quorum, from the `quorum-state` of its members: the newest epoch wins.

    One that is just voting knows no leader (-1) and counts only if no other does.
    """
    known = [(each["leaderId"] > 0, each["leaderEpoch"], each["leaderId"]) for each in states]
    return int(max(known)[2])


async def _copies_in_sync(kafka: str) -> int:
    """Return how many copies the partition has that has the fewest; 0 while nothing answers."""
    try:
        async with asyncio.timeout(5.0), admin_client(kafka) as client:
            brokers = len((await client.describe_cluster())["brokers"])
            topics = await client.describe_topics()
    except (KafkaError, OSError):  # `TimeoutError` is one
        return 0
    copies = [len(each["isr"]) for topic in topics for each in topic["partitions"]]
    return min([brokers, *copies])
