"""The worker that merges what a tenant's workflow types have in common, killed -9 while it does."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from deploy.system import System
from headstart import Emitter
from learners.policy import Policy
from learners.registry import DEFAULT as LEARNER
from learners.registry import policy
from processing.control.default_merging import MAX_TENANTS, MIN_OUTCOMES
from processing.control.learned_defaults import decode_default
from processing.state.rows import CONTEXT, DEFAULT, context_of, decode_context, default_key
from replay.log.live_table import Rows, read_whole_table
from tests.integration.supervision import until
from tests.patience import PATIENCE_S
from topics.catalogue import EVENTS
from topics.control.messages import Default, LearnedState, decode_control, is_control
from topics.epoch import read_epoch
from topics.kafka.reader import read_records, topic_state

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

Event = dict[str, Any]
TENANTS = MAX_TENANTS
"""As many as are sent in one round, one after the other."""
KINDS = [f"type-{number}" for number in range(4)]
PARTITIONS = 4
_DEFAULT = b"defaults.published"
NEAR = 0.03
"""A value that moves by less than a third of this is not sent again."""


def guesses(judged: Callable[..., Event], tenants: list[str]) -> list[Event]:
    """Every tenant's guesses of .9 are right another share of the time: no two defaults alike."""
    events = []
    for number, tenant in enumerate(tenants):
        for n in range(MIN_OUTCOMES + 5):
            right = n % TENANTS <= number
            data = {"prediction": {"was_correct": right, "speculated": True}}
            events += [judged(tenant, kind, confidence=0.9, data=data) for kind in KINDS]
    return events


def default_in(record: Any) -> Default | None:
    """Return the default of a record of the log, if it has one."""
    if not is_control(record.headers):
        return None
    control = decode_control(record.value)
    return control if isinstance(control, Default) else None


def kill_in_mid_merge(begin: Mapping[Path, int], tenant: str, pid: int) -> None:
    """Kill a threshold worker the moment that it logs one of a tenant's defaults as sent.

    `begin`: where its logs ended before.
    """
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for path, size in begin.items():
            with path.open("rb") as file:
                file.seek(size)
                if any(_DEFAULT in line and tenant.encode() in line for line in file):
                    os.kill(pid, signal.SIGKILL)
                    return
        time.sleep(0.001)
    raise AssertionError(f"no default was sent: see {list(begin)}")


async def sent_defaults(
    kafka: str, begin: Mapping[int, int], mine: set[str]
) -> set[tuple[str, int]]:
    """Return for which tenants, and to which partitions, a default was sent."""
    end = (await topic_state(kafka, EVENTS.name)).end
    found = set()
    async for record in read_records(kafka, EVENTS.name, begin, end):
        default = default_in(record)
        if default is not None and default.tenant in mine:
            found.add((default.tenant, record.partition))
    return found


def tables(kafka: str) -> dict[int, Rows]:
    """Return the rows of every partition, as the changelog has them."""

    async def read() -> dict[int, Rows]:
        found = await read_whole_table(kafka, await read_epoch(kafka))
        return {partition: each.rows for partition, each in found.items()}

    return asyncio.run(read())


def learned_in(rows: Rows, tenants: list[str]) -> dict[str, LearnedState | None]:
    """Return the defaults of one partition's table."""
    found = [key for key in rows if key.startswith(DEFAULT)]
    assert len(found) == len({context_of(key)[0] for key in found}), "one row for each tenant"
    return {
        tenant: decode_default(rows[default_key(tenant)]).learned
        for tenant in tenants
        if default_key(tenant) in rows
    }


def right_answer(learner: Policy, found: Mapping[int, Rows], tenant: str) -> float:
    """Return what the tenant's workflow types, as all tables have them, make of a new one."""
    own = [
        decode_context(row)
        for rows in found.values()
        for key, row in rows.items()
        if key.startswith(CONTEXT) and context_of(key)[0] == tenant and b"/" not in key
    ]
    assert len(own) == len(KINDS)
    pooled = learner.pooled([row.state for row in own], [float(row.outcomes) for row in own])
    return learner.thresholds(pooled).speculate


def wrong(found: Mapping[int, Rows], tenants: list[str]) -> list[str]:
    """Return for which tenants partitions differ, or have values that their types do not."""
    learner = policy(LEARNER)
    of_each = {partition: learned_in(rows, tenants) for partition, rows in found.items()}
    left = []
    for tenant in tenants:
        first, *others = (learned.get(tenant) for learned in of_each.values())
        agreed = all(other == first for other in others)
        right = right_answer(learner, found, tenant)
        if first is None or not agreed or abs(_answer(first, learner) - right) > NEAR:
            left.append(tenant)
    return left


def _answer(learned: LearnedState, learner: Policy) -> float:
    return learner.thresholds(learned.state).speculate


def merge_and_kill(system: System, tenants: list[str], events: list[Event]) -> int:
    """Have outcomes learned and the merger killed; return how many records of defaults it left."""
    kafka, supervisor = system.addresses.kafka, system.supervisor
    assert supervisor is not None
    until(system, lambda: supervisor.ready and supervisor.spared)
    begin = asyncio.run(topic_state(kafka, EVENTS.name)).end
    logs = system.data / "workers" / "logs"
    sizes = {path: path.stat().st_size for path in logs.glob("thresholds-*.log")}
    emitter = Emitter(kafka)
    for event in events:
        emitter.emit(event)
    emitter.close(PATIENCE_S)
    pid = supervisor.pids["thresholds"]
    kill_in_mid_merge(sizes, tenants[0].rpartition("-")[0], pid)
    left = asyncio.run(sent_defaults(kafka, begin, set(tenants)))
    until(system, lambda: supervisor.pids["thresholds"] != pid)
    return len(left)


def test_the_merger_killed_in_mid_merge_leaves_every_tenant_one_default(
    system: System,
    headstart: Any,
    stored_at: Callable[..., Any],
    tenant: str,
    judged: Callable[..., Event],
) -> None:
    at = system.addresses
    for attempt in range(8):  # a worker may be quicker than the kill
        tenants = [f"{tenant}-{attempt}-{number}" for number in range(TENANTS)]
        before = merge_and_kill(system, tenants, guesses(judged, tenants))
        if before < TENANTS * PARTITIONS:
            break
    assert 0 < before < TENANTS * PARTITIONS, "it was in the middle of it"

    # Where a look fell into the middle of the events, the right value is sent a minute later.
    until(system, lambda: not wrong(tables(at.kafka), tenants))
    assert system.drain(PATIENCE_S)
    found = tables(at.kafka)
    assert wrong(found, tenants) == []
    learner = policy(LEARNER)
    states = set()
    for name, default in learned_in(found[0], tenants).items():
        assert default is not None
        assert default.outcomes <= len(KINDS) * (MIN_OUTCOMES + 5), "nothing counts twice"
        states.add(default.state)
        served = stored_at({"postgres": at.postgres, "redis": at.redis}, name).served("")
        assert served.keys() == {"default"}
        assert served["default"]["speculate"] == _answer(default, learner)
    assert len(states) == TENANTS
    places = ("--kafka", at.kafka, "--postgres", at.postgres, "--redis", at.redis)
    verified = headstart("verify", *places, "--json")
    assert json.loads(verified.stdout)["counts"] == {}, verified.stderr
