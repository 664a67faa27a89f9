"""Reads the master keys, which wrap the data keys of tenants; they are never stored in Postgres.

`HEADSTART_ENCRYPTION_KEY`, or the file that `HEADSTART_ENCRYPTION_KEY_FILE` names, has one key or
several, `ID:BASE64` each, separated by commas or line breaks, the newest first.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from headstart.connections.secret import UnusableSecurity
from headstart.connections.secret_variables import secret_variable
from headstart.scrubbing.masking import remember_secret

VARIABLE: Final = "HEADSTART_ENCRYPTION_KEY"
KEY_BYTES: Final = 32
"""AES-256."""
NONCE_BYTES: Final = 12
"""Random; NIST SP 800-38D allows 2^32 texts of one key."""
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_FORM: Final = (
    "give ID:BASE64 for each key, as `headstart memory keys new` prints it; an id has up to 64 "
    "letters, digits, dots, hyphens and underscores"
)


class UnusableEncryptionKey(ValueError):
    """The setting of the master keys cannot be used; the message has no key in it."""


class EncryptionKeyMissing(RuntimeError):
    """Stored texts are sealed, and the master key that opens them was not given, or is another."""


@dataclass(frozen=True)
class MasterKeys:
    """Master keys by id, the newest first; without any, nothing is sealed."""

    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    def __bool__(self) -> bool:
        """Return whether there is one."""
        return bool(self.keys)

    @property
    def newest(self) -> str:
        """The id of the key that new data keys are wrapped with. Raises `EncryptionKeyMissing`."""
        if not self.keys:
            raise EncryptionKeyMissing(f"no encryption key is given: set {VARIABLE}_FILE")
        return next(iter(self.keys))

    def wrap(self, data_key: bytes, tenant: str, number: int) -> bytes:
        """Return a data key, sealed with the newest master key."""
        nonce = os.urandom(NONCE_BYTES)
        about = _about(self.newest, tenant, number)
        return nonce + AESGCM(self.keys[self.newest]).encrypt(nonce, data_key, about)

    def unwrap(self, master: str, wrapped: bytes, tenant: str, number: int) -> bytes:
        """Return a data key. Raises `EncryptionKeyMissing` without the right master key."""
        key = self.keys.get(master)
        if key is None:
            raise EncryptionKeyMissing(
                f"texts of the tenant {tenant!r} are encrypted with the key {master!r}, which is "
                f"not among the given ones ({', '.join(self.keys) or 'none'}): add it to "
                f"{VARIABLE}, or to the file of {VARIABLE}_FILE"
            )
        try:
            return AESGCM(key).decrypt(
                wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], _about(master, tenant, number)
            )
        except InvalidTag:
            raise EncryptionKeyMissing(
                f"the key {master!r} is not the one that texts of the tenant {tenant!r} were "
                f"encrypted with: give the right one in {VARIABLE} or in the file of "
                f"{VARIABLE}_FILE, and a new key a new id"
            ) from None


def _about(master: str, tenant: str, number: int) -> bytes:
    return f"headstart data key\0{master}\0{tenant}\0{number}".encode()


def parse_master_keys(text: str) -> MasterKeys:
    """Return the keys of a setting's value. Raises `UnusableEncryptionKey`."""
    found: dict[str, bytes] = {}
    for part in filter(None, (part.strip() for part in re.split(r"[,\n]", text))):
        name, _, encoded = part.partition(":")
        if not _ID.fullmatch(name):
            raise UnusableEncryptionKey(_FORM)
        if name in found:
            raise UnusableEncryptionKey(f"two keys have the id {name!r}: give each its own")
        try:
            key = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY_BYTES:
            raise UnusableEncryptionKey(
                f"the key {name!r} is not the base64 of {KEY_BYTES} bytes: make one with "
                "`headstart memory keys new`"
            )
        remember_secret(encoded)
        found[name] = key
    return MasterKeys(found)


def new_master_key(name: str) -> str:
    """Return a new random key as a line of the key file. Raises `UnusableEncryptionKey`."""
    if not _ID.fullmatch(name):
        raise UnusableEncryptionKey(_FORM)
    return f"{name}:{base64.b64encode(os.urandom(KEY_BYTES)).decode()}"


_given: list[MasterKeys] = []


def use_master_keys(keys: MasterKeys | None) -> None:
    """Set the keys of this process, as its settings give them; None: those of the environment."""
    _given[:] = [] if keys is None else [keys]


def master_keys() -> MasterKeys:
    """Return the keys of this process; a file of the environment is read again at every call.

    So a file with another key takes effect without a restart. Raises `UnusableEncryptionKey`.
    """
    if _given:
        return _given[0]
    try:
        text = secret_variable(VARIABLE)
    except UnusableSecurity as error:
        raise UnusableEncryptionKey(f"{VARIABLE}_FILE: {error}") from error
    return parse_master_keys(text) if text else MasterKeys()
