"""All checks of a system, in the order in which they are worth reading."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from watching.doctor.broker import check_broker
from watching.doctor.databases import check_postgres, check_redis
from watching.doctor.findings import NOTE, OK, WRONG, Finding
from watching.doctor.machine import Machine, check_clock, check_machine
from watching.doctor.served import check_served
from watching.target import Target
from watching.workers import Worker, find_workers

HERE: Final = Machine()
_NOTED: Final = (
    "its log says which (redis.repaired, redis.contested, redis.kept); what else writes to Redis "
    "needs a Redis, or a database number, of its own"
)


async def diagnose(target: Target, machine: Machine = HERE) -> list[Finding]:
    """Return every finding. Raises nothing for what is wrong: that is what it finds."""
    broker, (postgres, postgres_off), (redis, redis_off), served = await asyncio.gather(
        check_broker(target.kafka),
        check_postgres(target.postgres, machine.now),
        check_redis(target.redis, machine.now),
        check_served(target.kafka, target.redis, machine.now),
    )
    offs = {"Postgres": postgres_off, "Redis": redis_off}
    clocks = {name: off for name, off in offs.items() if off is not None}
    return [
        *check_machine(machine, target.data),
        *broker,
        *postgres,
        *redis,
        *served,
        check_clock(clocks),
        *_workers(find_workers(target.data)),
    ]


def _workers(found: Sequence[Worker]) -> Iterator[Finding]:
    if not found:
        yield Finding("workers", NOTE, "none has ever run on this data directory", "headstart up")
    for each in found:
        name = f"{each.name}-{each.instance}"
        trouble = each.trouble
        remedy = f"see its log: {name}.log in the directory logs beside it" if trouble else ""
        if each.refused and not each.running:
            yield Finding("workers", WRONG, f"{name} {trouble}", remedy)
        else:
            yield Finding(
                "workers", NOTE if trouble else OK, f"{name} {trouble or 'works'}", remedy
            )
        for note in each.redis_notes:
            yield Finding("served", NOTE, f"{name}: {note}", _NOTED)
