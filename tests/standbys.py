"""A primary of Postgres and its streaming replica, which takes over when a test says so."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psycopg

from deploy.local.postgres_install import installation
from deploy.local.service_account import unprivileged
from tests.patience import until
from tests.ports import free_port

_DATABASE: Final = "headstart"
_INITDB: Final = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "shared_buffers": "32MB",
    "autovacuum": "off", "wal_receiver_status_interval": "1s",
}  # fmt: skip


class Server:
    """One server. `dsn`: its own address, which names no other host."""

    def __init__(self, data: Path) -> None:
        self.data, self.port = data, free_port()
        self._account = unprivileged(data)
        self._programs = installation(self._account) / "bin"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{_DATABASE}"

    def create(self) -> None:
        """Make an empty cluster."""
        self.data.mkdir(mode=0o700)
        self._give_to_account()
        argv = [str(self._programs / "initdb"), "-D", self._path(), *_INITDB]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, **self._as_account())

    def copy(self, template: Path, primary: Server | None = None) -> None:
        """Begin as a copy of an empty cluster that does not run; follow a primary, if given one."""
        shutil.copytree(template, self.data)
        if primary is not None:
            (self.data / "standby.signal").touch()
            follows = f"host=127.0.0.1 port={primary.port} user=postgres"
            with open(self.data / "postgresql.auto.conf", "a") as file:
                file.write(f"primary_conninfo = '{follows}'\n")
        self._give_to_account()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = {"port": str(self.port), **_SETTINGS}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        argv = [str(self._programs / "postgres"), "-D", self._path(), *options]
        with open(self.data.with_suffix(".log"), "ab") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log, **self._as_account())
        until(self._answers, seen=lambda: self.data.with_suffix(".log").read_text()[-2000:])

    def ask(self, statement: str, database: str = "postgres") -> Any:
        """Return the first column of the first row."""
        at = self.dsn.replace(f"/{_DATABASE}", f"/{database}")
        with psycopg.connect(at, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None

    def kill(self) -> None:
        """End it and its processes at once, as if its host had lost power."""
        process, self._process = self._process, None
        if process is not None:
            own = _children(process.pid)
            for pid in (process.pid, *own):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait(30)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the server has ended"
        try:
            return bool(self.ask("SELECT 1"))
        except psycopg.OperationalError:
            return False

    def _path(self) -> str:
        """Return the data directory as its account can reach it: pytest's folders are closed."""
        if self._account is None or self._account.enters(self.data):
            return str(self.data)
        return "/proc/self/cwd"

    def _give_to_account(self) -> None:
        if self._account is not None:
            for path in (self.data, *self.data.rglob("*")):
                os.chown(path, self._account.uid, self._account.gid, follow_symlinks=False)

    def _as_account(self) -> dict[str, Any]:
        environment = {key: value for key, value in os.environ.items() if key[:2] != "PG"}
        given: dict[str, Any] = {"env": environment | {"LC_ALL": "C"}, "cwd": self.data}
        if self._account is not None:
            given |= {"user": self._account.uid, "group": self._account.gid, "extra_groups": []}
        return given


class PostgresPair:
    """A primary and a replica. `url`: what workers and commands are given."""

    def __init__(self, home: Path, template: Path) -> None:
        """`template`: an empty cluster that does not run."""
        self._template = template
        self.primary, self.replica = Server(home / "primary"), Server(home / "replica")
        # The replica comes first: a client has to pass over it.
        hosts = f"127.0.0.1:{self.replica.port},127.0.0.1:{self.primary.port}"
        self.url = f"postgresql://postgres@{hosts}/{_DATABASE}"

    def start(self) -> None:
        """Start both, and wait until the replica follows."""
        self.primary.copy(self._template)
        self.primary.start()
        self.replica.copy(self._template, self.primary)
        self.replica.start()
        self.primary.ask(f"CREATE DATABASE {_DATABASE}")
        self.wait_replicated()

    def wait_replicated(self) -> None:
        """Wait until the replica has all that the primary has committed so far."""
        reached = self.primary.ask("SELECT pg_current_wal_lsn()")
        asked = f"SELECT pg_last_wal_replay_lsn() >= '{reached}'"
        until(lambda: self.replica.ask(asked))

    def cut(self) -> None:
        """Stop the replication: what the primary commits from now on is only there."""
        self.replica.ask("ALTER SYSTEM SET primary_conninfo = ''")
        self.replica.ask("SELECT pg_reload_conf()")
        until(lambda: not self.replica.ask("SELECT count(*) FROM pg_stat_wal_receiver"))

    def promote(self) -> None:
        """Make the replica a primary."""
        assert self.replica.ask("SELECT pg_promote(true, 300)")

    def fail_over(self) -> None:
        """Kill the primary, and promote the replica."""
        self.primary.kill()
        self.promote()

    def stop(self) -> None:
        """End what runs."""
        self.primary.kill()
        self.replica.kill()


def _children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(") ")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
    return found
