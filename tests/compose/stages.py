"""What a container goes through from its death until it works again, read from its log."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

STAGES: Final = ("worker.started", "kernels.loaded", "changelog.restored", "partition.opened")
"""Log events of a start: the code is loaded and the services answer; machine code is loaded, beside
all else; the group has assigned partitions and their rows are restored; the last one is open."""
_LINE: Final = re.compile(r"(?m)^(\d{4}-\d\d-\d\dT\S+) ([A-Z]+) +(\S+)(.*)$")


def stages(log: str, since: float) -> dict[str, float]:
    """Return how many seconds after `since` (Unix) each stage was reached, if it was.

    Of events that appear several times, once for each partition, the last counts.
    """
    found = {}
    for moment, _level, event, _more in _LINE.findall(log):
        at = datetime.fromisoformat(moment).timestamp() - since
        if event in STAGES and at >= 0.0:
            found[event] = round(at, 1)
    return found


def complaints(log: str, since: float) -> list[str]:
    """Return the warnings and errors after `since`, each cut after 200 characters."""
    found = []
    for moment, level, event, more in _LINE.findall(log):
        at = datetime.fromisoformat(moment).timestamp() - since
        if level in {"WARNING", "ERROR", "CRITICAL"} and at >= 0.0:
            found.append(f"{at:.1f} s: {event}{more}"[:200])
    return found


def started_after(state_started_at: str, since: float) -> float:
    """Return how many seconds after `since` the engine started a container.

    `state_started_at`: the engine's `State.StartedAt`, with nanoseconds.
    """
    whole, _, fraction = state_started_at.rstrip("Z").partition(".")
    moment = datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")
    return round(moment - since, 1)
