"""Finds values of Redis that another writer keeps changing, to repair them less often. Pure.

Two installations that share one Redis by mistake would keep replacing each other's values, and
readers would see one or the other. A value that was repaired often is repaired rarely from then on.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sinks.redis.stored_fields import Fault, Field

FOREIGN_FAULTS: Final[frozenset[Fault]] = frozenset({"newer", "behind", "outdated", "unknown"})
"""Faults of values that another installation wrote: well-formed, with other versions."""
MAX_REPAIRS: Final = 5
"""Of one value within an hour, before it counts as contested."""
WINDOW_S: Final = 3_600.0
CONTESTED_S: Final = 600.0
"""How often a contested value is still repaired."""
MAX_FIELDS: Final = 10_000
"""Values whose repairs are remembered."""


class _Repairs(NamedTuple):
    times: int
    since: float
    last: float


class ContestedFields:
    """Counts the repairs of each value. Times are seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._of: dict[Field, _Repairs] = {}

    def may_repair(self, field: Field, fault: Fault, now: float) -> bool:
        """Return whether a value is to be repaired now."""
        if fault not in FOREIGN_FAULTS:
            return True
        known = self._of.get(field)
        if known is None or now - known.since > WINDOW_S or known.times < MAX_REPAIRS:
            return True
        return now - known.last >= CONTESTED_S

    def repaired(self, field: Field, fault: Fault, now: float) -> bool:
        """Count a repair; return whether the value is contested from this one on."""
        if fault not in FOREIGN_FAULTS:
            return False
        known = self._of.pop(field, None)
        if known is None or now - known.since > WINDOW_S:
            known = _Repairs(0, now, now)
        self._of[field] = _Repairs(known.times + 1, known.since, now)
        if len(self._of) > MAX_FIELDS:
            del self._of[next(iter(self._of))]
        return known.times + 1 == MAX_REPAIRS

    def count(self, now: float) -> int:
        """Return how many values are contested."""
        return sum(
            each.times >= MAX_REPAIRS and now - each.since <= WINDOW_S for each in self._of.values()
        )
