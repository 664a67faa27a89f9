"""Lists, rotates and shreds the keys of tenants: each call is one transaction, of bounded size."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

from psycopg import AsyncConnection, errors
from psycopg.types.json import Jsonb

from sinks.postgres.encryption.master_keys import (
    EncryptionKeyMissing,
    UnusableEncryptionKey,
    master_keys,
)
from sinks.postgres.encryption.tenant_keys import SQL, keys_to_read
from sinks.postgres.tenant_locks import lock_tenants

AT_ONCE: Final = 1_000
"""Keys that a transaction wraps again, and episodes that one clears."""


class ListedKey(NamedTuple):
    """A data key of a tenant, without the key. Times are Unix ms."""

    tenant: str
    number: int
    master: str
    """Id of the master key that wraps it."""
    made: int
    shredded: int | None


class EncryptionState(NamedTuple):
    """How a database stands with the keys of this process."""

    level: Literal["ok", "warning", "error"]
    what: str
    remedy: str = ""


async def list_keys(connection: AsyncConnection[Any], tenant: str | None = None) -> list[ListedKey]:
    """Return the data keys of a tenant, or of all, by tenant and number."""
    rows = await (await connection.execute(SQL["listed"], {"tenant": tenant})).fetchall()
    return [ListedKey(*row) for row in rows]


async def rotate_next(connection: AsyncConnection[Any]) -> int:
    """Wrap some data keys with the newest master key, in one transaction; return how many.

    0: all are. Texts stay as they are. Raises `EncryptionKeyMissing`, and changes nothing then.
    """
    given = master_keys()
    wanted = {"master": given.newest, "limit": AT_ONCE}
    async with connection.transaction():
        rows = await (await connection.execute(SQL["to_rotate"], wanted)).fetchall()
        for tenant, number, master, wrapped in rows:
            key = given.unwrap(master, wrapped, tenant, number)
            row = {"tenant": tenant, "number": number, "master": given.newest}
            own = given.wrap(key, tenant, number)
            await connection.execute(SQL["rotate"], {**row, "wrapped": own})
    return len(rows)


async def shred(connection: AsyncConnection[Any], tenant: str) -> int:
    """Destroy the data keys of a tenant, in one transaction; return how many there were.

    It waits for writers of the tenant, which then seal with a new key. Needs no master key.
    """
    async with connection.transaction():
        await lock_tenants(connection, (), alone=[tenant])
        count = (await connection.execute(SQL["shred"], {"tenant": tenant})).rowcount
        if count:
            await connection.execute(SQL["forget_retrievals"], {"tenant": tenant})
            about = {"tenant": tenant, "counts": Jsonb({"keys": count})}
            await connection.execute(SQL["audit"], about)
    return count


async def clear_next(connection: AsyncConnection[Any], tenant: str) -> int:
    """Clear some episodes that no key opens any more, with their vectors; return how many."""
    wanted = {"tenant": tenant, "limit": AT_ONCE}
    async with connection.transaction():
        rows = await (await connection.execute(SQL["clear_sealed"], wanted)).fetchall()
        has = await (await connection.execute(SQL["has_vectors"])).fetchone()
        if rows and has and has[0]:
            gone = {"tenant": tenant, "ids": [row[0] for row in rows]}
            await connection.execute(SQL["forget_vectors"], gone)
    return len(rows)


async def rewrite_keys(connection: AsyncConnection[Any]) -> str:
    """Write the table of keys into a new file, without old versions; return why not, "" if done.

    Not within a transaction.
    """
    try:
        await connection.execute(SQL["rewrite_keys"])
    except errors.InsufficientPrivilege as error:
        return str(error.diag.message_primary or error)
    return ""


async def encryption_state(connection: AsyncConnection[Any]) -> EncryptionState:
    """Return whether the given master keys are those that the database needs."""
    try:
        given = master_keys()
        rows = await (await connection.execute(SQL["stands"])).fetchall()
        for _master, _count, tenant in rows:
            await keys_to_read(connection, [tenant])
    except (EncryptionKeyMissing, UnusableEncryptionKey) as error:
        what, _, remedy = str(error).rpartition(": ")
        return EncryptionState("error", what, remedy)
    if not given:
        return EncryptionState("ok", "off: texts are stored as they are")
    old = sum(count for master, count, _ in rows if master != given.newest)
    if old:
        what = f"{old:,} keys of tenants are wrapped by an older key than {given.newest!r}"
        return EncryptionState("warning", what, "run `headstart memory keys rotate`")
    return EncryptionState(
        "ok",
        f"new texts are encrypted, with the key {given.newest!r}; encrypted queries are not "
        "searched by words",
    )
