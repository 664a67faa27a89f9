"""Opens the texts of found episodes; without the key they are found, and their texts are absent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from psycopg import AsyncConnection, AsyncCursor

from memory.retrieval.result import FoundEpisode
from memory.store.sealed_texts import SealedTextDamaged, open_texts
from sinks.postgres.encryption.master_keys import EncryptionKeyMissing, UnusableEncryptionKey
from sinks.postgres.encryption.tenant_keys import TenantKeys, ask_keys, unwrapped

NO_WORDS: Final = (
    "words of encrypted queries were not searched: vectors, equal queries and contexts are"
)


class SealedEpisodes:
    """The keys of one request's tenant, and what they open."""

    def __init__(self, connection: AsyncConnection[Any], tenant: str) -> None:
        self._connection, self._tenant = connection, tenant
        self._asked: AsyncCursor[Any] | None = None
        self._known: TenantKeys | None = None
        self._locked = ""
        self._unopened = self._shredded = 0

    async def begin(self) -> None:
        """Ask for the keys, which are read when they are needed."""
        self._asked = await ask_keys(self._connection, [self._tenant])

    async def hashes(self, plain: int) -> list[int]:
        """Return the keyed hashes under which an encrypted query with this hash is stored."""
        return [key.keyed_hash(plain) for key in (await self._keys()).usable(self._tenant)]

    async def opened(self, rows: Iterable[Sequence[Any]]) -> dict[int, FoundEpisode]:
        """Return the episodes of rows of the statement `episodes`, by id."""
        keys = await self._keys()
        return {row[0]: self._episode(keys, row) for row in rows}

    def _episode(self, keys: TenantKeys, row: Sequence[Any]) -> FoundEpisode:
        found = FoundEpisode(*row[:-1])
        if row[-1] is None:
            return found
        if self._locked:
            self._unopened += 1
            return found
        try:
            texts = open_texts(keys, self._tenant, found.id, row[-1])
        except SealedTextDamaged:
            self._unopened += 1
            return found
        self._shredded += not any(texts)
        return found._replace(
            query=texts.query, response=texts.response, packed_calls=texts.calls,
            query_hash=texts.query_hash,
        )  # fmt: skip

    async def _keys(self) -> TenantKeys:
        if self._known is None:
            self._known = TenantKeys({})
            try:
                if self._asked is not None:
                    self._known = await unwrapped(self._asked)
            except (EncryptionKeyMissing, UnusableEncryptionKey) as error:
                self._locked = str(error)
        return self._known

    def degraded(self, *, words: bool) -> tuple[str, ...]:
        """Return what is missing in the answer. `words`: they were searched."""
        found = []
        if self._unopened:
            why = self._locked or "they are damaged"
            found.append(f"the texts of {self._unopened} encrypted episodes were not read: {why}")
        if self._shredded:
            found.append(f"the texts of {self._shredded} episodes are gone: their key was shredded")
        known = self._known
        if words and (self._locked or (known is not None and known.usable(self._tenant))):
            found.append(NO_WORDS)
        return tuple(found)
