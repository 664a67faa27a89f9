"""What was not joined of what a filter leaves. The core counts that of the whole log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from processing.state.expiry_budget import ExpiryBudget
from processing.state.open_predictions import OpenPredictions
from processing.state.rows import OpenPredictionRow

WHOLE_LOG: Final = ("records", "events", "duplicates", "refused")
"""Counts that no filter narrows: of what is refused, and of records, the place is not known."""


@dataclass(frozen=True)
class Filter:
    """Which predictions are judged; None: any. Others are left out after they were joined."""

    tenant: str | None = None
    workflow_type: str | None = None
    domain: str | None = None

    def __bool__(self) -> bool:
        return (self.tenant, self.workflow_type, self.domain) != (None, None, None)

    def holds(self, tenant: str, workflow_type: str, domain: str | None) -> bool:
        """Return whether predictions of this place are judged."""
        return (
            self.tenant in (None, tenant)
            and self.workflow_type in (None, workflow_type)
            and self.domain in (None, domain)
        )

    def may_hold(self, tenant: str, workflow_type: str, domain: str | None) -> bool:
        """Return whether a completion without a start may be of such a place: where it names no
        domain, its start would have had one."""
        return self.holds(tenant, workflow_type, self.domain if domain is None else domain)

    def told(self) -> dict[str, Any]:
        """Return what a report says of it. `whole_log`: the counts that it does not narrow."""
        return {"filter": asdict(self), "whole_log": [*WHOLE_LOG] if self else []}


class FilteredStarts(OpenPredictions):
    """Open starts. Those that a filter leaves out are counted apart where they stay unresolved."""

    def __init__(
        self,
        epoch: int,
        arrived: Callable[[int], int],
        left_out: Callable[[OpenPredictionRow], bool],
    ) -> None:
        super().__init__(epoch, arrived)
        self._left_out = left_out
        self._closed = self._unresolved = 0

    def open(self, key: bytes, start: OpenPredictionRow, offset: int) -> bool:
        """Add a start; return whether it replaces one that was still open."""
        before = self.get(key)
        if before is not None:
            self._unresolved += self._left_out(before)
        return super().open(key, start, offset)

    def close(self, key: bytes, offset: int) -> OpenPredictionRow | None:
        """Return the open start and forget it; None where there is none."""
        start = super().close(key, offset)
        if start is not None:
            self._closed += self._left_out(start)
        return start

    def expire(self, clock: int, offset: int, room: ExpiryBudget) -> int:
        """Forget starts that waited too long, while there is room; return how many."""
        before = self._closed
        expired = super().expire(clock, offset, room)
        self._unresolved += self._closed - before
        return expired

    def unresolved_elsewhere(self) -> int:
        """Return how many were left out of those that had no completion, the open ones among
        them."""
        return self._unresolved + sum(map(self._left_out, self.values()))


def unjoined(read: Mapping[str, Any]) -> str | None:
    """Return how many starts and completions were not joined, and why; None where all were."""
    ends, starts = read.get("unmatched", 0), read.get("unresolved", 0)
    parts = []
    if ends:
        domain = (read.get("filter") or {}).get("domain")
        also = "" if domain is None else "; also where it names no domain"
        parts.append(f"{ends:,} unmatched (a completion with no open start before it{also})")
    if starts:
        parts.append(f"{starts:,} unresolved (a start with no completion within an hour after it)")
    if not parts:
        return None
    return (
        f"Not judged: {' and '.join(parts)}. A file is read in its own order, a log partition by "
        "partition, and a completion is joined to the open start of its tenant, workflow type, "
        "workflow_id and task_id, unless their user_id differ."
    )


def skipped(read: Mapping[str, Any]) -> str:
    """Return how many events were refused, in words."""
    where = "the whole log, whatever is filtered" if read.get("whole_log") else "all"
    return f"skipped: {read['refused']} in {where}"
