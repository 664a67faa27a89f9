"""A Redis Cluster of three masters and three replicas, with a login."""

from __future__ import annotations

import secrets
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import redis
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from tests.patience import until
from tests.ports import free_port
from tests.transports import Transport, plain_text

MASTERS: Final = 3
_PASSWORD: Final = "a secret of nodes"
_LOGIN: Final = f"default:{_PASSWORD.replace(' ', '%20')}"
_OPTIONS: Final = {
    "bind": "127.0.0.1", "save": "", "appendonly": "no", "cluster-enabled": "yes",
    "repl-diskless-sync-delay": "0", "requirepass": _PASSWORD, "masterauth": _PASSWORD,
}  # fmt: skip
NO_ELECTION_MS: Final = 120_000
"""A node timeout with which only the tests let a replica take over, however slow the machine is."""


class Node:
    """One server. `client`: redis-py's."""

    def __init__(self, home: Path, transport: Transport, node_timeout_ms: int) -> None:
        self._home, self._transport = home, transport
        self.port, self.bus = free_port(), free_port()
        self._options = {
            **_OPTIONS,
            **transport.options(self.port),
            "cluster-port": str(self.bus),
            "cluster-node-timeout": str(node_timeout_ms),
            "cluster-config-file": f"nodes-{self.port}.conf",
        }
        self.id = secrets.token_hex(20)
        self.config = home / self._options["cluster-config-file"]
        self.client = redis.Redis(
            port=self.port, password=_PASSWORD, socket_timeout=30, **transport.client
        )
        self.process: subprocess.Popen[bytes] | None = None
        self.hangs = False

    def start(self) -> None:
        """Start the server; `until(self.answers)` waits for it."""
        argv = [self._transport.program]
        for name, value in self._options.items():
            argv += [f"--{name}", value]
        with open(self._home / f"{self.port}.log", "ab") as log:
            self.process = subprocess.Popen(argv, cwd=self._home, stdout=log)

    def answers(self) -> bool:
        """Return whether the server answers."""
        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False

    def run(self, *command: object) -> Any:
        """Run a command at this node only."""
        return self.client.execute_command(*command)

    def info(self) -> dict[str, Any]:
        """Return the section on replication."""
        return dict(self.client.info("replication"))

    def hang(self) -> None:
        """Stop the server until `go_on`."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        self.hangs = True

    def go_on(self) -> None:
        """End `hang`."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.hangs = False

    def log(self) -> str:
        """Return what the server has logged."""
        return (self._home / f"{self.port}.log").read_text()

    def kill(self) -> None:
        """End the server at once."""
        if self.process is not None:
            self.go_on()
            self.process.kill()
            self.process.wait(30)
            self.process = None


