"""What Redis serves, compared with a table that was read from the changelog, and made equal to it.

The same comparison as the worker's own (agents/thresholds/redis_repair.py), for operators that do
not want to wait for it, or run no worker.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headstart.keys import DEFAULT_PATH
from processing.contexts.thresholds import is_published, threshold_from_row
from processing.records.partitioner import partition_for
from replay.log.live_table import Rows, applied_offset
from replay.verify.row_diff import Findings
from sinks.redis.comparison import Expected, RedisComparison, Repair, StoredField
from sinks.redis.stored_fields import EXPLAINED, Field, Reach, UnreadableValue, read_stored
from sinks.redis.thresholds import encode_value
from sinks.redis.wrong_fields import WrongField, beyond_log_end, find_wrong
from topics.catalogue import EVENTS
from topics.epoch import Epoch
from topics.kafka.reader import topic_state
from topics.schema.json_schema import PublishedThreshold

FIX: Final = (
    "a threshold worker repairs it within some minutes; at once: `headstart thresholds republish`"
)
FOREIGN_FIX: Final = "it is not ours and stays: remove it by hand, or move it to another key"
_AT_ONCE: Final = 1_000

Wanted = Callable[[Field], bool]


class TableUnwritten(LookupError):
    """The changelog has no rows of partitions of which Redis serves thresholds."""

    def __init__(self, epoch: int, partitions: Iterable[int], served: int) -> None:
        named = ", ".join(map(str, sorted(partitions)))
        super().__init__(
            f"Redis serves {served:,} thresholds of partitions ({named}) of which the changelog "
            f"has no rows in log epoch {epoch}: the threshold worker has not written yet what it "
            "learned before, or the topics are new. Nothing was changed. See `headstart status` "
            "for what the worker waits for; where the topics are new, bring back what was learned: "
            "`headstart thresholds import FILE`. A worker that is ready takes out of Redis by "
            "itself what it does not have"
        )


class ServedTable:
    """What Redis should hold: all that the partitions of a table publish."""

    def __init__(self, epoch: Epoch) -> None:
        self._epoch = epoch
        self._thresholds: dict[Field, PublishedThreshold] = {}
        self._reaches: dict[int, Reach] = {}
        self._rowless: set[int] = set()

    def add(self, partition: int, rows: Rows) -> None:
        """Take in a partition's rows, none of them deleted."""
        self._reaches[partition] = Reach(self._epoch.number, applied_offset(rows))
        if not rows:
            self._rowless.add(partition)
        for key, row in rows.items():
            if is_published(partition, key):
                threshold = threshold_from_row(key, row)
                place = Field(threshold.tenant, threshold.workflow_type, threshold.path)
                if not threshold.deleted and self._partition(place) == partition:
                    self._thresholds[place] = threshold

    def _partition(self, place: Field) -> int:
        if place.path == DEFAULT_PATH:
            return 0
        return partition_for(place.tenant, place.workflow_type, self._epoch.partitions)

    async def compare(
        self,
        comparison: RedisComparison,
        kafka: str,
        foreign: list[dict[str, str]] | None = None,
        wanted: Wanted = lambda _field: True,
    ) -> list[WrongField]:
        """Return what is wrong in Redis; what is no context's goes to `foreign`.

        Raises `RedisUnreachable`, `BrokerUnreachable` and `TopicsMissing`, and `TableUnwritten`
        where that would be all that Redis still has of partitions without rows.
        """
        wrong: list[WrongField] = []
        ahead: defaultdict[int, list[tuple[StoredField, PublishedThreshold | None]]] = defaultdict(
            list
        )
        async for stored in self._differing(comparison, foreign, wanted):
            found = find_wrong(map(self._with_table, stored))
            wrong += found.wrong
            for each in found.ahead:
                ahead[self._partition(each[0].field)].append(each)
        ends: Mapping[int, int] = (await topic_state(kafka, EVENTS.name)).end if ahead else {}
        for partition, some in ahead.items():
            wrong += beyond_log_end(some, ends[partition])
        self._require_rows(wrong)
        return wrong

    def _require_rows(self, wrong: Sequence[WrongField]) -> None:
        """Raise `TableUnwritten` where thresholds would go because the table has no rows yet.

        A partition of a running log may have none: what has this log's own epoch there is wrong.
        """
        whole = self._rowless == self._reaches.keys()
        lost = [
            self._partition(each.stored.field)
            for each in wrong
            if each.threshold is None and each.stored.raw is not None
            if self._partition(each.stored.field) in self._rowless
            if _epoch_of(each.stored.raw) not in ((None,) if whole else (None, self._epoch.number))
        ]
        if lost:
            raise TableUnwritten(self._epoch.number, set(lost), len(lost))

    async def _differing(
        self, comparison: RedisComparison, foreign: list[dict[str, str]] | None, wanted: Wanted
    ) -> AsyncIterator[Sequence[StoredField]]:
        known = [each for each in self._thresholds.items() if wanted(each[0])]
        for at in range(0, len(known), _AT_ONCE):
            yield await comparison.differing(
                [Expected(place, encode_value(t)) for place, t in known[at : at + _AT_ONCE]]
            )
        async for fields in comparison.fields(foreign):
            # Not a difference of sets: with keys of a dictionary it takes all of those each time.
            unknown = {each for each in fields if each not in self._thresholds and wanted(each)}
            yield await comparison.differing([Expected(each, None) for each in sorted(unknown)])

    def _with_table(
        self, stored: StoredField
    ) -> tuple[StoredField, PublishedThreshold | None, Reach]:
        reach = self._reaches[self._partition(stored.field)]
        return stored, self._thresholds.get(stored.field), reach


