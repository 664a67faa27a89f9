"""What the records of one batch may be: a broker looks at the head of a batch, and at little else.

It takes a batch up to 1 MiB as it is compressed. One with more in it than this, or with records
that cannot be, is read as one record, the whole batch, which whoever reads it refuses.
"""

from __future__ import annotations

from typing import Final

MOST_BYTES: Final = 64_000_000
"""Of its records, unpacked."""
MOST_RECORDS: Final = 200_000
"""Each takes some three hundred bytes as an object."""
MOST_HEADERS: Final = 500_000
"""Of all its records together: each takes 64 bytes and a microsecond. A batch that is not
compressed has no room for more."""
LARGEST_MS: Final = 2**61
"""Unix ms, and before 1970 as many: sums of two fit 64 bits. Clients that write nanoseconds are far
below."""


class WholeBytes(bytes):
    """A record batch that cannot be read, in place of a record's value, and why.

    Not a header, which a producer could write as well.
    """

    reason: str
    first: int
    """Offset of the batch's first record; 0 where its format does not say that."""
    end: int
    """The offset behind its last record."""

    def __new__(cls, raw: bytes, reason: str, first: int, end: int) -> WholeBytes:
        """Return the bytes `raw` with a reason and the offsets that they stand for."""
        made = super().__new__(cls, raw)
        made.reason, made.first, made.end = reason, first, end
        return made
