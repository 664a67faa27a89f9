"""A service that refuses is distinguished from one that is away: the remedies differ."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from redis.exceptions import AuthenticationError, ClusterDownError, NoPermissionError
from redis.exceptions import ConnectionError as RedisConnectionError

from console.inspection.error_text import short_error
from deploy.local import StackError
from deploy.local.errors import ServiceRefuses
from deploy.local.readiness import postgres, redis
from deploy.local.service import ExternalService
from headstart.connections.redis_failures import NoServerAnswers, PrimaryNotFound
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
    assert error.trouble is not None
    assert isinstance(of_up, ServiceRefuses) == error.trouble.refused
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


AWAY = RedisConnectionError("Error 111 connecting to one:1. Connection refused.")
LOGIN = AuthenticationError("invalid username-password pair or user is disabled.")
NO_SLOTS = ClusterDownError("it has no slots")


@pytest.mark.parametrize(
    ("errors", "what"),
    [
        ({"one:1": AWAY, "two:2": LOGIN, "three:3": LOGIN}, "the password or user is wrong"),
        ({"one:1": NO_SLOTS, "two:2": LOGIN}, "two:2: the password or user is wrong"),
        ({"one:1": AWAY, "two:2": NO_SLOTS}, "the cluster has slots without a master"),
    ],
)
def test_the_node_that_refuses_is_named_before_those_that_are_away(
    errors: dict[str, Exception], what: str
) -> None:
    error = RedisUnreachable("redis+cluster://one:1,two:2", NoServerAnswers(errors))
    assert error.trouble is not None
    assert error.trouble.what == what
    assert error.trouble.refused == ("password" in what)
    none = RedisUnreachable("redis+cluster://one:1,two:2", NoServerAnswers({"one:1": AWAY}))
    assert none.trouble is None


@pytest.mark.parametrize(
    ("error", "answered", "what", "remedy"),
    [
        (LOGIN, True, "the Sentinel two:2: the password or user is wrong",
         "correct sentinel_username and sentinel_password"),
        (NoPermissionError("this user has no permissions to run the 'sentinel' command"), False,
         "the Sentinel two:2: its ACL refuses", "run sentinel|masters"),
        (RedisConnectionError("Connection closed by server."), False,
         "the Sentinel two:2: it closes the connection", "use rediss+sentinel:// instead"),
        (AWAY, True, "no Sentinel that answers knows a primary", "wait for their failover"),
    ],
)  # fmt: skip
def test_what_sentinels_refuse(error: Exception, answered: bool, what: str, remedy: str) -> None:
    reason = PrimaryNotFound("primary", {"one:1": AWAY, "two:2": error}, answered=answered)
    found = RedisUnreachable("redis+sentinel://one:1,two:2/primary", reason).trouble
    assert found is not None
    assert found.what.startswith(what)
    assert remedy in found.remedy
    assert found.refused == (error is not AWAY)


def test_sentinels_that_are_all_away() -> None:
    reason = PrimaryNotFound("primary", {"one:1": AWAY}, answered=False)
    error = RedisUnreachable("redis+sentinel://one:1/primary", reason)
    assert error.trouble is None
    assert "no Sentinel names a primary 'primary'; one:1: Error 111" in str(error)


@pytest.mark.parametrize(
    "reason",
    [
        "Connection closed by server.",
        "Error while reading from h:6379 : (104, 'Connection reset by peer')",
        "Error 32 while writing to socket. Broken pipe.",
        "Error 8 while writing to socket. EOF occurred in violation of protocol (_ssl.c:2427).",
    ],
)
@pytest.mark.parametrize(
    ("url", "what", "remedy"),
    [
        ("redis://h/0", "its port is for TLS", "use rediss:// instead of redis://"),
        ("redis+cluster://h", "its port is for TLS", "use rediss+cluster:// instead of redis+clu"),
        ("rediss://h/0", "does not accept this client's certificate", "ssl_certfile"),
    ],
)
def test_a_connection_that_ends_without_an_answer(
    url: str, what: str, remedy: str, reason: str
) -> None:
    found = RedisUnreachable(url, OSError(reason)).trouble
    assert found is not None
    assert what in found.what
    assert remedy in found.remedy
    assert found.refused


def test_files_of_tls_that_do_not_exist_or_fit() -> None:
    missing = OSError(2, "No such file or directory")
    found = RedisUnreachable("rediss://h/0?ssl_ca_certs=/none.pem", missing).trouble
    assert found is not None
    assert found.what == "ssl_ca_certs=/none.pem does not exist"
    assert found.refused
    assert RedisUnreachable("unix:///none.sock", missing).trouble is None
    found = RedisUnreachable("rediss://h/0", OSError("[SSL] PEM lib (_ssl.c:3905)")).trouble
    assert found is not None
    assert "ssl_ca_certs, ssl_certfile, ssl_keyfile" in found.remedy
    assert found.refused


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
