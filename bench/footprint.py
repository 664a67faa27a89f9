"""Memory of every process under a steady load, and whether it grows; CPU time an event beside it.

The whole system runs, fed by four executors through their spools and shipper. The resident set of
each process is looked at once a second. Whether it grows is judged from the second half alone: a
line through it, with its uncertainty (`trend`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import headstart
from bench.support.backlog_run import BacklogSample, look
from bench.support.measuring import echo, family_cpu_s, resident_mb, shipping
from bench.support.paced_load import FORK, Load, emit, paced
from bench.support.trend import trend
from deploy.local import StackConfig
from deploy.local.ports import HOST
from deploy.supervisor import health_address
from deploy.system import System, total_lag
from processing.worker_report import WORKERS

EXECUTORS: Final = 4
LEAD_S: Final = 2.0
LOOK_S: Final = 1.0
PROGRESS_S: Final = 30.0
PATIENCE_S: Final = 300.0
GOAL_MB: Final = 400.0
FLAT_MB: Final = 4.0
"""Growth in ten minutes that counts as none: a hundredth of the goal."""
TEN_MINUTES_S: Final = 600.0
FIRST_PORT: Final = 27_300
"""Of the workers' health addresses; the kernel gives higher ones to connections."""

Samples = dict[str, list[tuple[float, float]]]
"""(second, MB) of each process."""


def run(kafka: str, seconds: float = TEN_MINUTES_S, rate: int = 10_000) -> dict[str, Any]:
    """Return the table of processes after so many seconds at `rate` events a second."""
    with TemporaryDirectory(prefix="headstart-bench-") as folder:
        path = Path(folder)
        os.environ |= {"HEADSTART_SPOOL": str(path / "spool"), "HEADSTART_SHIPPER": "process"}
        system = System(
            StackConfig(data=path / "stack", kafka=kafka),
            environment={"HEADSTART_HEALTH": f"{HOST}:{FIRST_PORT}"},
            echo=echo,
        )
        with system:
            return _measured(system, path / "spool", seconds, Load("", rate, EXECUTORS), kafka)


def _measured(
    system: System, spool: Path, seconds: float, load: Load, kafka: str
) -> dict[str, Any]:
    assert system.supervisor is not None
    assert system.epoch is not None
    begin = time.monotonic() + LEAD_S
    pipes = [
        _start(system.addresses.kafka, load, number, begin, seconds) for number in range(EXECUTORS)
    ]
    samples, before = _watch(system, spool, begin, seconds)
    after = _counted(system, spool)
    emitted = sum(_received(pipe) for pipe in pipes)
    lag = asyncio.run(total_lag(system.addresses, system.epoch.number))
    table = {name: _judged(found, seconds) for name, found in samples.items()}
    if system.supervisor.restarts:
        echo("a worker was started again: what an event costs is not known")
    else:
        for name, spent in _spent(before, after).items():
            table.setdefault(name, {})["cpu_us"] = spent
    return {
        "largest_worker_mb": max(table[name]["most_mb"] for name in WORKERS),
        "under_goal": all(table[name]["most_mb"] < GOAL_MB for name in WORKERS),
        "flat": all(table[name]["verdict"] == "flat" for name in WORKERS),
        "restarts": system.supervisor.restarts,
        "asked_per_s": load.events_per_s,
        "emitted_per_s": round(emitted / seconds),
        "lag_records": lag,
        "processes": table,
        "seconds": seconds,
        "framing": f"{EXECUTORS} executors, 200 contexts of three levels, defaults everywhere; "
        f"growth in ten minutes, fitted to the second half; flat: surely below {FLAT_MB:.0f} MB; "
        "cpu_us: CPU time an event from half a minute on, services with all their processes; "
        "missing where a worker was started again",
        "broker": kafka,
    }


def _start(kafka: str, load: Load, number: int, begin: float, seconds: float) -> Connection:
    mine, its = FORK.Pipe()
    FORK.Process(target=_execute, args=(its, kafka, load, number, begin, seconds)).start()
    its.close()
    return mine


