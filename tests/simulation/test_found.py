"""Schedules of what the simulator once found."""

from __future__ import annotations

import pytest

from tests.simulation.faults import Postgres, Rebalance, Schedule
from tests.simulation.run import run, schedule_of
from tests.simulation.wiring import simulated


@pytest.mark.parametrize("seed", range(6))
def test_a_sink_that_waits_for_postgres_survives_a_rebalance(seed: int) -> None:
    """A cancelled transaction once ended the task that was notified of the assignment."""
    faults = (Postgres(30, 30.0), Rebalance(45, "episodes"))
    with simulated():
        assert run(Schedule(seed, True, 1, 20, "td", faults)).wrong == []


def test_two_workers_that_meet_a_rebuild_agree_on_its_marker() -> None:
    """One that lags took the other's row for one of its own that was deleted, and reported it."""
    with simulated():
        assert run(schedule_of(311)).wrong == []
