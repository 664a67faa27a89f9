"""Task ids of the predictions that are open in this process: each id is used once at a time.

The service has one open start per task. So of concurrent guesses about one step the first gets the
step's own id, `t1`, and the others `t1/2`, `t1/3`. Thread-safe: each step is one operation on a
dict.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Final

from headstart.events.schema import MAX_IDENTIFIER, new_id

Task = tuple[str, str, str, str]
"""Tenant, workflow type, workflow id and task id."""

_open: Final[dict[Task, object]] = {}
"""The holder of each task id in use."""


def acquire(fields: Mapping[str, object], holder: object) -> Task | None:
    """Return the task to log a prediction as; it belongs to `holder` until `release`.

    `fields`: of an event. None if one of them is not a string: such an event is refused.
    """
    tenant = fields.get("tenant", "default")
    workflow_type, workflow_id = fields.get("workflow_type"), fields.get("workflow_id")
    first = fields.get("task_id")
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
    raise AssertionError("unreachable")


def release(task: Task | None) -> None:
    """Free the id of a task whose outcome is logged, or never will be."""
    if task is not None:
        _open.pop(task, None)
