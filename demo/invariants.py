"""What must hold after the drain: every event stored once, every outcome counted once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from demo.log_oracle import LogReading, read_log
from deploy.local import Addresses
from sinks.connections import connect_postgres
from sinks.postgres.queries import count_events, event_ids
from sinks.redis.queries import served_thresholds
from topics.catalogue import DEAD_LETTERS
from topics.kafka.reader import read_records, topic_state


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


@dataclass(frozen=True)
class Invariant:
    """One invariant: what was found, how it was checked, and violations."""

    name: str
    how: str
    found: str
    broken: list[str]


def check_invariants(emitted: int, figures: Figures) -> list[Invariant]:
    """Return every invariant; those that hold have nothing in `broken`."""
    log = figures.log
    distinct = set(log.ids)
    on_log = f"{emitted} emitted, {len(log.ids)} on the log, {len(distinct)} distinct"
    missing = len(distinct - figures.stored_ids)
    stored = f"{figures.stored_rows} rows stored for {len(distinct)} events, {missing} missing"
    wrong = [
        f"outcomes of {path}: {figures.served.get(path, 0)} counted, {log.outcomes[path]} emitted"
        for path in sorted(log.outcomes.keys() | figures.served.keys())
        if figures.served.get(path, 0) != log.outcomes[path]
    ]
    held = figures.stored_ids == distinct and figures.stored_rows == len(distinct)
    return [
        Invariant(
            "Every event reached the log once",
            "The executors' own counts against the event ids read back from Kafka.",
            on_log,
            [] if emitted == len(log.ids) == len(distinct) else [f"events: {on_log}"],
        ),
        Invariant(
            "Every event is remembered once",
            "The ids in Postgres against those on the log.",
            stored,
            [] if held else [f"episodes: {stored}"],
        ),
        Invariant(
            "Every outcome counted once, in every context",
            "The counts that Redis serves against a join of the log that shares no code with the "
            "agents.",
            f"{sum(log.outcomes.values())} counts in {len(log.outcomes)} contexts",
            wrong,
        ),
        Invariant(
            "Nothing was refused",
            "The dead-letter topic read back.",
            f"{figures.dead_letters} dead letters",
            [f"dead letters: {figures.dead_letters}, expected none"] * bool(figures.dead_letters),
        ),
    ]
