"""A schedule written by hand, for what the simulator once found."""

from __future__ import annotations

import pytest

from tests.simulation.faults import Postgres, Rebalance, Schedule
from tests.simulation.run import run
from tests.simulation.wiring import simulated


@pytest.mark.parametrize("seed", range(6))
def test_a_sink_that_waits_for_postgres_survives_a_rebalance(seed: int) -> None:
    """A cancelled transaction once ended the task that was told of the assignment."""
    faults = (Postgres(30, 30.0), Rebalance(45, "episodes"))
    with simulated():
        assert run(Schedule(seed, True, 1, 20, "td", faults)).wrong == []
