"""What benches make of their samples: medians and spread, trends and their verdicts, stretches."""

from __future__ import annotations

from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.__main__ import BENCHMARKS, OPTIONS, REPEATED
from bench.history import _stretches, summary
from bench.scale import BASE, HELD, ScaleCase, _compared, _warm
from bench.support.backlog_run import BacklogSample, cost, finished, shared, through, together
from bench.support.repeating import medians, ratio, repeated
from bench.support.trend import BLOCKS, trend


def test_medians_are_measured_values_with_their_spread() -> None:
    rates = iter([30, 10, 20, 40])
    found = repeated(lambda number: {"rate": next(rates), "round": number, "anchor": None}, 4)
    assert found == {
        "rate": 20,
        "round": 1,
        "anchor": None,
        "spread": {"rate": [10, 40], "round": [0, 3]},
        "repetitions": 4,
    }


def test_an_anchor_that_is_missing_once_does_not_count_that_once() -> None:
    found = medians([{"anchor": 4.0}, {"anchor": None}, {"anchor": 2.0}])
    assert found["anchor"] == 2.0
    assert found["spread"] == {"anchor": [2.0, 4.0]}


def test_a_ratio_without_an_anchor_is_none() -> None:
    assert ratio(3, 2) == 1.5
    assert ratio(3, None) is None


@given(slope=st.floats(-10, 10), start=st.floats(-1e3, 1e3), count=st.integers(BLOCKS, 500))
def test_a_line_is_found_exactly(slope: float, start: float, count: int) -> None:
    found = trend([(float(x), start + slope * x) for x in range(count)])
    assert found.slope == pytest.approx(slope, abs=1e-6)
    assert found.error == pytest.approx(0, abs=1e-6)


def test_the_interval_has_its_nominal_coverage() -> None:
    draw, held = Random(5), 0
    for _ in range(300):
        found = trend([(float(x), 0.01 * x + draw.gauss(0, 1)) for x in range(300)])
        held += abs(found.slope - 0.01) <= found.error
    assert 0.90 < held / 300 < 0.99


