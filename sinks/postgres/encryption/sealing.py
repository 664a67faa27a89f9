"""Seals and opens texts with the data key of a tenant: AES-256-GCM with random nonces. Pure.

What a text belongs to (tenant, row, field) is associated data, so a sealed text that is moved to
another row or tenant cannot be opened there.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sinks.postgres.encryption.master_keys import KEY_BYTES, NONCE_BYTES

PREFIX: Final = "headstart-sealed:"
"""Begins a sealed text within JSON: then the number of the data key, a colon, and base64."""
_MAC_BYTES: Final = 8


class DataKey(NamedTuple):
    """A key of one tenant. `key` None: it was shredded, and what it sealed is gone."""

    tenant: str
    number: int
    key: bytes | None

    def __repr__(self) -> str:
        return f"DataKey({self.tenant!r}, {self.number})"

    def seal(self, content: bytes, place: str) -> bytes:
        """Return content sealed for a place of the tenant, such as `event/ID/query`."""
        assert self.key is not None
        nonce = os.urandom(NONCE_BYTES)
        return nonce + AESGCM(self.key).encrypt(nonce, content, self._about(place))

    def open(self, sealed: bytes, place: str) -> bytes | None:
        """Return the content; None if this key did not seal it for this place."""
        assert self.key is not None
        if len(sealed) < NONCE_BYTES:
            return None
        try:
            return AESGCM(self.key).decrypt(
                sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], self._about(place)
            )
        except InvalidTag:
            return None

    def _about(self, place: str) -> bytes:
        return f"{self.tenant}\0{place}".encode("utf-8", "surrogatepass")

    def seal_text(self, content: bytes, place: str) -> str:
        """Return content as a sealed text."""
        return f"{PREFIX}{self.number}:{base64.b64encode(self.seal(content, place)).decode()}"

    def mac(self, content: bytes, size: int = _MAC_BYTES) -> bytes:
        """Return a keyed hash of content: equal content of a tenant is found without its text."""
        assert self.key is not None
        own = hashlib.blake2b(b"headstart hash", key=self.key, digest_size=KEY_BYTES).digest()
        return hashlib.blake2b(content, key=own, digest_size=size).digest()

    def keyed_hash(self, plain: int) -> int:
        """Return a 64-bit hash of a signed 64-bit hash, which only holders of the key can make."""
        return int.from_bytes(
            self.mac(plain.to_bytes(8, "little", signed=True)), "little", signed=True
        )


def split_text(text: str) -> tuple[int, bytes] | None:
    """Return the number of the data key and the sealed bytes; None: this is no sealed text."""
    if not text.startswith(PREFIX):
        return None
    number, _, encoded = text.removeprefix(PREFIX).partition(":")
    if not (number.isascii() and number.isdecimal() and len(number) <= 9):
        return None
    try:
        return int(number), base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None


def new_data_key() -> bytes:
    """Return a random key."""
    return os.urandom(KEY_BYTES)
