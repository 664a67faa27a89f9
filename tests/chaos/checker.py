"""After a round: what was emitted, what is on the log, what is stored, what was counted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from deploy.local import Addresses
from headstart.keys import DEFAULT_LEVELS, context_paths, level_value
from sinks.connections import connect_postgres
from sinks.redis.queries import served_thresholds
from topics.catalogue import EVENTS
from topics.kafka.reader import read_records, topic_state


@dataclass(frozen=True)
class Checked:
    """What one round came to."""

    emitted: int
    """Ids whose `emit()` returned."""
    logged: int
    """Different events on the log."""
    sent_twice: int
    lost: int
    double: int
    differing: int
    """Contexts whose outcomes differ from the oracle's."""

    @property
    def ok(self) -> bool:
        return self.lost == self.double == self.differing == 0


def check(addresses: Addresses, tenant: str, journal: Path, begin: Mapping[int, int]) -> Checked:
    """Compare, for one tenant whose events begin at the offsets `begin`."""
    emitted = {line for file in journal.iterdir() for line in _whole_lines(file)}
    return asyncio.run(_check(addresses, tenant, emitted, begin))


async def _check(
    addresses: Addresses, tenant: str, emitted: set[str], begin: Mapping[int, int]
) -> Checked:
    events, sent = await _log(addresses.kafka, tenant, begin)
    async with await connect_postgres(addresses.postgres) as connection:
        cursor = await connection.execute(
            "SELECT id::text FROM episodic_events WHERE tenant = %s", (tenant,)
        )
        stored = Counter(row[0] for row in await cursor.fetchall())
    right = _oracle(events.values())
    counted = {
        each["path"]: each["outcomes"] async for each in served_thresholds(addresses.redis, tenant)
    }
    differing = [
        path for path in right.keys() | counted.keys() if right.get(path) != counted.get(path)
    ]
    return Checked(
        emitted=len(emitted),
        logged=len(events),
        sent_twice=sent - len(events),
        lost=len((emitted | events.keys()) - stored.keys()) + len(emitted - events.keys()),
        double=sum(number - 1 for number in stored.values()),
        differing=len(differing),
    )


def _whole_lines(file: Path) -> list[str]:
    """Return the ids noted; the last line may be cut."""
    text = file.read_text()
    return text[: text.rfind("\n") + 1].split()


async def _log(
    kafka: str, tenant: str, begin: Mapping[int, int]
) -> tuple[dict[str, dict[str, Any]], int]:
    """Return the tenant's events on the log by id, in order, and how often they were sent."""
    state = await topic_state(kafka, EVENTS.name)
    events: dict[str, dict[str, Any]] = {}
    sent = 0
    async for record in read_records(kafka, EVENTS.name, begin, state.end):
        if (record.key or b"").startswith(tenant.encode() + b"\x1f"):
            for event in orjson.loads(record.value):
                sent += 1
                events.setdefault(event["id"], event)
    return events, sent


def _oracle(events: Any) -> dict[str, int]:
    """Count outcomes per context path, in the order of the log, by a reading of its own."""
    counts: Counter[str] = Counter()
    open_starts: dict[tuple[str, str], dict[str, Any]] = {}
    for event in events:
        place = (event["workflow_id"], event.get("task_id", ""))
        if event["event_type"] == "speculation_start":
            open_starts[place] = event
            continue
        judged = "was_correct" in event.get("data", {}).get("prediction", {})
        of = event if judged else open_starts.pop(place, None)
        if of is not None:
            counts.update(context_paths(of["workflow_type"], _values(of).get, DEFAULT_LEVELS))
    return dict(counts)


def _values(event: Mapping[str, Any]) -> dict[str, str | None]:
    context = event.get("data", {}).get("context", {})
    return {"domain": level_value(context.get("domain")), "user_id": event.get("user_id")}
