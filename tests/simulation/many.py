"""Many schedules, on every core: chunks of seeds in processes of their own.

Their hash seed is fixed, so that whatever a run does in the order of a set replays too.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final
from unittest.mock import patch

from tests.simulation.rules import without
from tests.simulation.run import Result, run, schedule_of
from tests.simulation.wiring import simulated

CHUNK: Final = 250
COLLECT_EVERY: Final = 100
"""Runs between two collections of garbage: a world is a knot of cycles."""


@dataclass
class Tally:
    """What came of some schedules."""

    schedules: int = 0
    steps: int = 0
    failed: dict[int, list[str]] = field(default_factory=dict)
    """What was wrong, by seed."""

    def add(self, other: Tally) -> None:
        self.schedules += other.schedules
        self.steps += other.steps
        self.failed |= other.failed


def run_seed(seed: int, rule: str | None = None, *, trace: bool = False) -> Result:
    """Run one seed, perhaps without a rule."""
    with _world_of(rule):
        return run(schedule_of(seed), trace=trace)


def run_chunk(begin: int, end: int, rule: str | None = None, most_failures: int = 10) -> Tally:
    """Run seeds from `begin` up to, not including, `end`; stop after so many failures."""
    tally = Tally()
    gc.disable()
    with _world_of(rule):
        for seed in range(begin, end):
            result = run(schedule_of(seed))
            tally.schedules += 1
            tally.steps += result.steps
            if result.wrong:
                tally.failed[seed] = result.wrong
                if len(tally.failed) >= most_failures:
                    break
            if seed % COLLECT_EVERY == 0:
                gc.collect()
    return tally


def run_chunks(begins: Iterable[int], size: int = CHUNK) -> Iterator[Tally]:
    """Run chunks of `size` seeds on every core; yield what came of each, in order."""
    with patch.dict(os.environ, {"PYTHONHASHSEED": "0"}), _pool() as pool:
        waiting = []
        for begin in begins:
            waiting.append(pool.submit(run_chunk, begin, begin + size))
            if len(waiting) > 2 * (os.cpu_count() or 1):
                yield waiting.pop(0).result()
        for future in waiting:
            yield future.result()


def _pool() -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(os.cpu_count(), mp_context=context, initializer=_settle)


def _settle() -> None:
    """Keep what was imported out of every collection: it is most of what there is to look at."""
    gc.collect()
    gc.freeze()


def first_failures(rules: Iterable[str], most: int) -> Iterator[tuple[str, Tally]]:
    """Run seeds from 0 on without each rule until one fails, `most` at the most."""
    with patch.dict(os.environ, {"PYTHONHASHSEED": "0"}), _pool() as pool:
        futures = {rule: pool.submit(run_chunk, 0, most, rule, 1) for rule in rules}
        for rule, future in futures.items():
            yield rule, future.result()


def run_seeds(seeds: Iterable[tuple[int, str | None]]) -> Iterator[Tally]:
    """Run (seed, rule to switch off) pairs; yield what came of each, in order."""
    with patch.dict(os.environ, {"PYTHONHASHSEED": "0"}), _pool() as pool:
        futures = [pool.submit(run_chunk, seed, seed + 1, rule) for seed, rule in seeds]
        for future in futures:
            yield future.result()


@contextmanager
def _world_of(rule: str | None) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(simulated())
        if rule is not None:
            stack.enter_context(without(rule))
        yield
