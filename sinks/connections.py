"""Opens connections to Postgres and Redis, and says clearly when it cannot.

An error names the address, never the password, and what to do. Nothing here retries.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import orjson
import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import set_json_loads
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MasterDownError, ReadOnlyError, RedisError, ResponseError

from headstart.scrubbing.masking import HIDDEN, masked, needs_encoding, passwords_in
from headstart.thresholds.reader import redis_address
from sinks.service_errors import POSTGRES, REDIS, Trouble, postgres_trouble, redis_trouble

CONNECT_TIMEOUT_S = 5
"""How long to wait for Postgres to accept a connection."""


class DatabaseUnreachable(ConnectionError):
    """Postgres or Redis does not serve us.

    `trouble`: what is wrong and how to fix it, where that is known; None: nothing answers there.
    """

    def __init__(self, at: str, trouble: Trouble | None, reason: str, setting: str) -> None:
        """`at`: the service and its address; `setting`: what names it."""
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
    """Return `host:port/dbname` of a connection string or URL, fit to be printed."""
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        return "an address that is no connection string"
    if needs_encoding(dsn):
        return masked(dsn)
    host = given.get("host") or given.get("hostaddr") or "localhost"
    return f"{host}:{given.get('port') or 5432}/{given.get('dbname') or ''}"


def _one_line(reason: BaseException, dsn: str) -> str:
    text = masked(" ".join(str(reason).split()) or type(reason).__name__)
    if isinstance(reason, psycopg.ProgrammingError):
        return "it cannot be parsed"  # libpq's message quotes the string, password and all
    for password in passwords_in(dsn):
        if len(password) > 3:  # a shorter one may be part of any word
            text = text.replace(password, HIDDEN)
    return text


async def connect_postgres(dsn: str) -> AsyncConnection[Any]:
    """Return an open connection in autocommit mode: transactions are begun where they are meant.

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
            client_encoding="UTF8",  # what the COPY blocks are written in
            **{name: value for name, value in defaults.items() if name not in given},
        )
    except (psycopg.Error, OSError) as error:
        raise PostgresUnreachable(dsn, error) from error
    set_json_loads(_loads, connection)
    return connection


def _loads(raw: str | bytes) -> Any:
    """Return JSON; of numbers beyond any float, which older versions stored, what is nearest."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return json.loads(raw, parse_int=float)


@asynccontextmanager
async def redis_client(url: str) -> AsyncIterator[Any]:
    """Give a client for a few questions. Raises `RedisUnreachable` where one is not answered."""
    client = connect_redis(url)
    try:
        yield client
    except (RedisError, OSError) as error:
        raise RedisUnreachable(url, error) from error
    finally:
        await client.aclose()


class _Leaving:
    """A connection that is closed where its server has become a replica.

    After a failover such a server may keep its connections, while its name leads elsewhere; of
    redis-py's own connections only Sentinel's leave it.
    """

    async def read_response(self, *args: Any, **more: Any) -> Any:
        """Return a response, as redis-py does."""
        try:
            return await super().read_response(*args, **more)  # type: ignore[misc]
        except ResponseError as error:
            # Before Redis 7 what a script meets is text within an error of its own.
            if isinstance(error, (ReadOnlyError, MasterDownError)) or "-READONLY" in str(error):
                await self.disconnect()  # type: ignore[attr-defined]
            raise


@cache
def _leaving(kind: Any) -> Any:
    return type(kind.__name__, (_Leaving, kind), {})


def connect_redis(url: str, timeout_s: float = 2.0) -> Redis:
    """Return a client that connects on its first command and gives up after `timeout_s`.

    A connection that Redis has closed meanwhile is opened anew once; all else is the caller's.
    Raises `RedisUnreachable` where the URL cannot be parsed.
    """
    try:
        client: Redis = Redis.from_url(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
        )
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)  # which checks its options; nothing opens
    except (ValueError, TypeError, RedisError) as error:  # it may quote a part of the password
        raise RedisUnreachable(url, ValueError(str(error))) from None
    kind: Any = pool.connection_class
    pool.connection_class = _leaving(kind)
    return client
