"""A digest of the rows of a partition, whatever their order: two tables are compared by it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

_BYTES: Final = 16
_MODULUS: Final = 1 << (8 * _BYTES)


@dataclass
class RowsDigest:
    """The number of rows, and the sum of their hashes. Each key is added once."""

    count: int = 0
    total: int = 0

    def add(self, key: bytes, row: bytes) -> None:
        """Add a row."""
        hashed = hashlib.blake2b(key, digest_size=_BYTES, salt=len(key).to_bytes(16, "little"))
        hashed.update(row)
        self.count += 1
        self.total = (self.total + int.from_bytes(hashed.digest())) % _MODULUS
