"""Laws of the declared latencies: the cost ratio holds for every call, a seed fixes everything."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo.tool_latency import DEFAULT_COST_RATIO, LatencyModel

SEEDS = st.integers(0, 2**32)
TOOLS = st.text(min_size=1, max_size=20)


@given(seed=SEEDS, tool=TOOLS, ratio=st.floats(0.01, 0.99))
def test_the_cost_ratio_holds_for_every_call(seed: int, tool: str, ratio: float) -> None:
    latency = LatencyModel(seed, cost_ratio=ratio).draw(tool)
    assert latency.cost_ms / (latency.cost_ms + latency.gain_ms) == pytest.approx(ratio)
    assert 0 < latency.gain_ms <= latency.execution_ms


def test_the_default_cost_ratio_is_six_tenths() -> None:
    latency = LatencyModel(1).draw("search")
    assert DEFAULT_COST_RATIO == 0.6
    assert latency.cost_ms == pytest.approx(1.5 * latency.gain_ms)


@given(seed=SEEDS, tools=st.lists(TOOLS, max_size=10))
def test_a_seed_fixes_every_call(seed: int, tools: list[str]) -> None:
    one, two = LatencyModel(seed, executor=1), LatencyModel(seed, executor=1)
    assert [one.draw(t) for t in tools] == [two.draw(t) for t in tools]


@given(seed=SEEDS, tool=TOOLS)
def test_executors_share_the_tools_but_not_the_calls(seed: int, tool: str) -> None:
    one, two = LatencyModel(seed, executor=0), LatencyModel(seed, executor=1)
    assert one.median_ms(tool) == two.median_ms(tool)
    assert one.draw(tool) != two.draw(tool)


@given(seed=SEEDS, tool=TOOLS)
def test_medians_lie_between_a_look_up_and_a_slow_service(seed: int, tool: str) -> None:
    assert 80 <= LatencyModel(seed).median_ms(tool) <= 2_000


def test_calls_spread_about_their_tools_median() -> None:
    model = LatencyModel(7)
    drawn = [model.draw("search").execution_ms for _ in range(4_000)]
    assert median(drawn) == pytest.approx(model.median_ms("search"), rel=0.05)
    within = [d for d in drawn if 0.5 < d / model.median_ms("search") < 2]
    assert len(within) / len(drawn) == pytest.approx(0.95, abs=0.02)
    assert any(a != b for a, b in pairwise(drawn))


@pytest.mark.parametrize("ratio", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_a_ratio_without_a_threshold_is_refused(ratio: float) -> None:
    with pytest.raises(ValueError, match="above 0 and below 1"):
        LatencyModel(1, cost_ratio=ratio)
