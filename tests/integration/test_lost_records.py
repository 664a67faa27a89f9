"""Records that retention deletes while workers are down: an alarm, and the rest is learned."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete

from tests.integration.hosts import Site
from topics.catalogue import EVENTS
from topics.kafka.admin import admin_client
from topics.kafka.reader import topic_state

pytestmark = [pytest.mark.integration, pytest.mark.slow]

Event = dict[str, Any]
TYPES = [f"type-{number}" for number in range(12)]
"""Enough that every partition has some."""
GROUPS = ("headstart-thresholds", "headstart-episodes")


async def delete_all(kafka: str) -> dict[int, int]:
    """Delete every event, as retention would; return the ends of the partitions."""
    state = await topic_state(kafka, EVENTS.name)
    async with admin_client(kafka) as client:
        await client.delete_records(
            {TopicPartition(EVENTS.name, p): RecordsToDelete(end) for p, end in state.end.items()}
        )
    return dict(state.end)


def lost_by(site: Site, name: str) -> int:
    ended = site.run("status", "--json", host="host")
    (found,) = (each for each in json.loads(ended.stdout)["workers"] if each["worker"] == name)
    return int(found["lost"])


def test_what_retention_deleted_unread_is_said_by_all_and_the_rest_is_learned(
    site: Site, tenant: str, judged: Callable[..., Event], stored_at: Callable[..., Any]
) -> None:
    stored = stored_at(vars(site.addresses), tenant, site.check)
    names = ("thresholds", "episodes", "history", "predictions")
    workers = site.start("host", *names)
    seen = [judged(tenant, each) for each in TYPES]
    site.emit(seen)
    site.until(lambda: workers.ready and site.lag() == 0)
    site.end(workers)

    read = asyncio.run(topic_state(site.addresses.kafka, EVENTS.name)).end
    site.emit([judged(tenant, each) for each in TYPES for _ in range(5)])
    end = asyncio.run(delete_all(site.addresses.kafka))
    lost = sum(end[partition] - read[partition] for partition in end)
    assert lost > 0

    workers = site.start("host", *names)  # nothing is left to fetch that would show a gap
    for name in names[:2]:
        site.until(lambda name=name: lost_by(site, name) == lost)  # type: ignore[misc]
    status = site.run("status", host="host")
    assert status.returncode == 1
    assert f"retention deleted {lost:,} records before worker thresholds had read them" in (
        status.stdout
    )
    for group in GROUPS:
        log = site.log("host", f"{group.removeprefix('headstart-')}-0")
        assert "records.lost_to_retention" in log

    after = [judged(tenant, each) for each in TYPES]
    site.emit(after)
    site.until(lambda: site.lag() == 0)
    assert stored.ids() == sorted(event["id"] for event in [*seen, *after])

    site.end(workers)  # and it is still known when they run again
    workers = site.start("host", *names)
    site.until(lambda: workers.ready)
    site.until(lambda: site.run("status", host="host").returncode == 0)
    ranges = {
        f"partition {p}: retention deleted offsets {read[p]} to {end[p] - 1} before {group} had"
        for p in end
        for group in GROUPS
        if end[p] > read[p]
    }
    doctor = site.run("doctor", host="host")
    verify = site.run("verify", host="host")
    assert (doctor.returncode, verify.returncode) == (1, 1)
    for each in ranges:
        assert each in doctor.stdout
        assert each in verify.stderr
    assert "retention.ms" in doctor.stdout

    letters = re.findall(r"dead-letters drop (\d+:\d+)", doctor.stdout)
    assert len(letters) == len(ranges)
    refused = site.run("dead-letters", "replay", letters[0], "--yes", host="host")
    assert refused.returncode == 1
    assert "nothing is left to replay" in refused.stdout + refused.stderr
    assert site.run("dead-letters", "drop", "--all", "--yes", host="host").returncode == 0
    assert "retention deleted" not in site.run("doctor", host="host").stdout
