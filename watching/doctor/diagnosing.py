"""All checks of a system, in the order in which they are worth reading."""

from __future__ import annotations

import asyncio
from typing import Final

from watching.doctor.broker import check_broker
from watching.doctor.databases import check_postgres, check_redis
from watching.doctor.findings import Finding
from watching.doctor.groups import check_groups
from watching.doctor.machine import Machine, check_clock, check_machine
from watching.doctor.served import check_served
from watching.doctor.workers import check_workers
from watching.target import Target
from watching.workers import find_workers

HERE: Final = Machine()


async def diagnose(target: Target, machine: Machine = HERE) -> list[Finding]:
    """Return every finding. Raises nothing for what is wrong: that is what it finds."""
    broker, (postgres, postgres_off), (redis, redis_off), served, groups = await asyncio.gather(
        check_broker(target.kafka),
        check_postgres(target.postgres, machine.now),
        check_redis(target.redis, machine.now),
        check_served(target.kafka, target.redis, machine.now),
        check_groups(target.kafka, target.postgres),
    )
    offs = {"Postgres": postgres_off, "Redis": redis_off}
    clocks = {name: off for name, off in offs.items() if off is not None}
    return [
        *check_machine(machine, target.data),
        *broker,
        *postgres,
        *redis,
        *served,
        *groups,
        check_clock(clocks),
        *check_workers(find_workers(target.data), target.data),
    ]
