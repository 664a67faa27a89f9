"""The columns of an evaluation: which earlier runs count as cases of a run."""

from __future__ import annotations

from typing import Final, Literal, get_args

Column = Literal["all", "new_tasks", "new_situations"]
COLUMNS: Final[tuple[Column, ...]] = get_args(Column)
"""`all`: every earlier run; `new_tasks`: those of another task; `new_situations`: of these, those
with another first call (tool and arguments)."""
COLUMN_TITLES: Final[dict[Column, str]] = {
    "all": "All earlier runs",
    "new_tasks": "Own task left out",
    "new_situations": "Own task and equal first calls left out",
}


def leaves_task(column: Column) -> bool:
    """Return whether runs of the run's own task are left out."""
    return column != "all"


def leaves_first_call(column: Column) -> bool:
    """Return whether runs with an equal first call are left out."""
    return column == "new_situations"
