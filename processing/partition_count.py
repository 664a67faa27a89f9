"""Records the number of partitions with which the tables in a worker's directory were learned.

With another number a key belongs to another partition, and what was learned would be left behind.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

FILE: Final = "partitions"
HOW: Final = "see docs/how-to/partitions.md"


class PartitionCount(NamedTuple):
    """The number. `sure`: it was recorded; otherwise it is derived from the tables, which may be
    fewer, because a worker need not have owned every partition."""

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
    """Record the number. Raises `OSError`."""
    fresh = worker / f"{FILE}.new"
    fresh.write_text(f"{partitions}\n")
    fresh.replace(worker / FILE)
