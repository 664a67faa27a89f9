"""Skew and capacity follow from keys and costs: laws of shares, and sums that a reader can redo."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.capacity import BUSY, SERVER_CORES, costs, fewest_partitions, needs, page
from bench.skew import EXPONENTS, PARTITIONS, keys, skew

SMALL = keys(20, 10)


@given(
    partitions=st.sampled_from(PARTITIONS),
    exponent=st.sampled_from(EXPONENTS),
    seed=st.integers(0, 1_000),
)
def test_the_hottest_partition_has_its_even_share_or_its_hottest_key_or_more(
    partitions: int, exponent: float, seed: int
) -> None:
    found = skew(SMALL, partitions, exponent, seed)
    assert found == skew(SMALL, partitions, exponent, seed)
    assert max(found.hottest_key, 1 / partitions) <= found.hottest_partition * (1 + 1e-9)
    assert found.hottest_partition <= 1 + 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_twice_the_partitions_are_never_hotter(seed: int) -> None:
    """A partition's keys are shared out between two: hash modulo 2 n refines hash modulo n."""
    for exponent in EXPONENTS:
        shares = [skew(SMALL, n, exponent, seed).hottest_partition for n in (8, 16, 32, 64, 128)]
        assert shares == sorted(shares, reverse=True)


def test_more_skew_is_a_hotter_key() -> None:
    shares = [skew(SMALL, 8, exponent, 0).hottest_key for exponent in EXPONENTS]
    assert shares == sorted(shares)
    assert shares[0] == pytest.approx(1 / len(SMALL))


FOOTPRINT = {"processes": {"thresholds": {"cpu_us": 40.0}, "postgres": {"cpu_us": 56.0}}}
SCALE = {"cases": [], "cpu_us": 20.0}


def test_costs_come_from_the_benches_and_of_a_backlog_where_there_is_one() -> None:
    assert costs([FOOTPRINT]) == {"thresholds": 40.0, "postgres": 56.0}
    assert costs([SCALE, FOOTPRINT]) == {"thresholds": 20.0, "postgres": 56.0}
    with pytest.raises(ValueError, match="give what footprint"):
        costs([{"events_per_s": 1}])


def test_needs_are_cost_times_rate_at_most_so_busy() -> None:
    postgres, thresholds = needs(costs([FOOTPRINT]), 1e6)
    assert thresholds.cores == pytest.approx(40)
    assert thresholds.most_per_s == pytest.approx(BUSY * 25_000)
    assert thresholds.processes == 58
    assert postgres.cores == pytest.approx(56)
    assert postgres.most_per_s == pytest.approx(SERVER_CORES * BUSY * 1e6 / 56)
    assert postgres.processes == 5


def test_partitions_are_found_until_one_key_is_too_much() -> None:
    assert fewest_partitions(1_000, 1_000, 0.0) == 1
    enough = fewest_partitions(1e6, 100_000, 0.8)
    assert enough in PARTITIONS
    assert skew(keys(), enough or 1, 0.8, 0).hottest_partition * 1e6 <= 100_000
    assert fewest_partitions(1e6, 100_000, 1.2) is None
    text = "\n".join(page(costs([FOOTPRINT]), 1e6))
    assert "no number is enough" in text
    assert "| thresholds | 40.0 | 40.0 | 58 processes | 17,500 |" in text