class Cluster:
    """Six nodes. `url`: what clients are given; its first node does not answer.

    `node_timeout_ms`: a master that does not answer for so long is replaced by its replica.
    """

    def __init__(
        self,
        home: Path,
        transport: Transport | None = None,
        *,
        node_timeout_ms: int = NO_ELECTION_MS,
    ) -> None:
        self.transport = transport or plain_text()
        self.nodes = [Node(home, self.transport, node_timeout_ms) for _ in range(2 * MASTERS)]
        self.masters, self.replicas = self.nodes[:MASTERS], self.nodes[MASTERS:]
        self.url = self.url_of(_LOGIN)

    def url_of(self, login: str) -> str:
        """Return the URL of a user: `login` is `USER:PASSWORD`, percent-encoded."""
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.nodes[1:3])
        scheme, query = self.transport.scheme, self.transport.query()
        return f"{scheme}+cluster://{login}@127.0.0.1:1,{hosts}{query}"

    def start(self) -> None:
        """Start all, and wait until every node serves, with a replica of each master."""
        self._write_configs()
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            until(node.answers)
        for node in self.nodes:
            until(partial(self._is_ready, node))

    def _write_configs(self) -> None:
        """Write what each node would have learned about the others, which takes them seconds."""
        step = -(-REDIS_CLUSTER_HASH_SLOTS // MASTERS)
        for own in self.nodes:
            lines = []
            for at, node in enumerate(self.nodes):
                myself = "myself," if node is own else ""
                where = f"{node.id} 127.0.0.1:{node.port}@{node.bus} {myself}"
                if node in self.masters:
                    last = min((at + 1) * step, REDIS_CLUSTER_HASH_SLOTS) - 1
                    lines.append(f"{where}master - 0 0 {at + 1} connected {at * step}-{last}")
                else:
                    master = self.masters[at - MASTERS]
                    lines.append(f"{where}slave {master.id} 0 0 {at + 1} connected")
            lines.append(f"vars currentEpoch {2 * MASTERS} lastVoteEpoch 0")
            own.config.write_text("\n".join(lines) + "\n")

    def _is_ready(self, node: Node) -> bool:
        state = node.run("CLUSTER INFO")["cluster_state"]
        role = node.info()
        return state == "ok" and (
            role.get("master_link_status") == "up" or role.get("connected_slaves") == 1
        )

    def owner(self, key: str) -> Node:
        """Return the master of a key's slot."""
        slot = key_slot(key.encode())
        for first, last, master, *_ in self._anyone().run("CLUSTER SLOTS"):
            if first <= slot <= last:
                return next(each for each in self.nodes if each.port == master[1])
        raise AssertionError(f"no master has {key}")

    def _anyone(self) -> Node:
        running = [each for each in reversed(self.nodes) if each.process and not each.hangs]
        return next(each for each in running if each.answers())

    def running_masters(self) -> list[Node]:
        """Return the servers that are masters now."""
        running = [each for each in self.nodes if each.process and not each.hangs]
        return [each for each in running if each.info()["role"] == "master"]

    def replica_of(self, owner: Node) -> Node:
        """Return the replica of a master, once it has all that was written before this call."""
        replica = next(
            each
            for each in self.nodes
            if each.process and each.info().get("master_port") == owner.port
        )
        written = owner.info()["master_repl_offset"]
        until(lambda: replica.info()["slave_repl_offset"] >= written)
        return replica

    def fail_over(self, key: str) -> Node:
        """Kill the master of a key; return the replica that has taken over.

        Nothing that was written before the call is lost.
        """
        owner = self.owner(key)
        replica = self.replica_of(owner)
        owner.kill()
        self.take_over(replica)
        return replica

    def take_over(self, replica: Node) -> None:
        """Make a replica a master, and wait until all nodes that run know it."""
        replica.run("CLUSTER FAILOVER", "TAKEOVER")
        self.until_master(replica)

    def until_master(self, replica: Node) -> None:
        """Wait until all nodes that run know a replica as a master, and serve."""
        running = [each for each in self.nodes if each.process and not each.hangs]

        def known() -> bool:
            return all(
                node.run("CLUSTER INFO")["cluster_state"] == "ok"
                and replica.port in {master[1] for _, _, master, *_ in node.run("CLUSTER SLOTS")}
                for node in running
            )

        until(known)

    def begin_move(self, key: str, target: Node) -> None:
        """Begin to move the slot of a key: what its master lacks is asked of the target."""
        slot, source = key_slot(key.encode()), self.owner(key)
        target.run("CLUSTER SETSLOT", slot, "IMPORTING", source.id)
        source.run("CLUSTER SETSLOT", slot, "MIGRATING", target.id)

    def move_keys(self, key: str, target: Node) -> None:
        """Move all keys of a key's slot."""
        slot, source = key_slot(key.encode()), self.owner(key)
        while keys := source.run("CLUSTER GETKEYSINSLOT", slot, 100):
            source.run(
                "MIGRATE", "127.0.0.1", target.port, "", 0, 30_000,
                "AUTH", _PASSWORD, "KEYS", *keys,
            )  # fmt: skip

    def end_move(self, key: str, target: Node) -> None:
        """End the move of a slot, first at the target."""
        slot, source = key_slot(key.encode()), self.owner(key)
        name = target.id
        for node in (target, source, *self.masters):
            if node.process:
                node.run("CLUSTER SETSLOT", slot, "NODE", name)
        until(lambda: self.owner(key) is target)

    def stop(self) -> None:
        """End what runs."""
        for each in self.nodes:
            each.client.close()
            each.kill()


@contextmanager
def running_cluster(
    home: Path, transport: Transport | None = None, *, node_timeout_ms: int = NO_ELECTION_MS
) -> Iterator[Cluster]:
    """Run a cluster in the block."""
    made = Cluster(home, transport, node_timeout_ms=node_timeout_ms)
    try:
        made.start()
        yield made
    finally:
        made.stop()
