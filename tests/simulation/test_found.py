"""Schedules written by hand, for what the simulator once found."""

from __future__ import annotations

import pytest

from tests.simulation.faults import Kill, Postgres, Rebalance, Redis, Schedule
from tests.simulation.run import run
from tests.simulation.wiring import simulated


@pytest.mark.parametrize("seed", range(6))
def test_a_sink_that_waits_for_postgres_survives_a_rebalance(seed: int) -> None:
    """A cancelled transaction once ended the task that was told of the assignment."""
    faults = (Postgres(30, 30.0), Rebalance(45, "episodes"))
    with simulated():
        assert run(Schedule(seed, True, 1, 20, "td", faults)).wrong == []


@pytest.mark.parametrize("seed", range(4))
def test_what_waited_for_redis_is_published_by_the_next_owner(seed: int) -> None:
    """The committed offset once passed what its owner had yet to publish."""
    faults = (Redis(100, "down", 300.0), Kill(250, "all"))
    with simulated():
        assert run(Schedule(seed, True, 1, 20, "td", faults)).wrong == []
