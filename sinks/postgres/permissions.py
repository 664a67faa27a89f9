"""Explains in one line which permission a Postgres role lacks, and the statement that grants it."""

from __future__ import annotations

import re
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from sinks.connections import postgres_address

REFUSED: Final = (
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.UndefinedFile,
    psycopg.errors.FeatureNotSupported,
)
"""Errors that an administrator of the database has to fix."""

_REMEDIES: Final = (
    (
        r"affected by row-level security",
        "{role} sees one tenant: name it (--tenant), or connect as the owner of the tables or as a "
        "role with BYPASSRLS",
    ),
    (r"schema (\S+)", "run as its owner: GRANT USAGE, CREATE ON SCHEMA {found} TO {role}"),
    (
        r"for database (\S+)",
        "run as its owner: GRANT CONNECT, CREATE ON DATABASE {found} TO {role}",
    ),
    (r"create extension \"?(\w+)", "run as a superuser: CREATE EXTENSION {found}"),
    (
        r"must be owner of \w+ (\S+)",
        "run as the role that owns {found}, or as a superuser: ALTER TABLE {found} OWNER TO {role}",
    ),
    (
        r"for (?:table|relation|sequence|view) (\S+)",
        "run as its owner: GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}",
    ),
    (
        r"read-only transaction",
        "name the primary, or all hosts: this server is a standby or read-only",
    ),
    (
        r"extension \"?(\w+)\"? is not available|extension/(\w+)\.control",
        "install the package of the extension vector (pgvector) on the database server",
    ),
)


class PermissionMissing(RuntimeError):
    """The role lacks a permission; the message contains the statement that grants it."""

    def __init__(self, dsn: str, error: psycopg.Error) -> None:
        """Describe `error`, one of `REFUSED`, of the connection `dsn`."""
        message = " ".join((error.diag.message_primary or str(error)).split())
        super().__init__(f"Postgres at {postgres_address(dsn)}: {message}; {_remedy(message, dsn)}")


def _remedy(message: str, dsn: str) -> str:
    role = _role(dsn)
    for pattern, remedy in _REMEDIES:
        if match := re.search(pattern, message):
            found = next((each for each in match.groups() if each), "")
            return remedy.format(found=found, role=role)
    return f"grant it to {role}, or use a role that has this permission"


def _role(dsn: str) -> str:
    """Return the role as an SQL identifier."""
    name = str(conninfo_to_dict(dsn).get("user") or "the role")
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*|the role", name) else f'"{name}"'
