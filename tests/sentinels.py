"""A primary and a replica of Redis with logins, and Sentinels that let the replica take over."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import redis

from tests.patience import until
from tests.ports import free_port
from tests.transports import Transport, plain_text

NAME: Final = "headstart-primary"
PASSWORD: Final = "a secret of servers"
"""Of the users `default`, `replica` and `watcher` of the servers."""
_OF_SENTINEL: Final = "a secret of Sentinels"
_SERVER_USERS: Final = (
    ("replica", "+psync +replconf +ping"),
    # What Redis' documentation of Sentinel lists for its user.
    (
        "watcher",
        "allchannels +multi +slaveof +ping +exec +subscribe +config|rewrite +role +publish +info "
        "+client|setname +client|kill +script|kill",
    ),
)
_CONFIG: Final = """bind 127.0.0.1
sentinel monitor {name} 127.0.0.1 {primary} {quorum}
sentinel auth-user {name} watcher
sentinel auth-pass {name} "{password}"
sentinel down-after-milliseconds {name} 3000
sentinel failover-timeout {name} 6000
sentinel sentinel-user default
sentinel sentinel-pass "{of_sentinel}"
user default on ">{of_sentinel}" allkeys allchannels +@all
user client on ">{of_sentinel}" -@all +hello +ping {commands}
"""
_ASKED: Final = "+sentinel|masters +sentinel|get-master-addr-by-name"


class Sentinels:
    """Two servers and some Sentinels. `url`: what clients are given; its first one is away.

    `quorum`: Sentinels that must agree that the primary is away; most of all must then choose the
    one that carries out the failover.
    """

    def __init__(
        self, home: Path, transport: Transport | None = None, *, count: int = 1, quorum: int = 1
    ) -> None:
        self._home, self._transport = home, transport or plain_text()
        self._count, self._quorum = count, quorum
        self._primary, self._replica, *self._sentinels = (free_port() for _ in range(2 + count))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.url = self.url_of(f"default:{quote(PASSWORD)}")

    def url_of(self, login: str) -> str:
        """Return the URL of a user of the servers: `login` is `USER:PASSWORD`, percent-encoded."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in (1, *self._sentinels))
        query = self._transport.query(sentinel_username="client", sentinel_password=_OF_SENTINEL)
        return f"{self._transport.scheme}+sentinel://{login}@{hosts}/{NAME}/0{query}"

    def start(self) -> None:
        """Start all, and wait until every Sentinel knows the others and the replica."""
        self._start_server(self._primary)
        self._start_server(self._replica, replicaof=f"127.0.0.1 {self._primary}")
        until(lambda: self._info(self._replica).get("master_link_status") == "up")
        for port in self._sentinels:
            self._start_sentinel(port)
        for port in self._sentinels:
            until(partial(self._is_ready, port), seen=partial(self._state, port))

    def _start_server(self, port: int, **more: str) -> None:
        login = {"requirepass": PASSWORD, "masteruser": "replica", "masterauth": PASSWORD}
        own = {"bind": "127.0.0.1", "save": "", "repl-diskless-sync-delay": "0"}
        options = {**self._transport.options(port), **own, **login, **more}
        self._run(port, *(word for name, value in options.items() for word in (f"--{name}", value)))
        for user, rules in _SERVER_USERS:
            until(partial(self._has_user, port, user, rules))

    def _has_user(self, port: int, user: str, rules: str) -> bool:
        try:
            with self.server(port) as client:
                client.execute_command("ACL", "SETUSER", user, "on", f">{PASSWORD}", *rules.split())
        except redis.ConnectionError:
            return False
        return True

    def _start_sentinel(self, port: int) -> None:
        options = self._transport.options(port).items()
        config = self._home / f"sentinel-{port}.conf"
        config.write_text(
            "".join(f"{name} {value}\n" for name, value in options)
            + _CONFIG.format(
                name=NAME, primary=self._primary, quorum=self._quorum, password=PASSWORD,
                of_sentinel=_OF_SENTINEL, commands=_ASKED,
            )
        )  # fmt: skip
        self._run(port, str(config), "--sentinel")

    def _is_ready(self, port: int) -> bool:
        state = self._state(port)
        others = state.get("num-other-sentinels")
        return state.get("num-slaves", 0) >= 1 and others == self._count - 1

    def kill_sentinel(self) -> None:
        """End the first Sentinel that runs."""
        self._kill(next(port for port in self._sentinels if port in self._processes))

    def kill_primary(self) -> None:
        """End the primary."""
        self._kill(self._primary)

    def run_on_servers(self, *command: str) -> None:
        """Run a command at the primary and at its replica."""
        for port in self.servers:
            with redis.Redis(port=port, password=PASSWORD, socket_timeout=30) as client:
                client.execute_command(*command)

    def run_on_sentinel(self, *command: str) -> None:
        """Run a command at each Sentinel."""
        for port in self._sentinels:
            with redis.Redis(port=port, password=_OF_SENTINEL, socket_timeout=30) as client:
                client.execute_command(*command)

    def fail_over(self) -> None:
        """Kill the primary, and wait until the Sentinels that run name the other server."""
        self.kill_primary()
        for port in self._sentinels:
            if port in self._processes:
                until(lambda: self._state(port).get("port") == self._replica)  # noqa: B023

    def logs(self) -> str:
        """Return what the Sentinels have logged."""
        return "".join((self._home / f"{port}.log").read_text() for port in self._sentinels)

    def stop(self) -> None:
        """End what runs."""
        for port in list(self._processes):
            self._kill(port)

    def _kill(self, port: int) -> None:
        process = self._processes.pop(port)
        process.kill()
        process.wait(30)

    def _run(self, port: int, *options: str) -> None:
        with open(self._home / f"{port}.log", "ab") as log:
            argv = [self._transport.program, *options]
            self._processes[port] = subprocess.Popen(argv, cwd=self._home, stdout=log)

    def server(self, port: int) -> redis.Redis:
        """Return a client of a server with all rights."""
        return redis.Redis(port=port, password=PASSWORD, **self._timed)

    @property
    def servers(self) -> tuple[int, int]:
        """The ports of the first primary and of its replica."""
        return self._primary, self._replica

    @property
    def _timed(self) -> dict[str, Any]:
        return {"socket_timeout": 5, **self._transport.client}

    def _info(self, port: int) -> dict[str, Any]:
        try:
            with self.server(port) as client:
                return dict(client.info("replication"))
        except redis.RedisError:
            return {}

    def _state(self, port: int) -> dict[str, Any]:
        try:
            with redis.Redis(port=port, password=_OF_SENTINEL, **self._timed) as client:
                return dict(client.sentinel_master(NAME))
        except redis.RedisError:
            return {}


@contextmanager
def running_sentinels(
    home: Path, transport: Transport | None = None, *, count: int = 1, quorum: int = 1
) -> Iterator[Sentinels]:
    """Run two servers and Sentinels in the block."""
    made = Sentinels(home, transport, count=count, quorum=quorum)
    try:
        made.start()
        yield made
    finally:
        made.stop()
