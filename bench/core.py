"""The threshold agent's pure core alone: CPU per event, without broker, store or Redis.

Records as the client sends them, applied batch by batch as a worker's partition does, with the
commit of each. CPU time of the thread, because other work on the machine does not count there.
`python -P bench/core.py CASE EVENTS` measures one case with whatever tree PYTHONPATH names, so that
two trees can take turns.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import time
from contextlib import redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from bench.support.measuring import echo, frames
from learners.registry import policy
from processing.config import LearningConfig
from processing.records.batch import RecordBatch
from processing.task import PartitionTask

ROUNDS: Final = 5
ALL_LEVELS: Final = ("domain", "user_id", "tool_id")


class CoreCase(NamedTuple):
    """Records of one partition, and the policy that learns from them."""

    learner: str = "ema"
    levels: tuple[str, ...] = ()
    per_record: int = 1
    contexts: int = 25
    """Workflow types; the worker's 200 lie in 8 partitions."""
    batch: int = 8_000
    """Events of a fetch: 4 MB."""


CASES: Final = {
    "ema": CoreCase(),
    "ema, frames of 200": CoreCase(per_record=200),
    "ema, 1,250 contexts": CoreCase(contexts=1_250),
    "ema, batches of 100": CoreCase(batch=100),
    "hops, one level": CoreCase("hops"),
    "hops, four levels": CoreCase("hops", ALL_LEVELS),
    "hops, three levels, batches of 8": CoreCase("hops", ALL_LEVELS[:2], contexts=3, batch=8),
}


def run(count: int = 200_000, against: str | None = None) -> dict[str, Any]:
    """Return us of CPU per event by case, the median; `against`: another tree, taking turns."""
    trees = {"here": str(Path(__file__).parents[1]), **({"there": against} if against else {})}
    figures: dict[str, Any] = {"events": count, "rounds": ROUNDS}
    for name in CASES:
        found: dict[str, list[float]] = {tree: [] for tree in trees}
        for _round in range(ROUNDS):
            for tree, path in trees.items():
                found[tree].append(_elsewhere(path, name, count))
        middle = {tree: statistics.median(values) for tree, values in found.items()}
        figures[name] = {
            "us": round(middle["here"], 2),
            "spread": [round(min(found["here"]), 2), round(max(found["here"]), 2)],
        }
        if against:
            figures[name]["us_there"] = round(middle["there"], 2)
            figures[name]["ratio"] = round(middle["there"] / middle["here"], 2)
        echo(f"{name}: {figures[name]}")
    return figures


def _elsewhere(tree: str, case: str, count: int) -> float:
    environment = {**os.environ, "PYTHONPATH": f"{tree}:{tree}/client"}
    argv = [sys.executable, "-P", __file__, case, str(count)]  # -P: not its own folder first
    done = subprocess.run(argv, env=environment, check=True, capture_output=True, timeout=600)
    return float(orjson.loads(done.stdout))


def measured(case: CoreCase, count: int) -> float:
    """Return the microseconds of CPU that an event takes."""
    made = [value for _partition, _key, value in frames(count, case.per_record, case.contexts)]
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)  # as a worker does
    table: dict[bytes, bytes] = {}
    core = PartitionTask(0, 1, 1, LearningConfig(policy(case.learner), case.levels), table.get)
    at_once = max(1, case.batch // case.per_record)
    spent, events = 0, 0
    for begin in range(0, len(made), at_once):
        values: list[bytes | None] = [*made[begin : begin + at_once]]
        offsets = list(range(begin, begin + len(values)))
        times: list[int] = [1 << 60] * len(values)
        keys: list[bytes | None] = [None] * len(values)
        batch = RecordBatch("events", 0, begin, begin + len(values), offsets, times, keys, values)
        position, rows = 0, list[tuple[bytes, bytes]]()
        started = time.thread_time_ns()
        while position < len(values):
            position = core.apply(batch, position)
            commit = core.commit()
            rows += commit.rows
            events += commit.events
        if begin:  # the first makes the contexts
            spent += time.thread_time_ns() - started
        else:
            events = 0
        table.update(rows)
    return spent / events / 1000


def _as_in_a_worker() -> None:
    """Have the compiled scanner, which not every tree has."""
    if find_spec("kernels.loader") is not None:
        import_module("kernels.loader").load()


if __name__ == "__main__":
    with redirect_stdout(sys.stderr):  # where it logs
        _as_in_a_worker()
    print(measured(CASES[sys.argv[1]], int(sys.argv[2])))
