"""Looks for contexts of purged subjects, and their deletion marks, where executors read them.

A purge leaves a mark of each context that it deleted, so that no late writer brings the context
back. Its path has the subject's name, so it has to go in time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from headstart.keys import SEPARATOR, workflow_type_of
from processing.records.partitioner import partition_for
from replay.verify.row_diff import Findings
from sinks.postgres.purges import StoredPurge
from sinks.redis.queries import served_thresholds
from topics.catalogue import THRESHOLDS
from topics.control.purges import context_matcher
from topics.epoch import Epoch
from topics.kafka.reader import read_records, topic_state

LATE_S: Final = 120.0
"""How much later than they may a threshold worker deletes marks: it looks every ten seconds."""
_FIX: Final = "run `headstart memory purge` for it again"
_FIX_MARK: Final = (
    "keep a threshold worker running: it deletes marks {span} after it has applied the purge or "
    "has started, and within minutes those in Redis that its table does not have"
)


class _Context(NamedTuple):
    """A context of a purged subject as it is found somewhere."""

    tenant: str
    path: str
    value: Mapping[str, Any]
    written: int | None = None
    """Unix ms at which its value was written, where that is known."""


class _Judge:
    """Decides about what is found of the subjects of some purges."""

    def __init__(
        self, epoch: Epoch, stored: Sequence[StoredPurge], marks_s: float, findings: Findings
    ) -> None:
        self._epoch, self._findings, self._marks_s = epoch, findings, marks_s
        self._before = time.time_ns() // 1_000_000 - round((marks_s + LATE_S) * 1000)
        """Unix ms; marks of before should be gone."""
        self._purges = [(each, context_matcher(each.purge)) for each in stored]

    def holds(self, tenant: str, path: str) -> bool:
        """Return whether a context is of a purged subject."""
        return any(holds(tenant, path) for _each, holds in self._purges)

    def look(self, found: _Context, where: str) -> None:
        """Add a finding if the context is served from before a purge, or its mark is too old."""
        place = {"tenant": found.tenant, "path": found.path, "where": where}
        for each, holds in self._purges:
            if not holds(found.tenant, found.path):
                continue
            if not found.value.get("deleted"):
                if int(found.value.get("at") or 0) <= each.purge.at:
                    self._findings.add("purged_context", **place, fix=_FIX)
                    return
            elif self._is_overdue(found, each):
                fix = _FIX_MARK.format(span=f"{self._marks_s:,.0f} s")
                self._findings.add("purged_mark", **place, purged=each.purge.at, fix=fix)
                return

    def _is_overdue(self, found: _Context, stored: StoredPurge) -> bool:
        """Return whether a mark is of the purge, or of before it, and should be gone.

        Marks that a later deletion left have a higher offset.
        """
        epoch, since = self._epoch, stored.purge.at if found.written is None else found.written
        partition = partition_for(found.tenant, workflow_type_of(found.path), epoch.partitions)
        last = (epoch.number, stored.offset(partition, epoch.number))
        return since < self._before and (found.value["epoch"], found.value["offset"]) <= last


async def check_redis(
    redis: str, epoch: Epoch, stored: Sequence[StoredPurge], marks_s: float, findings: Findings
) -> None:
    """Look in Redis. `marks_s`: how long workers keep marks. Raises `RedisUnreachable`."""
    judge = _Judge(epoch, stored, marks_s, findings)
    async for served in served_thresholds(redis, defaults=True, deleted=True):
        judge.look(_Context(served["tenant"], served["path"], served), "Redis")


async def check_published(
    kafka: str, epoch: Epoch, stored: Sequence[StoredPurge], marks_s: float, findings: Findings
) -> None:
    """Look at the newest value of each context in `headstart.thresholds`.

    Earlier values are bytes that compaction removes. Raises `BrokerUnreachable` and
    `TopicsMissing`.
    """
    judge = _Judge(epoch, stored, marks_s, findings)
    state = await topic_state(kafka, THRESHOLDS.name)
    newest: dict[bytes, tuple[bytes, int]] = {}
    async for record in read_records(kafka, THRESHOLDS.name, state.begin, state.end):
        if record.value is None:
            newest.pop(record.key, None)
        elif judge.holds(*_named_by(record.key)):
            newest[record.key] = record.value, record.timestamp
    for key, (raw, written) in newest.items():
        if (value := _value(raw)) is not None:
            judge.look(_Context(*_named_by(key), value, written), THRESHOLDS.name)


def _named_by(key: bytes | None) -> tuple[str, str]:
    """Return tenant and path of a record's key."""
    tenant, _, path = (key or b"").decode(errors="replace").partition(SEPARATOR)
    return tenant, path


def _value(raw: bytes) -> Mapping[str, Any] | None:
    """Return a value of the topic; None for what workers do not write."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict):
        return None
    return value if all(isinstance(value.get(key), int) for key in ("epoch", "offset")) else None
