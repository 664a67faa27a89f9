"""Runs all checks of a system, in the order in which they are shown."""

from __future__ import annotations

import asyncio
from typing import Final

from console.inspection.doctor.broker import check_broker
from console.inspection.doctor.databases import check_postgres, check_redis
from console.inspection.doctor.findings import Finding
from console.inspection.doctor.groups import check_groups
from console.inspection.doctor.machine import Machine, check_clock, check_machine
from console.inspection.doctor.memory import check_memory
from console.inspection.doctor.served import check_served
from console.inspection.doctor.workers import check_workers
from console.inspection.target import InspectionTarget
from console.inspection.workers import find_workers

HERE: Final = Machine()


async def diagnose(target: InspectionTarget, machine: Machine = HERE) -> list[Finding]:
    """Return every finding. A failed check is a finding, not an exception."""
    (broker, groups), (postgres, postgres_off), (redis, redis_off), served = await asyncio.gather(
        _check_log(target),
        check_postgres(target.postgres, machine.now),
        check_redis(target.redis, machine.now),
        check_served(target.kafka, target.redis, machine.now),
    )
    workers = find_workers(target.data, configured=target.optional_workers)
    offs = {"Postgres": postgres_off, "Redis": redis_off}
    clocks = {name: off for name, off in offs.items() if off is not None}
    return [
        *check_machine(machine, target.data),
        *broker,
        *postgres,
        *redis,
        *served,
        *groups,
        *(await check_memory(target.postgres) if target.memory else ()),
        check_clock(clocks),
        *check_workers(workers, target.data),
    ]


async def _check_log(target: InspectionTarget) -> tuple[list[Finding], list[Finding]]:
    """Return the findings on the broker, and those on the groups from the same description."""
    found, topics = await check_broker(target.kafka)
    if topics is None:
        return found, []
    return found, await check_groups(target.kafka, target.postgres, topics, target.spans_topic)
