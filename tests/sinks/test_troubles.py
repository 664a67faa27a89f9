"""A service that refuses is distinguished from one that is away: the remedies differ."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from console.inspection.error_text import short_error
from deploy.local import StackError
from deploy.local.readiness import postgres, redis
from deploy.local.service import ExternalService
from sinks.connections import (
    DatabaseUnreachable,
    PostgresUnreachable,
    RedisUnreachable,
    connect_postgres,
    redis_client,
)
from sinks.service_errors import postgres_trouble

SECRET = "hush-hush"


async def _open(dsn: str) -> None:
    await (await connect_postgres(dsn)).close()


async def _ping(url: str) -> None:
    async with redis_client(url) as client:
        await client.ping()


def refused_postgres(dsn: str) -> str:
    """Return the message of every command about `dsn`, after checking that of `up` and `status`."""
    return _refused(PostgresUnreachable, _open(dsn), ExternalService("Postgres", dsn, postgres))


def refused_redis(url: str) -> str:
    """Return the same of a Redis."""
    return _refused(RedisUnreachable, _ping(url), ExternalService("Redis", url, redis))


def _refused(
    kind: type[DatabaseUnreachable], asking: Coroutine[Any, Any, None], part: ExternalService
) -> str:
    with pytest.raises(kind) as caught:
        asyncio.run(asking)
    with pytest.raises(StackError) as of_up:
        part.ready()
    return _said(caught.value, of_up.value)


def _said(error: DatabaseUnreachable, of_up: StackError) -> str:
    for each in (str(error), str(of_up), short_error(error)):
        assert SECRET not in each
        assert "start one" not in each
        assert "start it" not in each
        assert "\n" not in each
    assert str(error).partition(";")[2] in str(of_up)
    return str(error)


@pytest.mark.integration
def test_a_user_that_postgres_refuses(postgres_dsn: str) -> None:
    output = refused_postgres(make_conninfo(postgres_dsn, user="no_such_user", password=SECRET))
    assert "the password or user is wrong" in output
    assert "correct user and password in --postgres DSN or HEADSTART_POSTGRES" in output


@pytest.mark.integration
def test_a_database_that_does_not_exist(postgres_dsn: str) -> None:
    output = refused_postgres(make_conninfo(postgres_dsn, dbname="no such"))
    assert "the database no such does not exist; create it: createdb -h" in output
    assert "'no such'" in output


@pytest.mark.parametrize(
    "dsn",
    [
        f"localhost:5432/{SECRET}",
        f"host=db password=two {SECRET}",
        f"postgress://u:{SECRET}@db/headstart",
        f"postgresql://u:%zz{SECRET}@db/headstart",
        f"postgresql://u:{SECRET}@db:99999/headstart",
    ],
)
def test_a_dsn_that_cannot_be_parsed(dsn: str) -> None:
    output = refused_postgres(dsn)
    assert "cannot be parsed" in output
    assert "postgresql://USER:PASSWORD@HOST:PORT/DATABASE" in output


@pytest.mark.parametrize(
    ("message", "what", "remedy"),
    [
        ('FATAL:  password authentication failed for user "u"', "user is wrong", "correct user"),
        ("fe_sendauth: no password supplied", "wants a password", "correct user and password"),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1"', "accepts no", "pg_hba.conf"),
        (
            'FATAL:  permission denied for database "d"\nDETAIL:  User does not have CONNECT',
            "may not connect",
            "GRANT CONNECT ON DATABASE d TO u",
        ),
        ("FATAL:  sorry, too many clients already", "no connection left", "max_connections"),
        (
            'FATAL:  no pg_hba.conf entry for host "::1", user "u", database "d", no encryption',
            "by TLS only",
            "sslmode=verify-full",
        ),
        (
            "FATAL:  connection requires a valid client certificate",
            "wants a certificate",
            "sslcert and sslkey",
        ),
        ("SSL error: ssl/tls alert certificate expired", "client has expired", "sslcert"),
        ("SSL error: tlsv1 alert unknown ca", "refuses the certificate", "sslcert"),
    ],
)
def test_messages_of_postgres(message: str, what: str, remedy: str) -> None:
    error = PostgresUnreachable("postgresql://u@h/d", OSError(message))
    assert error.trouble is not None
    assert what in error.trouble.what
    assert remedy in error.trouble.remedy
    assert "start one" not in str(error)


@pytest.mark.integration
def test_a_user_that_redis_refuses(redis_url: str) -> None:
    at = urlsplit(redis_url)
    output = refused_redis(f"redis://no_such_user:{SECRET}@{at.hostname}:{at.port}/0")
    assert "the password or user is wrong" in output
    assert "correct user and password in --redis URL or HEADSTART_REDIS" in output


@pytest.mark.integration
def test_a_database_that_redis_does_not_have(redis_url: str) -> None:
    at = urlsplit(redis_url)
    output = refused_redis(f"redis://{at.hostname}:{at.port}/9999")
    assert "no database of this number" in output


@pytest.mark.parametrize(
    ("message", "what", "remedy"),
    [
        ("[SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] sslv3 alert certificate expired",
         "client has expired", "ssl_certfile"),
        ("[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca", "refuses the certificate",
         "ssl_certfile and ssl_keyfile"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required",
         "wants a certificate", "ssl_certfile and ssl_keyfile"),
        ("User u has no permissions to run the 'get' command", "its ACL refuses", "topics acl"),
    ],
)  # fmt: skip
def test_messages_of_redis(message: str, what: str, remedy: str) -> None:
    error = RedisUnreachable("rediss://h/0", OSError(message))
    assert error.trouble is not None
    assert error.trouble.refused
    assert what in error.trouble.what
    assert remedy in error.trouble.remedy


def test_a_redis_that_wants_a_password() -> None:
    error = RedisUnreachable("redis://h/0", OSError("NOAUTH Authentication required."))
    assert "it wants a password; correct user and password in --redis URL" in str(error)


@pytest.mark.parametrize(
    "url", [f"redis:/:{SECRET}@h", f"redis://:{SECRET}@h:99999/0", f"localhost/{SECRET}"]
)
def test_a_url_that_cannot_be_parsed(url: str) -> None:
    output = refused_redis(url)
    assert "cannot be parsed" in output
    assert "redis://USER:PASSWORD@HOST:PORT/NUMBER" in output


@pytest.mark.parametrize(
    ("parameter", "setting"),
    [
        ("sslmode=requre", "sslmode"),
        ("target_session_attrs=any-of", "target_session_attrs"),
        ("channel_binding=x", "channel_binding"),
        ("ssl_min_protocol_version=x", "ssl_min_protocol_version"),
        ("keepalives=x", "keepalives"),
    ],
)
def test_a_parameter_with_an_invalid_value(parameter: str, setting: str) -> None:
    output = refused_postgres(f"postgresql://u:{SECRET}@127.0.0.1:1/x?{parameter}")
    assert f"correct {setting} in --postgres DSN or HEADSTART_POSTGRES" in output


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("server does not support SSL, but SSL was required", "set sslmode=prefer in"),
        ('root certificate file "/none" does not exist', "correct sslmode, sslrootcert"),
        ("SSL error: certificate verify failed", "correct sslmode, sslrootcert"),
        ("session is read-only", "correct target_session_attrs"),
    ],
)
def test_problems_that_starting_postgres_would_not_fix(reason: str, remedy: str) -> None:
    found = postgres_trouble("postgresql://h/x", psycopg.OperationalError(reason))
    assert found is not None
    assert remedy in found.remedy


@pytest.mark.parametrize("option", ["foo=1", "protocol=9"])
def test_an_option_that_redis_py_refuses(option: str) -> None:
    with pytest.raises(RedisUnreachable, match="give redis://") as caught:
        asyncio.run(_ping(f"redis://:{SECRET}@127.0.0.1:1/0?{option}"))
    assert SECRET not in str(caught.value)
