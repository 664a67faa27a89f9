"""Roles, operations and what each role may do, for the tests of credentials."""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

import psycopg
from psycopg import errors, sql

ROLES: Final = ("headstart_sink", "headstart_worker", "headstart_reader")
SEES_ALL: Final = ("headstart_sink", "headstart_worker")
"""Roles with BYPASSRLS; the third sees one tenant."""
OPERATIONS: Final = ("select", "insert", "update", "delete", "truncate", "copy in", "copy out")
READS: Final = {"select", "copy out"}
ADDS: Final = {"insert", "copy in"}
NONE: Final[set[str]] = set()
CHANGES: Final = READS | ADDS | {"update", "delete"}
ERASES: Final = READS | {"delete"}
"""The sink carries out purges."""
STORES: Final = READS | ADDS | {"delete"}

ALLOWED: Final[dict[str, tuple[set[str], set[str], set[str]]]] = {
    #                          sink            worker                 reader
    "episodic_events":        (STORES,         READS | {"delete"},    READS),
    "threshold_history":      (STORES,         NONE,                  READS),
    "notices":                (CHANGES,        READS,                 READS),
    "context_watch":          (CHANGES,        NONE,                  NONE),
    "sink_offsets":           (READS | ADDS | {"update"}, NONE,       NONE),
    "schema_migrations":      (READS,          READS,                 NONE),
    "episodes":               (ERASES,         CHANGES,               READS),
    "episode_vectors":        (ERASES,         CHANGES,               READS),
    "episode_outbox":         (STORES,         CHANGES,               NONE),
    "memory_models":          (NONE,           CHANGES,               READS),
    "memory_policies":        (ERASES,         CHANGES,               READS),
    "memory_profiles":        (ERASES,         CHANGES,               READS),
    "memory_purges":          (READS | ADDS | {"update"}, READS,      NONE),
    "memory_retrievals":      (ERASES,         CHANGES,               READS | {"insert"}),
    "memory_audit":           (ADDS,           READS | ADDS,          NONE),
    "memory_maintenance":     (NONE,           READS | ADDS | {"update"}, READS),
    "trace_dictionaries":     (ERASES,         STORES,                READS),
    "tenant_keys":            (READS | ADDS,   READS | ADDS,          READS),
}  # fmt: skip
"""By table, for each of `ROLES`. COPY into a table is refused where row-level security applies."""
BEYOND: Final = {
    ("headstart_sink", "episodes", "UPDATE"): {
        "trace", "trace_ids", "trace_types", "trace_others", "support", "usefulness"
    },
    ("headstart_sink", "episode_outbox", "UPDATE"): {"noted"},
    ("headstart_worker", "trace_dictionaries_id_seq", "USAGE"): {""},
}  # fmt: skip
"""What was granted on columns, and on sequences (column ""), by role, relation and right."""
FUNCTIONS: Final[dict[str, tuple[bool, bool, bool]]] = {
    "add_event_partition": (True, False, False),
    "drop_event_partition": (False, True, False),
    "memory_words": (False, True, True),
    "memory_fuzzy": (False, True, True),
    "memory_drop_packed": (True, False, False),
}
"""Functions that run as their owner, and whether each of `ROLES` may call them."""

TABLES: Final = """SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
    AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY 1"""
PARTITIONS: Final = """SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
    AND relispartition AND relkind = 'r' ORDER BY 1"""
WITH_TENANT: Final = """SELECT c.relname FROM pg_class c JOIN pg_attribute ON attrelid = c.oid
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
        AND attname = 'tenant' AND NOT attisdropped AND NOT relispartition"""
GRANTS_BEYOND: Final = """
    SELECT coalesce(rolname, 'public'), relname, privilege_type, name FROM (
        SELECT attrelid AS oid, attname AS name, attacl AS acl FROM pg_attribute
        WHERE attacl IS NOT NULL
        UNION ALL
        SELECT oid, '', relacl FROM pg_class WHERE relkind = 'S' AND relacl IS NOT NULL
    ) AS granted JOIN pg_class USING (oid), aclexplode(acl) AS each
    LEFT JOIN pg_roles ON pg_roles.oid = grantee
    WHERE relnamespace = 'public'::regnamespace AND grantee <> relowner"""
