"""Opens connections to Postgres and Redis. Does not retry.

Error messages contain the address and a remedy, never the password.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from itertools import zip_longest
from typing import Any, Final

import orjson
import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.json import set_json_loads
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MasterDownError, ReadOnlyError, ResponseError

from headstart.connections.redis_clients import REDIS_ERRORS, connect_async
from headstart.connections.redis_urls import is_cluster_url
from headstart.connections.secret_variables import current_address
from headstart.connections.trouble import Trouble
from headstart.scrubbing.masking import HIDDEN, masked, needs_encoding, passwords_in
from headstart.thresholds.reader import redis_address
from sinks import tls_probes
from sinks.redis_errors import REDIS, redis_trouble
from sinks.service_errors import POSTGRES, postgres_trouble

CONNECT_TIMEOUT_S = 5
"""Timeout for connecting to one host of Postgres."""
_KEEPALIVES: Final = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
"""A host that died without closing its connections is noticed within 30 s, and not after hours."""


class DatabaseUnreachable(ConnectionError):
    """Postgres or Redis cannot be used.

    `trouble`: the problem and its remedy, if known; None: the service probably does not run.
    """

    def __init__(self, at: str, trouble: Trouble | None, reason: str, setting: str) -> None:
        """`at`: the service and its address; `setting`: where the address is configured."""
        self.trouble = trouble
        if trouble is not None:
            super().__init__(f"{at}: {trouble.what}; {trouble.remedy}")
        else:
            super().__init__(
                f"{at} is unreachable ({reason}); start one with `headstart up`, or name yours: "
                f"{setting}"
            )


class PostgresUnreachable(DatabaseUnreachable):
    """Postgres refused the connection or did not answer."""

    def __init__(self, dsn: str, reason: BaseException) -> None:
        at, trouble = f"Postgres at {postgres_address(dsn)}", postgres_trouble(dsn, reason)
        super().__init__(at, trouble, _one_line(reason, dsn), POSTGRES)


POSTGRES_LOST: Final = (
    PostgresUnreachable,
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,
)
"""Errors after which a connection is opened again: Postgres is away, or has become a replica."""
PATIENT_S: Final = 5.0
"""How long a command waits for Redis. On a busy host a TLS handshake alone may take over 2 s."""
_SERVER_ENDS: Final = ("08", "57P")
"""Beginnings of the SQLSTATEs of lost connections, and of a server that starts or stops."""


@contextmanager
def reporting_lost_connections(dsn: str) -> Iterator[None]:
    """Raise `PostgresUnreachable` if the server stops or is gone while the block runs."""
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        if error.sqlstate is None or error.sqlstate.startswith(_SERVER_ENDS):
            raise PostgresUnreachable(dsn, error) from error
        raise


class RedisUnreachable(DatabaseUnreachable):
    """Redis refused the connection, did not answer in time, or refused a command."""

    def __init__(self, url: str, reason: BaseException) -> None:
        at, trouble = f"Redis at {redis_address(url)}", redis_trouble(url, reason)
        super().__init__(at, trouble, _one_line(reason, url), REDIS)


def postgres_address(dsn: str) -> str:
    """Return `host:port/dbname` of a connection string or URL, without its password."""
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        return "an invalid connection string"
    if needs_encoding(dsn):
        return masked(dsn)
    at = ",".join(f"{host}:{port}" for host, port in _hosts(given))
    return f"{at}/{given.get('dbname') or ''}"


def address_of_each_host(dsn: str) -> dict[str, str]:
    """Return the connection string of each host, whatever it is, by `host:port`.

    Raises psycopg's `ProgrammingError` if `dsn` cannot be parsed.
    """
    given = conninfo_to_dict(dsn)
    addresses = _several(given.get("hostaddr"))
    found = {}
    for place, (host, port) in enumerate(_hosts(given)):
        own = {**given, "host": host, "port": port, "target_session_attrs": "any"}
        if place < len(addresses) and addresses[place]:
            own["hostaddr"] = addresses[place]
        found[f"{host}:{port}"] = make_conninfo("", **own)
    return found


def _hosts(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the host and port of each host of a parsed connection string, at least of one."""
    hosts, ports = _several(given.get("host") or given.get("hostaddr")), _several(given.get("port"))
    ports *= len(hosts) if len(ports) == 1 else 1
    return [
        (host or "localhost", port or "5432")
        for host, port in zip_longest(hosts, ports, fillvalue="")
    ]


