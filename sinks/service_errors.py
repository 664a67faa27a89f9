"""Explains connection errors of Postgres that starting a server would not fix.

Reads a client's certificate, and asks the server by a TLS handshake where an error is ambiguous
(`tls_probes`, which blocks). A remedy names the setting. No message quotes an address, because it
may contain a password. `sinks.redis_errors` does the same for Redis.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import UndefinedColumn, UndefinedTable

from headstart.arguments.checks import HIGHEST_PORT
from headstart.connections.certificate_validity import is_expired
from headstart.connections.trouble import Trouble
from headstart.scrubbing.masking import needs_encoding
from sinks import tls_probes

POSTGRES: Final = "--postgres DSN or HEADSTART_POSTGRES"
WRONG_PASSWORD: Final = "the password or user is wrong"
PASSWORD_WANTED: Final = "it wants a password"
UNPARSABLE: Final = "the address cannot be parsed"
POSTGRES_FORM: Final = (
    "postgresql://USER:PASSWORD@HOST:PORT/DATABASE or host=HOST port=PORT dbname=DATABASE user=USER"
)
ENCODED: Final = "its password must be percent-encoded: %40 for @, %2F for /, %3A for :"


EXPIRED: Final = "its certificate, or that of its CA, has expired"
OWN_EXPIRED: Final = "the certificate of this client has expired"
NOT_YET_VALID: Final = "its certificate is not valid yet"
UNTRUSTED: Final = "its certificate is not signed by a trusted CA"
OTHER_HOST: Final = "its certificate is for another host name"
UNVERIFIED: Final = "its certificate cannot be verified"
NO_TLS: Final = "it does not speak TLS"
ONLY_TLS: Final = "it takes connections of this user by TLS only"
CERTIFICATE_WANTED: Final = "it wants a certificate of this client"
CERTIFICATE_REFUSED: Final = "it refuses the certificate of this client"
NOT_ADMITTED: Final = "the server accepts no connection from this host and user"
NOT_TO_DATABASE: Final = "the user may not connect to this database"
PORTS_DIFFER: Final = "the address has neither one port nor as many as hosts"
NO_MATCH: Final = "no host that answers is one that target_session_attrs asks for"
_REFUSALS: Final = {
    WRONG_PASSWORD, PASSWORD_WANTED, EXPIRED, OWN_EXPIRED, OTHER_HOST, UNVERIFIED, NO_TLS, ONLY_TLS,
    CERTIFICATE_WANTED, CERTIFICATE_REFUSED, NOT_ADMITTED, NOT_TO_DATABASE,
}  # fmt: skip
"""Problems of TLS, logins and rights."""


_OF_POSTGRES: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), Trouble(what, remedy, what in _REFUSALS))
    for pattern, what, remedy in (
        (
            r"no password supplied|empty password",
            PASSWORD_WANTED,
            f"correct user and password in {POSTGRES}",
        ),
        (
            r"no pg_hba\.conf entry.*(?:no encryption|SSL off)",
            ONLY_TLS,
            f"set sslmode=verify-full and sslrootcert in {POSTGRES}, or allow plain connections in "
            "the server's pg_hba.conf",
        ),
        (
            r"requires a valid client certificate|alert certificate required",
            CERTIFICATE_WANTED,
            f"name it: sslcert and sslkey in {POSTGRES}",
        ),
        (
            r"alert certificate expired",
            OWN_EXPIRED,
            f"renew the file of sslcert in {POSTGRES}",
        ),
        (
            r"alert (?:unknown ca|bad certificate|certificate unknown)",
            CERTIFICATE_REFUSED,
            f"use one that the server's CA has signed: sslcert and sslkey in {POSTGRES}",
        ),
        (
            r"no pg_hba\.conf entry|pg_hba\.conf rejects",
            NOT_ADMITTED,
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
            NOT_TO_DATABASE,
            "run as its owner: GRANT CONNECT ON DATABASE {name} TO {user}",
        ),
        (
            r"too many clients|too many connections|remaining connection slots",
            "it has no connection left",
            "raise max_connections of the server, or end other connections",
        ),
        (
            r"database system is (?:starting up|shutting down|in recovery)"
            r"|database system is not (?:yet )?accepting connections",
            "it is starting or stopping",
            "wait until it has started",
        ),
    )
)
_SETTINGS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), Trouble(what, remedy, what in _REFUSALS))
    for pattern, what, remedy in (
        (
            r'invalid "?(\w+)"? value: |invalid integer value .* for connection option "(\w+)"'
            r"|bad value for (\w+)",
            "the address has an invalid value of {setting}",
            f"correct {{setting}} in {POSTGRES}",
        ),
        (
            r"server does not support SSL",
            NO_TLS,
            f"set sslmode=prefer in {POSTGRES}, or enable ssl on the server",
        ),
        (
            r"certificate has expired",
            EXPIRED,
            "renew it on the server (and check the clock of this machine)",
        ),
        (
            r"server certificate for .* does not match host name",
            OTHER_HOST,
            f"use a host name that is in it, in {POSTGRES}",
        ),
        (
            r"certificate verify failed|root certificate file|certificate file|private key file"
            r"|server certificate for",
            UNVERIFIED,
            f"correct sslmode, sslrootcert, sslcert and sslkey in {POSTGRES}",
        ),
        (
            r"session is (?:not )?read-only|server is (?:not )?in hot standby",
            NO_MATCH,
            "wait until a replica is promoted, or correct target_session_attrs or the hosts in "
            f"{POSTGRES}",
        ),
    )
)
"""Errors in a parameter of the address."""
_ATTEMPT: Final = re.compile(
    r"^- host: (?:None|'([^']*)'), port: (?:None|'([^']*)'), hostaddr: (?:None|'([^']*)'): "
    r"(.*?)(?=^- host: |\Z)",
    re.MULTILINE | re.DOTALL,
)
"""What psycopg says of each of several hosts, or of each address of a host."""
_PORTS: Final = re.compile(r"could not match \d+ (?:port numbers|host names)")
_SAYS_LITTLE: Final = re.compile(
    r"SSL error|server closed the connection|connection reset by peer", re.IGNORECASE
)
_NO_DATABASE: Final = re.compile(r'database "[^"]*" does not exist', re.IGNORECASE)


def postgres_trouble(dsn: str, reason: BaseException) -> Trouble | None:
    """Return the problem of a connection to `dsn`; None: the server is probably not running."""
    if needs_encoding(dsn):
        return Trouble(ENCODED, f"correct {POSTGRES}")
    try:
        given = conninfo_to_dict(dsn)
    except (psycopg.Error, UnicodeError):
        return Trouble(UNPARSABLE, f"give {POSTGRES_FORM} in {POSTGRES}")
    if not all(_is_port(each) for each in str(given.get("port") or "").split(",")):
        return Trouble(UNPARSABLE, f"give {POSTGRES_FORM} in {POSTGRES}, the port from 1 to 65535")
    if _PORTS.search(str(reason)):
        return Trouble(PORTS_DIFFER, f"correct {POSTGRES}")
    attempts = _ATTEMPT.findall(str(reason))
    if not attempts:
        return _trouble_of_host(given, str(reason))
    return _trouble_of_hosts(given, attempts)


def _trouble_of_hosts(
    given: Mapping[str, object], attempts: Sequence[tuple[str, str, str, str]]
) -> Trouble | None:
    """Return the problem of several attempts: the one that waiting does not end.

    `attempts`: host, port, address and message of each. Before a replica is promoted, those that
    answer do not match `target_session_attrs`.
    """
    found = [
        (
            (host, port),
            _trouble_of_host({**given, "host": host, "port": port, "hostaddr": address}, message),
        )
        for host, port, address, message in attempts
    ]
    known = [(at, trouble) for at, trouble in found if trouble is not None]
    if not known:
        return None
    (host, port), trouble = min(known, key=lambda each: (not each[1].refused, _is_standby(each[1])))
    if _is_standby(trouble) or len({at for at, _ in found}) == 1:
        return trouble
    return trouble._replace(what=f"{host}:{port or 5432}: {trouble.what}")


def _is_standby(trouble: Trouble) -> bool:
    return trouble.what == NO_MATCH


def _trouble_of_host(given: Mapping[str, object], message: str) -> Trouble | None:
    user = str(given.get("user") or "the user")
    name = str(given.get("dbname") or given.get("user") or "the database")
    if _NO_DATABASE.search(message):
        create = _createdb(name, given.get("host"), given.get("port"))
        remedy = f"create it: {create}, or correct the database in {POSTGRES}"
        return Trouble(f"the database {name} does not exist", remedy)
    if tls_probes.UNEXPLAINED.search(message) and (trouble := _of_certificate(given)):
        return trouble
    if _SAYS_LITTLE.search(message) and is_expired(tls_probes.client_certificate(given)):
        return Trouble(OWN_EXPIRED, f"renew the file of sslcert in {POSTGRES}", refused=True)
    for sign, (what, remedy, refused) in _OF_POSTGRES:
        if sign.search(message):
            filled = remedy.replace("{name}", name).replace("{user}", user)
            return Trouble(what, filled, refused)
    return _of_setting(message)


def _of_certificate(given: Mapping[str, object]) -> Trouble | None:
    """Return what is wrong with the certificate of a server, which is asked for it."""
    fault = tls_probes.certificate_fault(given)
    if fault == tls_probes.EXPIRED:
        remedy = "renew it on the server (and check the clock of this machine)"
        return Trouble(EXPIRED, remedy, refused=True)
    if fault == tls_probes.NOT_YET_VALID:
        return Trouble(NOT_YET_VALID, "check the clock of this machine", refused=True)
    if fault == tls_probes.UNTRUSTED:
        return Trouble(
            UNTRUSTED, f"name the CA's PEM file: sslrootcert in {POSTGRES}", refused=True
        )
    return None


def _of_setting(message: str) -> Trouble | None:
    for sign, (what, remedy, refused) in _SETTINGS:
        if found := sign.search(message):
            setting = next((each for each in found.groups() if each), "")
            what_there = what.replace("{setting}", setting)
            return Trouble(what_there, remedy.replace("{setting}", setting), refused)
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
