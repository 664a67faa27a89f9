"""Counts completions without a start, of those that a filter selects, after a log was read.

The core counts those of the whole log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

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

    @property
    def options(self) -> str:
        """Return it as options of a command, with a space before each; "" for no filter."""
        given = (("tenant", self.tenant), ("workflow-type", self.workflow_type),
                 ("domain", self.domain))  # fmt: skip
        return "".join(f" --{name} {value}" for name, value in given if value is not None)

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

    def report_fields(self) -> dict[str, Any]:
        """Return its fields of a report. `whole_log`: the counts that it does not narrow."""
        return {"filter": asdict(self), "whole_log": [*WHOLE_LOG] if self else []}


def unjoined(read: Mapping[str, Any]) -> str | None:
    """Return how many starts and completions were not joined, and why; None where all were."""
    calls, starts = read.get("not_guessed", 0), read.get("unresolved", 0)
    ends = read.get("unmatched", 0) - calls
    parts = []
    domain = (read.get("filter") or {}).get("domain")
    also = "" if domain is None else "; also where it names no domain"
    if calls:
        them = "1 call that was" if calls == 1 else f"{calls:,} calls that were"
        parts.append(f"{them} not guessed{also and f' ({also[2:]})'}")
    if ends:
        parts.append(f"{ends:,} unmatched (a completion with no open start before it{also})")
    if starts:
        parts.append(f"{starts:,} unresolved (a start with no completion within an hour after it)")
    if not parts:
        return None
    text = f"Not judged: {' and '.join(parts)}."
    if not ends and not starts:
        return text
    return (
        f"{text} A file is read in its own order, a log partition by "
        "partition, and a completion is joined to the open start of its tenant, workflow type, "
        "workflow_id and task_id, unless their user_id differ."
    )


def skipped(read: Mapping[str, Any]) -> str:
    """Return how many events were refused, in words."""
    where = "the whole log, whatever is filtered" if read.get("whole_log") else "all"
    return f"skipped: {read['refused']} in {where}"