def _received(pipe: Connection) -> int:
    """Return an executor's count. Raises `TimeoutError`, and `EOFError` if it has ended."""
    if not pipe.poll(PATIENCE_S):
        raise TimeoutError(f"an executor has not ended {PATIENCE_S:.0f} s after the load")
    return int(pipe.recv())


def _execute(
    pipe: Connection, kafka: str, load: Load, number: int, begin: float, seconds: float
) -> None:
    """Emit this executor's share; send how many were emitted in time."""
    emitted = 0
    with headstart.Emitter(kafka) as emitter:
        for context, event in paced(load, number, begin, begin + seconds):
            emit(emitter, context, event)
            emitted += time.monotonic() < begin + seconds
    pipe.send(emitted)


def _watch(
    system: System, spool: Path, begin: float, seconds: float
) -> tuple[Samples, Mapping[str, BacklogSample]]:
    """Return every process's samples, and what had been done half a minute after the beginning."""
    samples: Samples = {}
    before: Mapping[str, BacklogSample] = {}
    reported_at = begin
    while (now := time.monotonic()) < begin + seconds:
        system.check()
        if not before and now > begin + min(PROGRESS_S, seconds / 4):
            before = _counted(system, spool)
        for name, process in _processes(system, spool).items():
            with suppress(OSError):  # it has just ended; the supervisor will report it
                samples.setdefault(name, []).append((now - begin, resident_mb(process)))
        if now > reported_at + PROGRESS_S:
            reported_at = now
            last = {name: round(found[-1][1]) for name, found in samples.items()}
            echo(f"{now - begin:.0f} s: {last} MB")
        time.sleep(max(0.0, now + LOOK_S - time.monotonic()))
    return samples, before


def _processes(system: System, spool: Path) -> dict[str, int]:
    assert system.supervisor is not None
    found = dict(system.supervisor.pids)
    with suppress(OSError, ValueError):  # not started yet
        found["shipper"] = shipping(spool)
    return found | system.stack.pids


def _counted(system: System, spool: Path) -> dict[str, BacklogSample]:
    """Return the workers' counters, and the CPU time of all other processes."""
    found = {}
    for place, name in enumerate(WORKERS):
        _, _, port = health_address(f"{HOST}:{FIRST_PORT}", place).rpartition(":")
        deadline = time.monotonic() + PATIENCE_S
        while (seen := look(int(port))) is None and time.monotonic() < deadline:
            system.check()
            time.sleep(LOOK_S)
        if seen is not None:
            found[name] = seen
    for name, process in _processes(system, spool).items():
        if name not in WORKERS:
            found[name] = BacklogSample(time.monotonic(), 0, family_cpu_s(process), 0.0)
    return found


def _spent(
    before: Mapping[str, BacklogSample], after: Mapping[str, BacklogSample]
) -> dict[str, float]:
    """Return each process's CPU microseconds per event that was learned from meanwhile.

    Raises `RuntimeError` if the threshold worker did not answer at the beginning or end.
    """
    if not {"thresholds"} <= before.keys() & after.keys():
        raise RuntimeError("the threshold worker did not answer at its health address: see its log")
    learned = after["thresholds"].events - before["thresholds"].events
    return {
        name: round((after[name].cpu_s - before[name].cpu_s) / max(1, learned) * 1e6, 1)
        for name in after
        if name in before
    }


def _judged(samples: list[tuple[float, float]], seconds: float) -> dict[str, Any]:
    found = trend([(at, mb) for at, mb in samples if at >= seconds / 2])
    growth, error = (value * TEN_MINUTES_S for value in found)
    return {
        "most_mb": round(max(mb for _at, mb in samples), 1),
        "growth_mb": round(growth, 2),
        "growth_error_mb": round(error, 2),
        "verdict": found.verdict(FLAT_MB / TEN_MINUTES_S),
    }
