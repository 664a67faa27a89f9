"""What the outbox adds to the CPU that Postgres spends on the sink's transactions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from bench.support.backend_cpu import backend_cpu_s
from sinks.postgres.episodes import EpisodeSink, EventOnlySink, encode_events, touched_runs

ROUNDS: Final = 10
BATCH: Final = 4_000
"""Events of a transaction; `bench sink` prints the worker's."""
OPEN_RUNS: Final = 1_500
"""Runs whose events are mixed in the log: the more, the more rows a batch has in the outbox."""


def mixed(runs: Sequence[Sequence[bytes]], seed: int) -> list[bytes]:
    """Return the events of runs as they arrive: those of `OPEN_RUNS` runs at a time, mixed."""
    draw = random.Random(seed)
    waiting = [iter(run) for run in runs[OPEN_RUNS:]]
    waiting.reverse()
    active = [iter(run) for run in runs[:OPEN_RUNS]]
    found: list[bytes] = []
    while active:
        place = draw.randrange(len(active))
        event = next(active[place], None)
        if event is not None:
            found.append(event)
        elif waiting:
            active[place] = waiting.pop()
        else:
            active[place] = active[-1]
            active.pop()
    return found


async def outbox_cost(dsn: str, batches: Sequence[Sequence[bytes]]) -> dict[str, float]:
    """Return the ratio of the backends' CPU with the outbox to that without, same batches.

    Batches go to two connections in turns, so that both share what else the machine does; in the
    next round each goes to the other one. The ratio is that of the sums over all rounds.
    """
    spent, before = [0.0, 0.0], [0.0, 0.0]
    by_pair = []
    async with await EventOnlySink.open(dsn) as bare, await EpisodeSink.open(dsn) as ours:
        sinks: Sequence[EpisodeSink] = (bare, ours)
        for number in range(ROUNDS):
            if number % 2 == 0:
                before = list(spent)
            await bare._connection.execute("TRUNCATE episodic_events, episode_outbox")
            await bare._connection.execute("CHECKPOINT")
            for place, lines in enumerate(batches):
                side = (place + number) % 2
                spent[side] += await _cpu_of_storing(sinks[side], lines, place)
            if number % 2:
                with_outbox, without = spent[1] - before[1], spent[0] - before[0]
                by_pair.append(with_outbox / without)
    noted = sum(len(touched_runs(lines)) for lines in batches)
    return {
        "outbox_cost_ratio": round(spent[1] / spent[0], 3),
        "outbox_cost_least": round(min(by_pair), 3),
        "outbox_cost_most": round(max(by_pair), 3),
        "outbox_rows_per_event": round(noted / sum(map(len, batches)), 3),
    }


async def _cpu_of_storing(sink: EpisodeSink, lines: Sequence[bytes], place: int) -> float:
    begun = backend_cpu_s(sink._connection)
    await sink.store(lines, {0: place}, topic="bench", epoch=1, on_refused=refuse_none)
    return backend_cpu_s(sink._connection) - begun


def cut_batches(events: Sequence[bytes], size: int = BATCH) -> list[list[bytes]]:
    """Return the events as lines of COPY text, in batches of equal size."""
    lines = encode_events(events)
    return [lines[begin : begin + size] for begin in range(0, len(lines) - size + 1, size)]


async def refuse_none(refused: Any) -> None:
    """Fail: the events of a benchmark are valid."""
    raise ValueError(f"refused: {refused}")
