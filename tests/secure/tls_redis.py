"""Redis with TLS and client certificates: one server, one that Sentinels name, or a cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Final

import redis

from deploy.local.secure.certificates import LOCAL_HOSTS, CertificateFolder
from deploy.local.secure.programs import redis_server
from tests.patience import until
from tests.ports import free_port

NAME: Final = "headstart-primary"
KINDS: Final = {
    "server": "rediss://127.0.0.1:{port}/0",
    "sentinels": f"rediss+sentinel://127.0.0.1:{{sentinel}}/{NAME}/0",
    "cluster": "rediss+cluster://127.0.0.1:{port}",
}
_QUERY: Final = "?ssl_ca_certs={ca}&ssl_certfile={cert}&ssl_keyfile={key}&ssl_check_hostname=true"


class TlsRedis:
    """Servers of one kind, whose authority is `ca-0` at first. `url`: what clients are given."""

    def __init__(self, home: Path, kind: str) -> None:
        self._home, self._kind = home, kind
        self._port, self._sentinel = free_port(), free_port()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._made = CertificateFolder(home)
        for authority in ("ca-0", "ca-1"):
            self._made.make_ca(authority, days=2)
            for name, hosts in (("server", LOCAL_HOSTS), ("client", "")):
                self._made.sign(f"{name}-{authority}", ca=authority, hosts=hosts, days=2)
        self.files = {name: home / f"used-{name}" for name in ("ca", "cert", "key")}
        self.issue("ca-0", *self.files)
        address = KINDS[kind].format(port=self._port, sentinel=self._sentinel)
        self.url = address + _QUERY.format(**self.files)

    def issue(self, authority: str, *names: str) -> None:
        """Replace these files of the clients: `ca`, `cert`, `key`."""
        client = f"client-{authority}"
        of = {
            "ca": self._made.pem(authority),
            "cert": self._made.pem(client),
            "key": self._made.key(client),
        }
        for name in names:
            new = self.files[name].with_suffix(".new")
            new.write_text(of[name].read_text())
            new.rename(self.files[name])

    def start(self) -> None:
        """Start the servers, and wait until they serve."""
        options = {"port": "0", "tls-port": str(self._port), **self._options("ca-0"), "save": ""}
        if self._kind == "cluster":
            bus = {"cluster-port": str(free_port()), "tls-cluster": "yes"}
            options |= {"cluster-enabled": "yes", "appendonly": "no", **bus}
        self._run([word for name, value in options.items() for word in (f"--{name}", value)])
        self._admin = self._client(self._port, "ca-0")
        until(lambda: _answers(self._admin))
        if self._kind == "cluster":
            self._admin.execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
            until(lambda: self._admin.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
        if self._kind == "sentinels":
            self._start_sentinel("ca-0")

    def rotate(self) -> None:
        """Use the certificates of `ca-1`, accept no others, and end all connections."""
        changes = [word for pair in self._options("ca-1").items() for word in pair]
        self._admin.execute_command("CONFIG", "SET", *changes)
        for kind in ("normal", "pubsub"):
            self._admin.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        if self._kind == "sentinels":  # it cannot load others while it runs
            sentinel = self._processes.pop()
            sentinel.kill()
            sentinel.wait(30)
            self._start_sentinel("ca-1")

    def stop(self) -> None:
        for each in self._processes:
            each.kill()
            each.wait(30)

    def _options(self, authority: str) -> dict[str, str]:
        return {
            "tls-cert-file": str(self._made.pem(f"server-{authority}")),
            "tls-key-file": str(self._made.key(f"server-{authority}")),
            "tls-ca-cert-file": str(self._made.pem(authority)),
        }

    def _start_sentinel(self, authority: str) -> None:
        lines = [f"{name} {value}" for name, value in self._options(authority).items()]
        lines += ["port 0", f"tls-port {self._sentinel}", "tls-replication yes"]
        lines += [f"sentinel monitor {NAME} 127.0.0.1 {self._port} 1"]
        config = self._home / f"sentinel-{authority}.conf"
        config.write_text("\n".join(lines) + "\n")
        self._run([str(config), "--sentinel"])
        with self._client(self._sentinel, authority) as client:
            until(lambda: _answers(client))

    def _client(self, port: int, authority: str) -> Any:
        return redis.Redis(
            port=port, ssl=True, ssl_ca_certs=str(self._made.pem(authority)), socket_timeout=30,
            ssl_certfile=str(self._made.pem(f"client-{authority}")),
            ssl_keyfile=str(self._made.key(f"client-{authority}")),
        )  # fmt: skip

    def _run(self, words: list[str]) -> None:
        with open(self._home / "redis.log", "ab") as log:
            argv = [str(redis_server()), *words]
            self._processes.append(subprocess.Popen(argv, cwd=self._home, stdout=log))


def _answers(client: Any) -> bool:
    try:
        return bool(client.ping())
    except (redis.RedisError, OSError):
        return False
