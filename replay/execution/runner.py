"""A backtest over all units of a history, side by side in several processes.

Each task is one unit of the history with some of the policies. What is finished is kept in a file,
so that an interrupted run resumes. Results do not depend on the number of processes. Not here:
conclusions from the sums (`verdict`).
"""

from __future__ import annotations

import gc
import hashlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Any, Final, Self

import msgspec

from learners.policy import spec
from learners.registry import policy
from replay.engine.engine import MOST_CONTEXTS, BacktestEngine
from replay.engine.policy_runners import Answers
from replay.engine.split_sums import Split
from replay.execution.feed import feed
from replay.execution.resume_file import ResumeFile
from replay.files.output import output_file, refuse_input
from replay.predictions.estimates import Estimates, RecordedPrices
from replay.predictions.notes import Notes
from replay.results.unit_results import UnitSums, by_unit, unit_sums
from replay.sources.base import PredictionSource

SAID_EVERY_S: Final = 0.5
FORMAT: Final = 5
AGAIN: Final = "estimated/"
"""Begins the names of tasks that read a history again, with estimates."""


@dataclass(frozen=True)
class Backtest:
    """What to run. `policies`: specifications by the names that they get in the results.

    `split`, `timed`: see `BacktestEngine`. `estimates`: of gains and costs that are not recorded;
    None: they are made of what is. `thresholds_out`: a folder for one file per policy, with
    a line per prediction; only of a source of one unit. `begun`: Unix ms, relative times
    (--since 3d) are before it.
    """

    history: PredictionSource
    policies: Mapping[str, str]
    suggest: bool = False
    split: Split | None = None
    thresholds_out: Path | None = None
    most_contexts: int = MOST_CONTEXTS
    begun: int = 0
    timed: bool = False
    estimates: Estimates | None = None

    @property
    def fingerprint(self) -> str:
        """Identifies this backtest, to resume an interrupted one."""
        file: Path | None = getattr(self.history, "file", None)
        stamp = None if file is None else (file.stat().st_size, file.stat().st_mtime_ns)
        text = repr((FORMAT, self.history, stamp, sorted(self.policies.items()), self.suggest,
                     self.split, self.most_contexts))  # fmt: skip
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass
class Reached:
    """How far a run is. `share` of everything; `predictions` judged, once for each policy."""

    share: float = 0.0
    predictions: int = 0
    seconds: float = 0.0


OnProgress = Callable[[Reached], None]


@dataclass
class _Task:
    name: str
    unit: int
    policies: dict[str, str]
    live: bool


def run_backtest(
    backtest: Backtest,
    on_progress: OnProgress,
    *,
    processes: int | None = None,
    resume: Path | None = None,
) -> list[UnitSums]:
    """Return the sums of every unit.

    A history without some gains or costs is read twice, because the estimates for them are means of
    the whole; the first time only until one is missing, and then for what it records.

    `resume`: where finished tasks are kept, and found. Raises `AnotherBacktest`, and what reading
    the history raises. On `KeyboardInterrupt` what is finished stays in `resume`.
    """
    cores = processes or len(os.sched_getaffinity(0))
    units = list(backtest.history.units())
    if backtest.thresholds_out is not None and len(units) > 1:
        raise ValueError(
            f"{backtest.history.name} has {len(units)} partitions, and --thresholds-out writes the "
            "lines of one: export one of them (--from-offset, --to-offset), or leave it out"
        )
    shares = _shares(backtest, len(units), cores)
    kept = ResumeFile(resume, backtest.fingerprint, shares, backtest.begun)
    found = _run_tasks(backtest, _tasks(backtest, units, kept.shares), kept, on_progress, cores)
    if backtest.estimates is None and any(each.unpriced for each in found.values()):
        backtest = replace(backtest, estimates=_estimates(found.values()))
        tasks = _tasks(backtest, units, kept.shares, AGAIN)
        found = _run_tasks(backtest, tasks, kept, on_progress, cores)
    merged = by_unit(found)
    for each in merged:
        each.prices = []
    return merged


def _estimates(read: Iterable[UnitSums]) -> Estimates:
    """Return the estimates from what all units record."""
    # Processes that share the policies of a unit have all read the same.
    prices = {each.unit: each.prices for each in read}
    return Estimates.of(sums for unit in sorted(prices) for sums in prices[unit])


def _run_tasks(
    backtest: Backtest,
    tasks: Sequence[_Task],
    kept: ResumeFile,
    on_progress: OnProgress,
    cores: int,
) -> dict[str, UnitSums]:
    """Return the sums of tasks by their names; those that are kept are not run again."""
    left = [task for task in tasks if task.name not in kept.found]
    began = time.monotonic()
    if cores == 1 or len(left) <= 1:
        for task in left:
            done = len(kept.found)
            share = _alone(backtest, on_progress, began, done, len(tasks))
            kept.add(task.name, _work(backtest, task, share))
    else:
        _side_by_side(backtest, left, kept, on_progress, cores, len(tasks))
    return {task.name: kept.found[task.name] for task in tasks}