def test_an_unknown_slope_is_undecided() -> None:
    assert trend([(0.0, 1.0), (1.0, 2.0)]).error == inf
    assert trend([]).verdict(1.0) == "undecided"
    noisy = [(float(x), 50.0 * (-1) ** (x // 30)) for x in range(300)]
    assert trend(noisy).verdict(0.01) == "undecided"


def test_flat_is_shown_and_growth_too() -> None:
    draw = Random(6)
    still = [(float(x), 300 + draw.gauss(0, 0.5)) for x in range(300)]
    assert trend(still).verdict(0.01) == "flat"
    assert trend([(x, y + 0.05 * x) for x, y in still]).verdict(0.01) == "grows"


def looks(*events: int, us: float = 20.0) -> list[BacklogSample]:
    return [BacklogSample(at=n, events=n, cpu_s=1 + n * us / 1e6, resident_mb=n) for n in events]


def test_cost_is_between_the_first_and_the_last_look() -> None:
    found = cost(looks(100, 300, 500))
    assert found.cpu_us == pytest.approx(20)
    assert found.events_per_s == pytest.approx(1)
    assert found.resident_mb == 500
    with pytest.raises(ValueError, match="more --events"):
        cost(looks(100))


def test_workers_together_are_sums_and_the_largest() -> None:
    assert together([BacklogSample(1, 10, 1.0, 50), BacklogSample(2, 5, 0.5, 70)]) == BacklogSample(
        2, 15, 1.5, 70
    )


def test_progress_is_the_maximum_over_workers_by_partition() -> None:
    first, second = (
        BacklogSample(1, 10, 1.0, 50, {0: 5, 1: 9}),
        BacklogSample(2, 5, 0.5, 70, {1: 7, 2: 3}),
    )
    assert together([first, second]).applied == {0: 5, 1: 9, 2: 3}


def test_a_backlog_is_shared_when_each_worker_owns_partitions() -> None:
    first, second = (
        BacklogSample(1, 10, 1.0, 50, {0: 5, 1: 5}),
        BacklogSample(1, 5, 1.0, 50, {2: 5}),
    )
    assert shared([first], 1)
    assert shared([first, second], 2)
    assert not shared([first], 2), "one has not answered"
    assert shared([first, second._replace(events=0)], 2)
    assert not shared([first, second._replace(applied={})], 2)
    assert not shared([first, second._replace(applied={1: 5, 2: 5})], 2), (
        "one covers the time before"
    )


def test_all_is_through_when_every_partition_is_at_its_end() -> None:
    assert through({0: 5, 1: 9}, {0: 5, 1: 7, 2: 0})
    assert not through({0: 5, 1: 6}, {0: 5, 1: 7})
    assert not through({0: 5}, {0: 5, 1: 7})


def test_several_workers_are_compared_with_one_that_has_as_much_of_a_core() -> None:
    def figures(rate: float, cpu_us: float) -> dict[str, float | None]:
        return {"events_per_s": rate, "cpu_us": cpu_us, "largest_worker_mb": 1.0}

    held = BASE._replace(cores=HELD)
    found = {BASE: figures(500, 2.0), held: figures(100, 2.0)}
    several = {
        BASE._replace(workers=2): figures(550, 2.5),
        held._replace(workers=2): figures(180, 2.0),
    }
    assert _compared(found | several) == {
        "ratio_2_workers": 1.1,
        "ratio_2_workers_own_cores": 1.6,
        "ratio_2_workers_held": 1.8,
    }
    through_too_soon = dict.fromkeys(figures(0, 0))
    assert _compared({BASE: through_too_soon, ScaleCase(workers=2): figures(550, 2.5)}) == {
        "ratio_2_workers": None,
        "ratio_2_workers_own_cores": None,
    }


def test_of_workers_with_little_of_a_core_the_second_half_counts() -> None:
    looks = [BacklogSample(float(at), 10 * at, 0.0, 0.0) for at in range(1, 11)]
    assert _warm(BASE, looks) == looks
    assert _warm(BASE._replace(cores=HELD), looks) == looks[4:]


def test_samples_end_with_the_first_with_all_events() -> None:
    found = finished(looks(100, 300, 500, 500, 500), 2_000)
    assert [(each.at, each.events) for each in found] == [(100, 1_600), (300, 1_800), (500, 2_000)]
    with pytest.raises(ValueError, match="more --events"):
        finished([], 2_000)


def test_stretches_are_whole_and_numbered_from_the_beginning_of_all() -> None:
    found = _stretches(looks(10, 60, 120, 180, 240, 250), begin=1_000, length=100)
    assert [each["event"] for each in found] == [1_120.0, 1_240.0]
    assert [each["cpu_us"] for each in found] == [20.0, 20.0]


def test_growth_is_of_the_last_stretch_over_the_first() -> None:
    stretches = [{"event": 1e6 * n, "cpu_us": 20.0 + n} for n in range(1, 21)]
    found = summary(stretches)
    assert found["growth"] == pytest.approx(40 / 21 - 1, abs=0.001)
    assert found["fitted_growth"] == pytest.approx(20 / 21, abs=0.001)
    assert found["events"] == 20_000_000
    assert summary(stretches[:2])["fitted_growth_error"] is None
    with pytest.raises(ValueError, match="more --events"):
        summary([])


def test_every_benchmark_runs_and_every_option_is_used() -> None:
    import importlib
    import inspect

    taken: set[str] = set()
    for name in BENCHMARKS:
        taken |= inspect.signature(importlib.import_module(f"bench.{name}").run).parameters.keys()
    assert taken <= {*OPTIONS, *REPEATED, "kafka", "events", "_kafka"}
    assert {*OPTIONS, *REPEATED} <= taken
