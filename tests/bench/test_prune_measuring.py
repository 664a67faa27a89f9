"""Pruning looks at each row of a tenant a fixed number of times, however many go."""

from __future__ import annotations

import asyncio

import pytest

from bench.support.prune_measuring import measure_pruning


@pytest.mark.integration
def test_twice_the_rows_are_read_twice_as_often(migrated: str) -> None:
    found = asyncio.run(measure_pruning(migrated, (4_000, 8_000), 100))
    ratios = {name: value for name, value in found.items() if name.endswith("read_ratio")}
    assert sorted(ratios) == [f"prune_{kind}_read_ratio" for kind in ("cases", "events", "merged")]
    assert max(ratios.values()) < 2.6, found
