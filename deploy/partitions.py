"""How many partitions the learned state of a data directory was made with.

A key belongs to one partition of so many: with another number it belongs elsewhere, and what was
learned would stay behind. So the number stays until people move the learned state themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from deploy.local import StackError

DEFAULT: Final = 8
HOW: Final = "see docs/operations.md, 'Change the number of partitions'"


def learned_partitions(data: Path) -> int | None:
    """Return the number of partitions that workers of this directory keep tables of; None: none."""
    tables = (data / "workers").glob("thresholds-*/v1/tables/contexts-*.db")
    numbers = [path.stem.removeprefix("contexts-") for path in tables]
    return max((int(number) + 1 for number in numbers if number.isdecimal()), default=None)


def require_partitions(data: Path, partitions: int) -> None:
    """Raise `StackError` where the directory's learned state is of another number of partitions."""
    learned = learned_partitions(data)
    if learned is None or learned == partitions:
        return
    raise StackError(
        f"what was learned in {data} is of {learned} partitions, and the topics have {partitions}: "
        f"its keys would belong to other partitions. Start with --partitions {learned}; to change "
        f"the number, {HOW}. Nothing was changed"
    )