def _several(value: object) -> list[str]:
    return str(value or "").split(",")


def postgres_options(dsn: str) -> dict[str, Any]:
    """Return the libpq parameters that connections get in addition to those of `dsn`.

    With several hosts that is the search for the one that takes writes: the first that answers may
    be a replica. Raises psycopg's `ProgrammingError` if `dsn` cannot be parsed.
    """
    given = conninfo_to_dict(dsn)
    options: dict[str, Any] = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "application_name": "headstart",
        **_KEEPALIVES,
    }
    if len(_hosts(given)) > 1:
        options["target_session_attrs"] = "read-write"
    return {name: value for name, value in options.items() if name not in given}


def _one_line(reason: BaseException, dsn: str) -> str:
    text = masked(" ".join(str(reason).split()) or type(reason).__name__)
    if isinstance(reason, psycopg.ProgrammingError):
        return "it cannot be parsed"  # libpq's message quotes the string with its password
    for password in passwords_in(dsn):
        if len(password) > 3:  # a shorter one may be part of any word
            text = text.replace(password, HIDDEN)
    return text


async def connect_postgres(dsn: str) -> AsyncConnection[Any]:
    """Return an open connection in autocommit mode; transactions are begun explicitly.

    A `dsn` that came from a file is read there again. JSON is decoded by orjson. Raises
    `PostgresUnreachable`.
    """
    dsn = current_address(dsn)
    try:
        connection: AsyncConnection[Any] = await AsyncConnection.connect(
            dsn,
            autocommit=True,
            client_encoding="UTF8",  # the encoding of the COPY blocks
            **postgres_options(dsn),
        )
    except (psycopg.Error, OSError) as error:
        if tls_probes.UNEXPLAINED.search(str(error)):  # the server is asked for its certificate
            raise await asyncio.to_thread(PostgresUnreachable, dsn, error) from error
        raise PostgresUnreachable(dsn, error) from error
    set_json_loads(_loads, connection)
    return connection


def _loads(raw: str | bytes) -> Any:
    """Decode JSON; integers beyond 64 bits, which older versions stored, become floats."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return json.loads(raw, parse_int=float)


@contextmanager
def reporting_redis_errors(url: str) -> Iterator[None]:
    """Raise `RedisUnreachable` if a command in the block fails."""
    try:
        yield
    except REDIS_ERRORS as error:
        raise RedisUnreachable(url, error) from error


@asynccontextmanager
async def redis_client(url: str) -> AsyncIterator[Any]:
    """Yield a client for a few commands; each may take `PATIENT_S`.

    That is longer than a worker waits, which asks again. Raises `RedisUnreachable` if one fails.
    """
    client = connect_redis(url, PATIENT_S)
    try:
        with reporting_redis_errors(url):
            yield client
    finally:
        await client.aclose()


class _LeavesReplica:
    """Mixin of a connection that disconnects when its server has become a replica.

    After a failover such a server may keep its connections, while its host name resolves to the new
    primary; of redis-py's connections only Sentinel's reconnect then.
    """

    async def read_response(self, *args: Any, **more: Any) -> Any:
        """Return a response, as redis-py does."""
        try:
            return await super().read_response(*args, **more)  # type: ignore[misc]
        except ResponseError as error:
            # Before Redis 7, a script's error contains the original one as text.
            if isinstance(error, (ReadOnlyError, MasterDownError)) or "-READONLY" in str(error):
                await self.disconnect()  # type: ignore[attr-defined]
            raise


@cache
def _leaves_replica(kind: Any) -> Any:
    return type(kind.__name__, (_LeavesReplica, kind), {})


def connect_redis(url: str, timeout_s: float = 2.0) -> Any:
    """Return a client that connects on its first command and times out after `timeout_s`.

    Reconnects once if Redis has closed the connection; other retries are the caller's. That of a
    cluster tries again once with the masters that there are then. Raises `RedisUnreachable` if the
    URL cannot be parsed.
    """
    try:
        client = connect_async(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
        )
        if is_cluster_url(url):  # the client has validated its options
            return client
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)  # validates options, does not connect
    except (ValueError, TypeError, *REDIS_ERRORS) as error:  # it may quote part of the password
        raise RedisUnreachable(url, ValueError(str(error))) from None
    kind: Any = pool.connection_class
    pool.connection_class = _leaves_replica(kind)
    return client
