"""The measurement of a purge measures one that is complete."""

from __future__ import annotations

import asyncio

import pytest

from bench.support.purge_measuring import measure_packed_purge, measure_purge
from bench.support.purge_places import measure_places


@pytest.mark.integration
def test_a_small_purge_is_complete_and_leaves_the_others(database: str) -> None:
    found = asyncio.run(measure_purge(database, 400))
    assert found["purged_rows"] == 400 * (4 + 1 + 1) + 49
    assert (found["canary_bytes"], found["others_changed"]) == (0, 0)
    assert found["purge_100000_s"] > 0


@pytest.mark.integration
def test_packed_cases_are_purged_as_completely(database: str) -> None:
    found = asyncio.run(measure_packed_purge(database, 400))
    assert (found["packed_runs"], found["packed_canary_bytes"]) == (500, 0)
    assert min(found["purge_packed_100000_s"], found["preview_packed_s"]) > 0


@pytest.mark.integration
@pytest.mark.any_broker
def test_every_place_has_the_user_before_and_nothing_of_it_afterwards() -> None:
    """Topics are left out: the embedded broker deletes and compacts nothing."""
    found = measure_places("embedded", 2)
    left, before = found["canary_bytes_of"], found["canary_bytes_before"]
    assert left == dict.fromkeys(before, 0)
    assert {name for name, count in before.items() if not count} == {"logs of workers"}
    assert {"Redis", "spools", "headstart export (text only)"} < before.keys()
