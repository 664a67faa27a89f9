"""Probes whether a service answers in its own protocol."""

import asyncio
import contextlib
import time
from collections.abc import Callable

from deploy.local.child_process import Child
from deploy.local.errors import ServiceRefuses, StackError
from headstart.connections.kafka_security import KafkaSecurity
from headstart.scrubbing.masking import masked

_PAUSE = 0.02


def wait(child: Child, probe: Callable[[], None], at: str, seconds: float) -> None:
    """Repeat the probe until it succeeds. Raises `StackError` if the child ends, or on timeout."""
    deadline = time.monotonic() + seconds
    while True:
        if not child.alive:
            raise child.failure(f"{child.outcome} before it answered at {at}")
        try:
            return probe()
        except Exception as error:  # each client has its own kinds, all mean "not ready yet"
            if time.monotonic() > deadline:
                raise child.failure(
                    f"did not answer at {at} within {seconds:.0f} s ({one_line(error)})",
                    "check whether the machine is overloaded, and start again",
                ) from error
        time.sleep(_PAUSE)


def kafka(address: str, seconds: float = 5.0, security: KafkaSecurity | None = None) -> None:
    """Send a metadata request to `host:port[,host:port]`; one broker that answers is enough.

    `security`: default: the process's own.
    """
    last: Exception | None = None
    for server in address.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError("not of the form host:port")
        try:
            return asyncio.run(_metadata(host.strip("[]"), int(port), seconds, security))
        except Exception as error:  # try the next one, as every client does
            last = error
    raise last or ValueError("no broker given")


async def _metadata(host: str, port: int, seconds: float, security: KafkaSecurity | None) -> None:
    from aiokafka.protocol.metadata import MetadataRequest

    from headstart.connections.kafka_connections import client_options, open_connection

    # A bare connection, because the client class logs each refused attempt as an error.
    timeout = int(seconds * 1000)
    options = client_options(security)
    connection = await open_connection(host, port, request_timeout_ms=timeout, **options)
    try:
        answer = await connection.send(MetadataRequest([]))
    finally:
        with contextlib.suppress(Exception):
            connection.close()
    if not answer.brokers:
        raise ConnectionError("the broker has not joined its cluster yet")


def postgres(dsn: str, seconds: int = 5) -> None:
    """Execute `SELECT 1`; of several hosts, on the one that takes writes."""
    import psycopg

    from sinks.connections import postgres_options

    options = {**postgres_options(dsn), "connect_timeout": seconds}
    with psycopg.connect(dsn, autocommit=True, **options) as connection:
        connection.execute("SELECT 1")


def redis(url: str, seconds: float = 5.0) -> None:
    """Send `PING`; a server that is still loading its data answers with an error."""
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    from headstart.connections.redis_clients import connect

    client = connect(
        url,
        socket_timeout=seconds,
        socket_connect_timeout=seconds,
        retry=Retry(NoBackoff(), 0),
    )
    try:
        client.ping()
    finally:
        client.close()


def one_line(error: BaseException) -> str:
    """Return an exception's text without line breaks and passwords."""
    return masked(" ".join(str(error).split()) or type(error).__name__)


def unreachable(what: str, address: str, error: BaseException) -> StackError:
    """Return the error for an external service that does not answer."""
    from headstart.connections.trouble import Trouble
    from headstart.thresholds.reader import redis_address
    from sinks.connections import postgres_address
    from sinks.redis_errors import redis_trouble
    from sinks.service_errors import postgres_trouble

    at = masked(address)
    known: Trouble | None = None
    if what == "Postgres":
        at, known = postgres_address(address), postgres_trouble(address, error)
    elif what == "Redis":
        at, known = redis_address(address), redis_trouble(address, error)
    if known is not None:
        kind = ServiceRefuses if known.refused else StackError
        return kind(f"{what} at {at}: {known.what}; {known.remedy}")
    return StackError(
        f"{what} at {at} cannot be reached ({one_line(error)}): start it, "
        "correct the address, or use the embedded one"
    )