def _shares(backtest: Backtest, units: int, cores: int) -> int:
    """Return how many share the policies of a unit: several where there are more cores."""
    return max(1, min(len(backtest.policies), -(-cores // units)))


def _tasks(backtest: Backtest, units: Sequence[int], shared: int, prefix: str = "") -> list[_Task]:
    """Share the work out: by unit, and by policies."""
    names = list(backtest.policies)
    shares = [names[place::shared] for place in range(shared)]
    return [
        _Task(
            f"{prefix}{unit}/{place}", unit, {name: backtest.policies[name] for name in share},
            backtest.history.live and place == 0,
        )
        for unit in units
        for place, share in enumerate(shares)
    ]  # fmt: skip


def _alone(
    backtest: Backtest, on_progress: OnProgress, began: float, done: int, tasks: int
) -> Callable[[float, int], None]:
    policies, last = len(backtest.policies), [0.0]

    def progress(share: float, predictions: int) -> None:
        now = time.monotonic()
        if now - last[0] > SAID_EVERY_S:
            last[0] = now
            on_progress(Reached((done + share) / tasks, predictions * policies, now - began))

    return progress


def _side_by_side(
    backtest: Backtest,
    left: Sequence[_Task],
    kept: ResumeFile,
    on_progress: OnProgress,
    cores: int,
    tasks: int,
) -> None:
    context = get_context("spawn")
    shares = context.Array("d", 2 * len(left), lock=False)
    began = time.monotonic()
    pool = ProcessPoolExecutor(
        min(cores, len(left)), mp_context=context, initializer=_begin, initargs=(shares,)
    )
    try:
        running: dict[Future[bytes], _Task] = {
            pool.submit(_worked, backtest, task, place): task for place, task in enumerate(left)
        }
        already = tasks - len(left)
        while running:
            done, _ = wait(running, timeout=SAID_EVERY_S, return_when=FIRST_COMPLETED)
            for future in done:
                task = running.pop(future)
                kept.add(task.name, msgspec.msgpack.decode(future.result(), type=UnitSums))
            share = (already + sum(shares[::2])) / tasks
            judged = sum(
                count * len(task.policies) for count, task in zip(shares[1::2], left, strict=True)
            )
            on_progress(Reached(share, int(judged), time.monotonic() - began))
    except BrokenProcessPool as error:
        raise RuntimeError(
            "a process of the backtest was ended from outside; run it again"
        ) from error
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_SHARES: Any = None


def _begin(shares: Any) -> None:
    global _SHARES  # noqa: PLW0603 - a pool hands shared memory to its processes only this way
    _SHARES = shares
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us


def _worked(backtest: Backtest, task: _Task, place: int) -> bytes:
    def progress(share: float, predictions: int) -> None:
        _SHARES[2 * place], _SHARES[2 * place + 1] = share, predictions

    return msgspec.msgpack.encode(_work(backtest, task, progress))


def _work(backtest: Backtest, task: _Task, progress: Callable[[float, int], None]) -> UnitSums:
    began, notes = time.monotonic(), Notes()
    policies = {name: policy(text) for name, text in task.policies.items()}
    lines = None if backtest.thresholds_out is None else _Lines(backtest, policies)
    with lines or nullcontext():
        engine = BacktestEngine(
            policies, live=task.live, suggest=backtest.suggest, split=backtest.split,
            most_contexts=backtest.most_contexts, observer=lines, timed=backtest.timed,
        )  # fmt: skip
        if backtest.estimates is None:
            engine.basis.prices = RecordedPrices()
        else:
            engine.basis.estimates = backtest.estimates
        # Nothing here has cycles, and looking for them costs a tenth.
        collects = gc.isenabled()
        gc.disable()
        try:
            feed(
                backtest.history, task.unit, engine, notes,
                lambda share: progress(share, engine.judged),
            )  # fmt: skip
        finally:
            if collects:
                gc.enable()
    progress(1.0, engine.judged)
    return unit_sums(task.unit, engine, notes, time.monotonic() - began)


class _Lines:
    """Writes what was in force for each prediction, a file for each policy.

    A file is begun with the first prediction, and replaces an older one when the unit was read.
    """

    def __init__(self, backtest: Backtest, names: Iterable[str]) -> None:
        assert backtest.thresholds_out is not None
        self._files = {name: backtest.thresholds_out / f"{name}.jsonl" for name in names}
        source = getattr(backtest.history, "file", None)
        self._inputs = [] if source is None else [source]
        self._open: dict[str, IO[bytes]] = {}
        self._held = ExitStack()
        for file in self._files.values():
            refuse_input(file, self._inputs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._held.__exit__(*error)

    def __call__(self, name: str, levels: Sequence[str], answers: Answers) -> None:
        if name not in self._files or not levels:
            return
        if name not in self._open:
            self._open[name] = self._begun(self._files[name])
        encode = msgspec.json.encode
        self._open[name].writelines(
            encode({"threshold": threshold, "level": level}) + b"\n"
            for threshold, level in zip(answers.thresholds, levels, strict=True)
        )

    def _begun(self, file: Path) -> IO[bytes]:
        file.parent.mkdir(parents=True, exist_ok=True)
        return self._held.enter_context(output_file(file, self._inputs))


def named(specifications: Sequence[str]) -> dict[str, str]:
    """Return specifications by the names given for them. Raises what `learners.registry` raises."""
    return {name: spec(policy(name)) for name in specifications}