def _epoch_of(raw: bytes) -> int | None:
    """Return the log epoch of a value; None where it cannot be read."""
    try:
        return int(read_stored(raw)["epoch"])
    except (UnreadableValue, LookupError, TypeError, ValueError):
        return None


@dataclass
class Repaired:
    """What was wrong in Redis, and how much of it was replaced."""

    wrong: list[WrongField] = field(default_factory=list)
    foreign: list[dict[str, str]] = field(default_factory=list)
    repaired: int = 0

    @property
    def counts(self) -> Counter[str]:
        """What was wrong, counted."""
        return Counter(each.fault for each in self.wrong)


async def repair_redis(
    redis: str,
    kafka: str,
    table: ServedTable,
    *,
    dry_run: bool = False,
    wanted: Wanted = lambda _field: True,
) -> Repaired:
    """Make what Redis serves equal to a table that was just read. Raises as `compare` does.

    A value that a worker replaces at the same time is left to it.
    """
    found = Repaired()
    async with RedisComparison(redis) as comparison:
        found.wrong = await table.compare(comparison, kafka, found.foreign, wanted)
        if not dry_run:
            repairs = [Repair(each.stored, each.threshold) for each in found.wrong]
            done = await comparison.repair(repairs, time.time_ns() // 1_000_000)
            found.repaired = sum(done)
    return found


def named(wrong: WrongField) -> dict[str, Any]:
    """Return it for people: where, what is wrong, and how to fix it."""
    where: dict[str, Any] = wrong.stored.field._asdict()
    if wrong.stored.other_type is not None:
        return {**where, "what": f"its key is a {wrong.stored.other_type}, no hash", "fix": FIX}
    fields: dict[str, Any] = {"what": EXPLAINED[wrong.fault]}
    try:
        value = read_stored(wrong.stored.raw or b"")
        fields["served"] = f"{value['epoch']}:{value['offset']}"
    except UnreadableValue as error:
        if wrong.stored.raw is not None:
            fields["what"] += f": {error}"
    if wrong.threshold is not None:
        fields["table"] = f"{wrong.threshold.epoch}:{wrong.threshold.offset}"
    return {**where, **fields, "fix": FIX}


def add_wrong(findings: Findings, wrong: Sequence[WrongField]) -> None:
    """Add what is wrong in Redis to findings."""
    for each in sorted(wrong, key=lambda each: each.stored.field):
        kind = "wrong_type" if each.stored.other_type is not None else each.fault
        findings.add(f"redis_{kind}", **named(each))
