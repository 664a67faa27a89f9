"""Hashes that are the same in every process, on every machine and in every version of Python.

A hash has 60 bits: CPython stores such an integer in 32 bytes, and one of 64 bits in 48.

With a key, the hash of a text is salted by a keyed hash of it. Without the key no text can be found
by its hash; but given text and salt, anyone can check the hash, and cannot make another text for it
(2^60 attempts).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import Final

BITS: Final = 60
MASK: Final = (1 << BITS) - 1
SALT_BYTES: Final = 16
_MULTIPLIER: Final = 0x9E3779B97F4A7C1
_LONGEST_CACHED: Final = 64  # characters
_CACHED: Final = 4_096  # texts of each key, for the whole process

Hash = Callable[[str], int]


@lru_cache(maxsize=8)
def hash_of(key: bytes) -> Hash:
    """Return a function from a short text to its hash under `key`, of at most 64 bytes (BLAKE2b).

    It keeps the last texts; for texts of unknown length use `hash_of_any()`.
    """
    return lru_cache(maxsize=_CACHED)(_uncached(key))


@lru_cache(maxsize=8)
def hash_of_any(key: bytes) -> Hash:
    """Return the same function, which does not keep long texts."""
    short, uncached = hash_of(key), _uncached(key)
    return lambda text: short(text) if len(text) <= _LONGEST_CACHED else uncached(text)


def _uncached(key: bytes) -> Hash:
    return lambda text: salted_hash(text, salt_of(text, key))


def salt_of(text: str, key: bytes) -> bytes:
    """Return the salt of a text under a key; empty without a key."""
    if not key:
        return b""
    return blake2b(_data(text), digest_size=SALT_BYTES, key=key).digest()


def salted_hash(text: str, salt: bytes) -> int:
    """Return the hash of a text with this salt, of at most `SALT_BYTES`."""
    return int.from_bytes(blake2b(_data(text), digest_size=8, salt=salt).digest(), "big") & MASK


def _data(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def combined(first: int, second: int) -> int:
    """Return one hash of two; the order matters."""
    mixed = (first * _MULTIPLIER + second) & MASK
    return mixed ^ (mixed >> 29)
