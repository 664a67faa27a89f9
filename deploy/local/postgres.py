"""The embedded Postgres with pgvector: its cluster, server process and database.

It listens on 127.0.0.1 only and trusts every local user: suitable for a laptop, not for production.
The cluster is in `<data>/postgres`. For root the server runs as another account
(`service_account.py`) from an installation which that account can read (`postgres_install.py`). If
the account cannot traverse the parents of the data directory (a home with mode 0700), the server
gets `/proc/self/cwd` as its data directory, which resolves to the directory it was started in.
"""

import os
import shutil
import signal
from pathlib import Path

from deploy.local import readiness
from deploy.local.child_process import AT_ONCE, Child, Ending
from deploy.local.errors import StackError
from deploy.local.ports import HOST, Ports
from deploy.local.postgres_install import installation
from deploy.local.process_group import ProcessGroup
from deploy.local.secure.servers import SecuredPostgres
from deploy.local.service_account import Account, unprivileged
from deploy.process_priority import BACKGROUND

_NAME = "postgres"
_DATABASE = "headstart"
_INITDB_SECONDS = 120.0
_READY_SECONDS = 60.0  # recovery after a crash may take long
_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",  # a path below the data directory can be too long for one
    "shared_buffers": "64MB",
    "max_connections": "100",
    "log_checkpoints": "off",
}
# SIGINT is the fast shutdown: clients are disconnected, data is written. (SIGTERM would wait for
# the clients.) After SIGQUIT, the immediate shutdown, the next start recovers.
_ENDING = Ending(ask=signal.SIGINT, insist=signal.SIGQUIT, orphaned=signal.SIGINT)


class Postgres:
    """The server as a service of the stack."""

    def __init__(
        self,
        group: ProcessGroup,
        ports: Ports,
        port: int,
        secured: SecuredPostgres | None = None,
    ) -> None:
        self._secured = secured
        self._group = group
        self._ports = ports
        self._wanted = port
        self._cluster = group.data / "postgres"
        self._fresh = group.data / "postgres.new"
        self._port = 0
        self._account: Account | None = None
        self._install = Path()
        self._initdb: Child | None = None
        self.server: Child | None = None
        """Its process, None before `launch`."""

    def prepare(self) -> None:
        """Start initdb if there is no cluster, in a folder beside it, so that it is atomic."""
        self._port = self._ports.reserve("Postgres", self._wanted)
        self._group.claim(_NAME)
        self._account = unprivileged(self._cluster)
        self._install = (
            installation(self._account) if self._secured is None else self._secured.installation()
        )
        if (self._cluster / "PG_VERSION").exists():
            return
        shutil.rmtree(self._fresh, ignore_errors=True)
        self._fresh.mkdir(mode=0o700)
        if self._account is not None:
            os.chown(self._fresh, self._account.uid, self._account.gid)
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]
        self._initdb = self._spawn("initdb", self._fresh, options, AT_ONCE)

    def launch(self) -> None:
        """Finish initdb and start the server."""
        if self._initdb is not None:
            self._initdb.finish(_INITDB_SECONDS)  # `prepare` removes what a failed one left
            self._group.forget(self._initdb)
            self._initdb = None
            self._fresh.rename(self._cluster)
        _remove_stale_pid(self._cluster / "postmaster.pid")
        settings = {"port": str(self._port), **_SETTINGS}
        if self._secured is not None:
            settings |= self._secured.settings(self._cluster, self._account)
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self.server = self._spawn("postgres", self._cluster, options, _ENDING, BACKGROUND)

    def ready(self) -> str:
        """Wait until it answers and create the database; return the DSN."""
        assert self.server is not None
        maintenance = self._dsn("postgres")
        at = f"{HOST}:{self._port}"
        readiness.wait(self.server, lambda: readiness.postgres(maintenance), at, _READY_SECONDS)
        _create_database(maintenance)
        return self._dsn(_DATABASE)

    def _dsn(self, database: str) -> str:
        if self._secured is not None:
            return self._secured.dsn(self._port, database)
        return f"postgresql://postgres@{HOST}:{self._port}/{database}"

    def _spawn(
        self, program: str, cluster: Path, options: list[str], ending: Ending, niceness: int = 0
    ) -> Child:
        argv = [str(self._install / "bin" / program), "-D", self._path(cluster), *options]
        # PGPORT etc. are meant for other servers.
        env = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        env["LC_ALL"] = "C"
        return self._group.spawn(
            _NAME, argv, ending, env=env, cwd=cluster, account=self._account, niceness=niceness
        )

    def _path(self, cluster: Path) -> str:
        if self._account is None or self._account.enters(cluster):
            return str(cluster)
        here = "/proc/self/cwd"
        # Postgres 15 changes its directory to find its own files, and so cannot use `here`.
        if self._secured is None and self._account.enters(here, cwd=cluster):
            return here
        raise StackError(
            f"user {self._account.name}, which runs Postgres for root, cannot enter {cluster}: "
            "choose a data directory that every user can reach, or start as an ordinary user"
        )


def _remove_stale_pid(path: Path) -> None:
    """Remove a pid file whose pid belongs to another program, as after a container's crash.

    We hold the lock that every process of this cluster holds, so the cluster is unused; but
    Postgres only checks that the process exists, and refuses to start. If the process is a
    Postgres, it was started by hand, and the file is kept.
    """
    try:
        pid = int(path.read_text().splitlines()[0])
        program = Path(f"/proc/{pid}/comm").read_text().strip()
    except (OSError, ValueError, IndexError):
        return
    if program != "postgres":
        path.unlink()


def _create_database(maintenance: str) -> None:
    import psycopg
    from psycopg import sql

    with psycopg.connect(maintenance, autocommit=True) as connection:
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [_DATABASE])
        if found.fetchone() is None:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(_DATABASE)))
