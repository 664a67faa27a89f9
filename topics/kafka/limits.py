"""Limits on the content of a record batch, because a broker checks little more than its header.

A broker accepts a compressed batch of up to 1 MiB. A batch that exceeds these limits, or cannot be
parsed, is returned as one record whose value is the whole batch, and consumers dead-letter it.
"""

from __future__ import annotations

from typing import Final

MOST_BYTES: Final = 64_000_000
"""Size of the decompressed records."""
MOST_RECORDS: Final = 200_000
"""Each takes about 300 bytes as an object."""
MOST_HEADERS: Final = 500_000
"""Headers of all records together: each takes 64 bytes and a microsecond. An uncompressed batch
has no room for more."""
LARGEST_MS: Final = 2**61
"""Limit of the absolute Unix ms: sums of two fit 64 bits. Timestamps in nanoseconds are far
below."""


class WholeBytes(bytes):
    """A record batch that cannot be read, as a record's value, with the reason.

    The reason is not in a header, because a producer could write one as well.
    """

    reason: str
    first: int
    """Offset of the batch's first record; 0 if its format does not contain that."""
    end: int
    """The offset after its last record."""

    def __new__(cls, raw: bytes, reason: str, first: int, end: int) -> WholeBytes:
        """Return the bytes `raw` with a reason and the offsets of the batch."""
        made = super().__new__(cls, raw)
        made.reason, made.first, made.end = reason, first, end
        return made
