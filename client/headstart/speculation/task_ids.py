"""Task ids of the predictions that are open in this process: no two of them have the same one.

The service has one open start per task. So of several guesses about one step only the first has the
step's own id, `t1`; those beside it have `t1/2`, `t1/3`. Safe for threads: each step is one
operation on a dictionary.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Final

from headstart.events.schema import MAX_IDENTIFIER, new_id

Task = tuple[str, str, str, str]
"""Tenant, workflow type, workflow id and task id."""

_open: Final[dict[Task, object]] = {}
"""By task, what holds its id."""


def take(place: Mapping[str, object], holder: object) -> Task | None:
    """Return the task that an open prediction is logged as, which is `holder`'s until `give_back`.

    `place`: fields of an event. None where one of them is no text, as such an event is refused.
    """
    tenant = place.get("tenant", "default")
    workflow_type, workflow_id = place.get("workflow_type"), place.get("workflow_id")
    first = place.get("task_id")
    if not (
        isinstance(tenant, str)
        and isinstance(workflow_type, str)
        and isinstance(workflow_id, str)
        and isinstance(first, str)
    ):
        return None
    task_id = first
    for number in count(2):
        task = tenant, workflow_type, workflow_id, task_id
        if _open.setdefault(task, holder) is holder:
            return task
        task_id = f"{first}/{number}"
        if len(task_id) > MAX_IDENTIFIER:
            task_id = new_id()
    raise AssertionError("unreachable: numbers do not end")


def give_back(task: Task | None) -> None:
    """Have the next prediction take the id of a task whose outcome is logged, or never will be."""
    if task is not None:
        _open.pop(task, None)