COLUMNS: Final = """SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0
    AND NOT attisdropped AND attidentity = '' AND attgenerated = '' ORDER BY attnum"""
REQUIRED: Final = """SELECT attname, format_type(atttypid, NULL) FROM pg_attribute
    WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped AND attnotnull
        AND NOT atthasdef AND attidentity = '' ORDER BY attnum"""
DEFINERS: Final = """SELECT proname FROM pg_proc
    WHERE pronamespace = 'public'::regnamespace AND prosecdef ORDER BY 1"""


def names(connection: psycopg.Connection[Any], query: str) -> list[str]:
    """Return the first column."""
    return [name for (name,) in connection.execute(query.encode()).fetchall()]


def try_operation(
    connection: psycopg.Connection[Any], operation: str, table: str, tenant: str = "a"
) -> str:
    """Try an operation of the session's role and undo it: `done`, `refused`, or the rows it saw.

    `tenant`: of the transaction, and of a row that is inserted. Rows are counted by tenant where
    the table has one, as "a:1 b:2"; where it has none, as "1:2".
    """
    try:
        with connection.transaction(force_rollback=True):
            connection.execute("SELECT set_config('headstart.tenant', 'a', true)")
            return _result(connection, operation, table, tenant)
    except (errors.InsufficientPrivilege, errors.FeatureNotSupported):
        return "refused"  # COPY under row-level security: not supported
    except errors.IntegrityError:
        return "done"  # the right is checked first, then the row


def _result(connection: psycopg.Connection[Any], operation: str, table: str, tenant: str) -> str:
    name = sql.Identifier(table)
    columns = [each for (each,) in connection.execute(COLUMNS, [table]).fetchall()]
    has_tenant = "tenant" in columns
    column = sql.SQL("tenant" if has_tenant else "1")
    if operation == "select":
        rows = connection.execute(sql.SQL("SELECT {} FROM {}").format(column, name)).fetchall()
        return _counts([str(each) for (each,) in rows])
    if operation == "copy out":
        query = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(column, name)
        with connection.cursor().copy(query) as copy:
            return _counts([str(row[0]) for row in copy.rows()])
    if operation == "copy in":
        with connection.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(name)):
            pass
        return "done"
    statements = {
        "insert": sql.SQL("INSERT INTO {} (tenant) VALUES ({})").format(name, tenant)
        if has_tenant
        else sql.SQL("INSERT INTO {} DEFAULT VALUES").format(name),
        "update": sql.SQL("UPDATE {0} SET {1} = {1}").format(name, sql.Identifier(columns[0])),
        "delete": sql.SQL("DELETE FROM {}").format(name),
        "truncate": sql.SQL("TRUNCATE {}").format(name),
    }
    return f"{connection.execute(statements[operation]).rowcount}".replace("-1", "done")


def _counts(tenants: list[str]) -> str:
    return " ".join(f"{each}:{tenants.count(each)}" for each in sorted(set(tenants))) or "nothing"


def fill(connection: psycopg.Connection[Any]) -> None:
    """Add a row of the tenants a and b to every table with tenant data, whatever its columns."""
    for table in names(connection, WITH_TENANT):
        columns = connection.execute(REQUIRED, [table]).fetchall()
        for tenant in ("a", "b"):
            values = [tenant if name == "tenant" else _value(name, kind) for name, kind in columns]
            connection.execute(
                sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
                    sql.Identifier(table),
                    sql.SQL(", ").join(sql.Identifier(name) for name, _ in columns),
                    sql.SQL(", ").join(map(sql.SQL, map(_literal, values))),
                )
            )


def _value(name: str, kind: str) -> str:
    allowed = {"event_type": "task_complete", "stage": "retrieve", "status": "old"}
    by_kind = {
        "uuid": str(uuid4()), "text": allowed.get(name, uuid4().hex), "jsonb": "{}",
        "timestamp with time zone": "2026-01-01 12:00:00+00", "bytea": "", "text[]": "{}",
        "double precision[]": "{}",
    }  # fmt: skip
    return by_kind.get(kind, "1")


def _literal(value: str) -> Any:
    return f"'{value}'"
