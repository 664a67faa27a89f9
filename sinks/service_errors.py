"""Explains connection errors of Postgres and Redis that starting a server would not fix. Pure.

A remedy names the setting. No message quotes an address, because it may contain a password.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import UndefinedColumn, UndefinedTable

from headstart.arguments.checks import HIGHEST_PORT
from headstart.connections.trouble import Trouble
from headstart.scrubbing.masking import needs_encoding

POSTGRES: Final = "--postgres DSN or HEADSTART_POSTGRES"
REDIS: Final = "--redis URL or HEADSTART_REDIS"
WRONG_PASSWORD: Final = "the password or user is wrong"
PASSWORD_WANTED: Final = "it wants a password"
UNPARSABLE: Final = "the address cannot be parsed"
POSTGRES_FORM: Final = (
    "postgresql://USER:PASSWORD@HOST:PORT/DATABASE or host=HOST port=PORT dbname=DATABASE user=USER"
)
REDIS_FORM: Final = "redis://USER:PASSWORD@HOST:PORT/NUMBER, rediss://... for TLS, or unix://PATH"
_ENCODED: Final = "its password must be percent-encoded: %40 for @, %2F for /, %3A for :"


_OF_POSTGRES: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), Trouble(what, remedy))
    for pattern, what, remedy in (
        (
            r"no password supplied|empty password",
            PASSWORD_WANTED,
            f"correct user and password in {POSTGRES}",
        ),
        (
            r"no pg_hba\.conf entry|pg_hba\.conf rejects",
            "the server accepts no connection from this host and user",
            "allow it in the server's pg_hba.conf, or correct host, user and database in "
            f"{POSTGRES}",
        ),
        (
            r'role "[^"]*" does not exist|\w+ authentication failed|authentication failed for',
            WRONG_PASSWORD,
            f"correct user and password in {POSTGRES}",
        ),
        (
            r"permission denied for database|does not have CONNECT privilege",
            "the user may not connect to this database",
            "run as its owner: GRANT CONNECT ON DATABASE {name} TO {user}",
        ),
        (
            r"too many clients|too many connections|remaining connection slots",
            "it has no connection left",
            "raise max_connections of the server, or end other connections",
        ),
        (
            r"database system is (?:starting up|shutting down|in recovery)",
            "it is starting or stopping",
            "wait until it has started",
        ),
    )
)
_SETTINGS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), Trouble(what, remedy))
    for pattern, what, remedy in (
        (
            r'invalid "?(\w+)"? value: |invalid integer value .* for connection option "(\w+)"'
            r"|bad value for (\w+)",
            "the address has an invalid value of {setting}",
            f"correct {{setting}} in {POSTGRES}",
        ),
        (
            r"server does not support SSL",
            "it does not speak TLS",
            f"set sslmode=prefer in {POSTGRES}, or enable ssl on the server",
        ),
        (
            r"certificate verify failed|root certificate file|certificate file|private key file"
            r"|server certificate for",
            "its certificate cannot be verified",
            f"correct sslmode, sslrootcert, sslcert and sslkey in {POSTGRES}",
        ),
        (
            r"session is (?:not )?read-only|server is (?:not )?in hot standby",
            "it does not match target_session_attrs",
            f"correct target_session_attrs or the hosts in {POSTGRES}",
        ),
    )
)
"""Errors in a parameter of the address."""
_NO_DATABASE: Final = re.compile(r'database "[^"]*" does not exist', re.IGNORECASE)
_OF_REDIS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), Trouble(what, remedy))
    for pattern, what, remedy in (
        (
            r"WRONGPASS|invalid username-password|invalid password|no password is set"
            r"|without any password configured",
            WRONG_PASSWORD,
            f"correct user and password in {REDIS}",
        ),
        # Redis answers the client's first HELLO with a message of its own.
        (
            r"NOAUTH|authentication required|already authenticated",
            PASSWORD_WANTED,
            f"correct user and password in {REDIS}",
        ),
        (
            r"DB index is out of range|invalid DB index",
            "it has no database of this number",
            f"correct the number at the end of {REDIS}",
        ),
        (
            r"wrong.version.number|record layer failure",
            "it does not speak TLS",
            f"use redis:// instead of rediss:// in {REDIS}, or its port for TLS",
        ),
        (
            r"certificate verify failed",
            "its certificate cannot be verified",
            f"add ssl_ca_certs=FILE after the ? in {REDIS}",
        ),
    )
)


def postgres_trouble(dsn: str, reason: BaseException) -> Trouble | None:
    """Return the problem of a connection to `dsn`; None: the server is probably not running."""
    if needs_encoding(dsn):
        return Trouble(_ENCODED, f"correct {POSTGRES}")
    try:
        given = conninfo_to_dict(dsn)
    except (psycopg.Error, UnicodeError):
        return Trouble(UNPARSABLE, f"give {POSTGRES_FORM} in {POSTGRES}")
    if not all(_is_port(each) for each in str(given.get("port") or "").split(",")):
        return Trouble(UNPARSABLE, f"give {POSTGRES_FORM} in {POSTGRES}, the port from 1 to 65535")
    message = str(reason)
    user = str(given.get("user") or "the user")
    name = str(given.get("dbname") or given.get("user") or "the database")
    if _NO_DATABASE.search(message):
        create = _createdb(name, given.get("host"), given.get("port"))
        remedy = f"create it: {create}, or correct the database in {POSTGRES}"
        return Trouble(f"the database {name} does not exist", remedy)
    for sign, (what, remedy) in _OF_POSTGRES:
        if sign.search(message):
            return Trouble(what, remedy.replace("{name}", name).replace("{user}", user))
    return _of_setting(message)


def _of_setting(message: str) -> Trouble | None:
    for sign, (what, remedy) in _SETTINGS:
        if found := sign.search(message):
            setting = next((each for each in found.groups() if each), "")
            return Trouble(what.replace("{setting}", setting), remedy.replace("{setting}", setting))
    return None


def schema_trouble(reason: UndefinedTable | UndefinedColumn) -> Trouble:
    """Return what a database lacks, judging by a query's error, and the command that adds it."""
    if isinstance(reason, UndefinedTable):
        return Trouble(
            "has no tables of Headstart",
            "is it the right database? `headstart migrate` creates them",
        )
    return Trouble("has tables of an older version", "`headstart migrate` brings them up to date")


def _is_port(text: str) -> bool:
    """Return whether a port of a connection string is valid; libpq's default is 5432."""
    text = text.strip()
    return not text or (text.isascii() and text.isdecimal() and 1 <= int(text) <= HIGHEST_PORT)


def _createdb(name: str, host: object, port: object) -> str:
    words = ["createdb"]
    words += ["-h", str(host)] if host else []
    words += ["-p", str(port)] if port else []
    return " ".join(map(shlex.quote, [*words, name]))


def redis_trouble(url: str, reason: BaseException) -> Trouble | None:
    """Return the problem of a connection to `url`; None: the server is probably not running."""
    if needs_encoding(url):
        return Trouble(_ENCODED, f"correct {REDIS}")
    # redis.asyncio takes `redis:/...` too, and connects to its default address.
    is_url = url.lower().startswith(("redis://", "rediss://", "unix://"))
    if not is_url or (isinstance(reason, ValueError) and not isinstance(reason, OSError)):
        return Trouble(UNPARSABLE, f"give {REDIS_FORM} in {REDIS}")
    message = f"{type(reason).__name__} {reason}"
    return next((trouble for sign, trouble in _OF_REDIS if sign.search(message)), None)
