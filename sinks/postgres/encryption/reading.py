"""Opens the texts of stored events, whichever keys they need."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from psycopg import AsyncConnection

from sinks.postgres.encryption.event_texts import is_sealed, open_data
from sinks.postgres.encryption.sealing import PREFIX
from sinks.postgres.encryption.tenant_keys import TenantKeys, keys_to_read


class TextReader:
    """Opens sealed texts; keeps the keys that it has read. Use one for a transaction."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection
        self._keys: dict[str, TenantKeys] = {}

    async def data(self, tenant: str, event: str, data: bytes) -> bytes:
        """Return the JSON of an event's `data`, opened. Raises `EncryptionKeyMissing`."""
        if not is_sealed(data):
            return data
        return open_data(data, await self.keys(tenant), tenant, event)

    async def row(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row of an event with its `data`, a decoded object, opened."""
        data = row["data"]
        if isinstance(data, Mapping) and _has_sealed(data):
            text = json.dumps(data).encode()
            row["data"] = json.loads(await self.data(row["tenant"], row["id"], text))
        return row

    async def rows(self, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return rows of events, opened. Raises `EncryptionKeyMissing`."""
        return [await self.row(row) for row in rows]

    async def keys(self, tenant: str) -> TenantKeys:
        """Return the keys of a tenant. Raises `EncryptionKeyMissing`."""
        found = self._keys.get(tenant)
        if found is None:
            found = self._keys[tenant] = await keys_to_read(self._connection, [tenant])
        return found


def _has_sealed(data: Mapping[str, Any]) -> bool:
    """Return whether a text of an object, or of an object in it, may be sealed."""
    return any(
        value.startswith(PREFIX)
        if isinstance(value, str)
        else isinstance(value, Mapping) and _has_sealed(value)
        for value in data.values()
    )
