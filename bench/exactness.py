"""What exactness costs: the threshold agent with and without its rules, on equal topics in turn."""

from __future__ import annotations

import asyncio
import statistics
from typing import Any, Final

from bench.measuring import frames, fresh_stack, produce, say
from bench.process import threshold_agent

SIDES: Final = {"exact": "cli", "unguarded": "bench.unguarded"}
ROUNDS: Final = 3


def run(kafka: str, count: int = 300_000) -> dict[str, Any]:
    """Return the figures: the ratio of the medians."""
    rates: dict[str, list[float]] = {side: [] for side in SIDES}
    for number in range(ROUNDS):
        for side, module in SIDES.items():
            with fresh_stack(kafka) as (addresses, folder):
                records = asyncio.run(produce(addresses.kafka, frames(count, 1)))
                rates[side].append(threshold_agent(addresses, folder, records, module))
            say(f"round {number + 1} of {ROUNDS}, {side}: {rates[side][-1]:,.0f} events/s")
    exact, unguarded = (statistics.median(rates[side]) for side in SIDES)
    return {
        "exact_events_per_s": round(exact),
        "unguarded_events_per_s": round(unguarded),
        "ratio_exact": round(exact / unguarded, 2),
        "rates": {side: [round(rate) for rate in found] for side, found in rates.items()},
        "framing": "one event per record in filled batches; 200 contexts, one level, EMA",
        "events": count,
        "broker": kafka,
    }
