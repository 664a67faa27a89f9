"""The data keys of tenants in Postgres, each wrapped by a master key.

They are read in every transaction that seals or opens, so a shredded key takes effect at once; a
writer must have locked the tenant (`tenant_locks`), as shredding locks it alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from psycopg import AsyncConnection, AsyncCursor

from sinks.postgres.encryption.master_keys import MasterKeys, master_keys
from sinks.postgres.encryption.sealing import DataKey, new_data_key
from sinks.postgres.statements import load_statements

SQL = load_statements("encryption", Path(__file__).parent / "sql")
Connection = AsyncConnection[Any]


class TenantKeys(NamedTuple):
    """The data keys of some tenants, by tenant and number, oldest first."""

    keys: Mapping[tuple[str, int], DataKey]

    def of(self, tenant: str, number: int) -> DataKey | None:
        """Return a key; None if there never was one."""
        return self.keys.get((tenant, number))

    def newest(self, tenant: str) -> DataKey | None:
        """Return the key that seals new texts of a tenant; None: they stay plain."""
        usable = [key for key in self.keys.values() if key.tenant == tenant and key.key is not None]
        return usable[-1] if usable else None

    def usable(self, tenant: str) -> list[DataKey]:
        """Return the keys of a tenant that were not shredded."""
        return [key for key in self.keys.values() if key.tenant == tenant and key.key is not None]


async def keys_to_read(connection: Connection, tenants: Iterable[str]) -> TenantKeys:
    """Return the data keys of tenants.

    Raises `EncryptionKeyMissing` if one has keys that the given master keys do not unwrap.
    """
    wanted = sorted(set(tenants))
    return await unwrapped(await ask_keys(connection, wanted)) if wanted else TenantKeys({})


async def ask_keys(connection: Connection, tenants: Iterable[str]) -> AsyncCursor[Any]:
    """Send the question for `unwrapped`: in pipeline mode it travels with what follows."""
    return await connection.execute(SQL["keys"], {"tenants": sorted(set(tenants))})


async def unwrapped(asked: AsyncCursor[Any]) -> TenantKeys:
    """Return the keys that `ask_keys` has asked for. Raises `EncryptionKeyMissing`."""
    return TenantKeys({row[:2]: _unwrapped(*row) for row in await asked.fetchall()})


async def keys_to_write(connection: Connection, tenants: Iterable[str]) -> TenantKeys:
    """Return the data keys of tenants, each with one to seal with if there is a master key.

    Within a transaction that has locked the tenants. Where a tenant has keys already, its texts
    are sealed, and without the master key `EncryptionKeyMissing` is raised: plain text would be
    worse than waiting.
    """
    wanted = set(tenants)
    found = await keys_to_read(connection, wanted)
    given = master_keys()
    missing = sorted(tenant for tenant in wanted if found.newest(tenant) is None)
    if (not given and not any(own in missing for own, _ in found.keys)) or not missing:
        return found
    for tenant in missing:
        number = 1 + max((number for own, number in found.keys if own == tenant), default=0)
        wrapped = given.wrap(new_data_key(), tenant, number)
        row = {"tenant": tenant, "number": number, "master": given.newest, "wrapped": wrapped}
        await connection.execute(SQL["add_key"], row)
    return await keys_to_read(connection, wanted)  # of two writers the first one's key counts


def _unwrapped(tenant: str, number: int, master: str, wrapped: bytes | None) -> DataKey:
    if wrapped is None:
        return DataKey(tenant, number, None)
    return _data_key(tuple(master_keys().keys.items()), master, wrapped, tenant, number)


@lru_cache(maxsize=10_000)
def _data_key(
    masters: tuple[tuple[str, bytes], ...], master: str, wrapped: bytes, tenant: str, number: int
) -> DataKey:
    return DataKey(
        tenant, number, MasterKeys(dict(masters)).unwrap(master, wrapped, tenant, number)
    )
