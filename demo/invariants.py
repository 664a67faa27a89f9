"""What must hold after the drain: every event stored once, every outcome counted once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from demo.log import LogReading, read_log
from deploy.local import Addresses
from sinks.connections import connect_postgres
from sinks.queries import count_events, event_ids
from sinks.served import served_thresholds
from topics.catalogue import DEAD_LETTERS
from topics.reading import read_records, topic_state


@dataclass(frozen=True)
class Figures:
    """What the log, Postgres, Redis and the dead-letter topic hold of one tenant."""

    log: LogReading
    stored_rows: int
    stored_ids: set[str]
    served: dict[str, int]
    """Outcomes counted by context path, as Redis serves them."""
    dead_letters: int


async def gather(
    addresses: Addresses,
    tenant: str,
    levels: Sequence[str],
    begin: dict[int, int],
    end: dict[int, int],
) -> Figures:
    """Read all four places."""
    log = await read_log(addresses.kafka, tenant, levels, begin, end)
    async with await connect_postgres(addresses.postgres) as connection:
        count = await count_events(connection, tenant)
        ids = await event_ids(connection, tenant)
    served = {
        each["path"]: each["outcomes"] async for each in served_thresholds(addresses.redis, tenant)
    }
    return Figures(log, count.stored, ids, served, await _dead_letters(addresses.kafka, tenant))


async def _dead_letters(kafka: str, tenant: str) -> int:
    state = await topic_state(kafka, DEAD_LETTERS.name)
    letters = read_records(kafka, DEAD_LETTERS.name, state.begin, state.end)
    return sum([tenant.encode() in (letter.value or b"") async for letter in letters])


def check_invariants(emitted: int, figures: Figures) -> list[str]:
    """Return a sentence for each invariant that does not hold."""
    broken = []
    log = figures.log
    if not emitted == len(log.ids) == len(set(log.ids)):
        broken.append(
            f"events: {emitted} emitted, {len(log.ids)} on the log, {len(set(log.ids))} distinct"
        )
    if figures.stored_ids != set(log.ids) or figures.stored_rows != len(set(log.ids)):
        missing = len(set(log.ids) - figures.stored_ids)
        broken.append(
            f"episodes: {figures.stored_rows} rows stored for {len(set(log.ids))} events, "
            f"{missing} missing"
        )
    for path in sorted(log.outcomes.keys() | figures.served.keys()):
        counted, right = figures.served.get(path, 0), log.outcomes[path]
        if counted != right:
            broken.append(f"outcomes of {path}: {counted} counted, {right} emitted")
    if figures.dead_letters:
        broken.append(f"dead letters: {figures.dead_letters}, expected none")
    return broken
