"""With how many partitions the tables below a worker's directory were learned.

A key belongs to one partition of so many: with another number it belongs elsewhere, and what was
learned would stay behind. Files only; deciding is the caller's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

FILE: Final = "partitions"
HOW: Final = "see docs/how-to/partitions.md"


class PartitionCount(NamedTuple):
    """The number; `sure`: it was written down. Else it is that of the tables that are there, which
    may be fewer: a worker need not have had every partition."""

    number: int
    sure: bool

    def contradicts(self, partitions: int) -> bool:
        """Return whether the tables cannot be those of so many partitions."""
        return self.number != partitions if self.sure else self.number > partitions


def read_count(worker: Path) -> PartitionCount | None:
    """Return the number of a worker's directory; None where it has no tables."""
    try:
        return PartitionCount(int((worker / FILE).read_text()), sure=True)
    except (OSError, ValueError):
        pass
    names = [path.stem.removeprefix("contexts-") for path in worker.glob("v1/tables/contexts-*.db")]
    numbers = [int(name) for name in names if name.isdecimal()]
    return PartitionCount(max(numbers) + 1, sure=False) if numbers else None


def write_count(worker: Path, partitions: int) -> None:
    """Write the number down. Raises `OSError`."""
    fresh = worker / f"{FILE}.new"
    fresh.write_text(f"{partitions}\n")
    fresh.replace(worker / FILE)
