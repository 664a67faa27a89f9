"""Seals the texts of episodes with a key of their tenant, and opens them. Pure.

Query, response, calls, and the hashes of query and first call: what is stored beside are keyed
hashes of these, so that equal queries are still found, and none can be guessed without the key.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import orjson

from sinks.postgres.encryption.sealing import DataKey
from sinks.postgres.encryption.tenant_keys import TenantKeys

_HEAD: Final = 12
"""Bytes before the sealed content: the number of the key, and the keyed hash of the content."""
_NUMBER: Final = 4


class SealedTextDamaged(ValueError):
    """Sealed texts of an episode cannot be opened with the key that they name."""


class EpisodeTexts(NamedTuple):
    """What is sealed of an episode; all absent: its key was shredded."""

    query: str | None = None
    response: str | None = None
    calls: bytes | None = None
    """As `memory.episodes.calls.pack_calls` makes them."""
    query_hash: int | None = None
    first_call: int | None = None


def seal_texts(key: DataKey, episode: int, texts: EpisodeTexts) -> bytes:
    """Return the column `sealed` of an episode. `episode`: its id."""
    fields = texts._asdict()
    calls = fields.pop("calls") or b""
    head = orjson.dumps(fields)
    content = len(head).to_bytes(4, "big") + head + calls
    number = key.number.to_bytes(_NUMBER, "big")
    return number + key.mac(content, _HEAD - _NUMBER) + key.seal(content, f"episode/{episode}")


def open_texts(keys: TenantKeys, tenant: str, episode: int, sealed: bytes) -> EpisodeTexts:
    """Return the texts of the column `sealed`. Raises `SealedTextDamaged`."""
    key = keys.of(tenant, int.from_bytes(sealed[:_NUMBER], "big"))
    if key is not None and key.key is None:
        return EpisodeTexts()
    content = None if key is None else key.open(sealed[_HEAD:], f"episode/{episode}")
    if content is None:
        raise SealedTextDamaged(
            f"the encrypted texts of episode {episode} of {tenant!r} are damaged, or belong to "
            "another row: restore the tables episodes and tenant_keys from one backup"
        )
    size = 4 + int.from_bytes(content[:4], "big")
    return EpisodeTexts(calls=content[size:] or None, **orjson.loads(content[4:size]))
