"""Opens connections to Postgres and Redis. Does not retry.

Error messages contain the address and a remedy, never the password.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import Any

import orjson
import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import set_json_loads
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MasterDownError, ReadOnlyError, ResponseError

from headstart.connections.redis_clients import REDIS_ERRORS, connect_async
from headstart.connections.redis_urls import is_cluster_url
from headstart.connections.trouble import Trouble
from headstart.scrubbing.masking import HIDDEN, masked, needs_encoding, passwords_in
from headstart.thresholds.reader import redis_address
from sinks.service_errors import POSTGRES, REDIS, postgres_trouble, redis_trouble

CONNECT_TIMEOUT_S = 5
"""Timeout for connecting to Postgres."""


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
    host = given.get("host") or given.get("hostaddr") or "localhost"
    return f"{host}:{given.get('port') or 5432}/{given.get('dbname') or ''}"


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

    JSON is decoded by orjson. Raises `PostgresUnreachable`.
    """
    defaults: dict[str, Any] = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "application_name": "headstart",
    }
    try:
        given = conninfo_to_dict(dsn)
        connection: AsyncConnection[Any] = await AsyncConnection.connect(
            dsn,
            autocommit=True,
            client_encoding="UTF8",  # the encoding of the COPY blocks
            **{name: value for name, value in defaults.items() if name not in given},
        )
    except (psycopg.Error, OSError) as error:
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
    """Yield a client for a few commands. Raises `RedisUnreachable` if one fails."""
    client = connect_redis(url)
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
