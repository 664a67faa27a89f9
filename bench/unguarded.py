"""A worker without the rules that keep it exact: the other side of `exactness`, and no use else.

No positions of spools (events are decoded as ever, but none has an origin, so neither way of the
core asks for it and no row holds one), no order of offsets at the intake, no look at what others
appended to the changelog, no check that the assignment is ours. What is left of exactness is its
form: one record batch a commit, with the partition's row in it, before the local store.
`python -m bench.unguarded worker thresholds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents.alive import Alive
from cli.main import main
from delivery.commits import Delivery, Row
from delivery.intake import Intake
from topics.records import CLOSED_EVENT, EVENT


async def _admit(_self: Any, _place: object, _batch: object) -> bool:
    return True


async def _append(self: Any, rows: Sequence[Row]) -> bool:
    _first, last = await self._outlets.send_rows(rows, 0)
    self._outlets.write_rows(rows, last)
    return True


def strip() -> None:
    """Take the rules away, for this process."""
    rules: dict[Any, tuple[str, Any]] = {
        CLOSED_EVENT: ("origin", None),
        EVENT: ("origin", None),
        Intake: ("admit", _admit),
        Delivery: ("_append", _append),
        Alive: ("check", lambda *_: None),
    }
    for owner, (name, nothing) in rules.items():
        assert hasattr(owner, name), f"{owner.__name__}.{name} is gone: this strips nothing"
        setattr(owner, name, nothing)


if __name__ == "__main__":
    strip()
    main()
