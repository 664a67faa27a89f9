"""A drill: a filled system is backed up, lost, restored into a new one, and verified.

`create_s`, `check_s`, `restore_s`, `verify_s`: wall seconds of `headstart backup create`, `backup
verify`, `backup restore` and `verify --caught-up`, each a process of its own; `workers_s`: from the
start of the new system's workers until they have taken over and processed everything. `total_s`:
restore, workers and verify. `*_cpu_s`: CPU seconds of the command alone, `*_postgres_cpu_s` those
of Postgres meanwhile.

`equal`: all tables have equal digests before and after, as have the learned rows, and `verify`
finds nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.support.filled_system import Filled, fill, wait_for_workers, working
from bench.support.measured_command import MeasuredCommand, measured
from bench.support.measuring import PARTITIONS, echo, family_cpu_s, worker_environment
from bench.support.stored_events import HISTORY_OF_CONTEXT
from bench.support.table_digests import Digests, digests
from deploy.local import StackConfig
from deploy.system import System

COMMANDS: Final = ("create", "check", "restore", "verify")


def run(events: int = 200_000, contexts: int = 10_000, data: Path | None = None) -> dict[str, Any]:
    """Return the figures of a drill with so many stored events and contexts.

    `data`: where the temporary folder is made. Raises `CommandFailed`.
    """
    if data is not None:
        data.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="headstart-bench-", dir=data) as folder:
        return drill(Path(folder), events, contexts)


def drill(home: Path, events: int, contexts: int) -> dict[str, Any]:
    """Run a drill in an empty folder; return its figures."""
    backup, found = home / "backup", dict[str, Any]()
    with _running(home / "first") as first:
        filled = fill(first, events, contexts)
        before = digests(first.addresses, home, filled.epoch)
        echo("creating the backup")
        found |= _command(first, "create", "backup", "create", "--to", str(backup))
    found["bytes"] = sum(each.stat().st_size for each in backup.iterdir())
    found |= _figures("check", measured({}, "backup", "verify", "--from", str(backup)))
    with _running(home / "second") as second:
        echo("restoring it")
        more = "--from", str(backup), "--no-later-purges"
        found |= _command(second, "restore", "backup", "restore", *more)
        differing = _differing(before, digests(second.addresses, home, filled.epoch))
        found |= _verified(second)
    return _summary(filled, found, differing)


@contextmanager
def _running(home: Path) -> Iterator[System]:
    system = System(
        StackConfig(data=home, kafka="embedded"), partitions=PARTITIONS, workers=False, echo=echo
    )
    system.start()
    try:
        yield system
    finally:
        system.stop(drain=False)


def _command(system: System, name: str, *arguments: str) -> dict[str, Any]:
    """Measure a command on a system, and the CPU of its Postgres meanwhile."""
    environment = worker_environment(system.addresses, system.data)
    before = family_cpu_s(system.stack.pids["postgres"])
    done = measured(environment, *arguments)
    spent = family_cpu_s(system.stack.pids["postgres"]) - before
    return _figures(name, done) | {f"{name}_postgres_cpu_s": round(spent, 2)}


def _figures(name: str, done: MeasuredCommand) -> dict[str, Any]:
    echo(f"{name}: {done.wall_s} s, {done.cpu_s} s of CPU, {done.peak_mb} MB")
    return {
        f"{name}_s": done.wall_s,
        f"{name}_cpu_s": done.cpu_s,
        f"{name}_peak_mb": done.peak_mb,
        name: done.found,
    }


def _verified(system: System) -> dict[str, Any]:
    begun = time.monotonic()
    with working(system):
        wait_for_workers(system)
        found = {"workers_s": round(time.monotonic() - begun, 2)}
        return found | _command(system, "verify", "verify", "--caught-up")


def _differing(before: Digests, after: Digests) -> list[str]:
    return sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )


def _summary(filled: Filled, found: dict[str, Any], differing: list[str]) -> dict[str, Any]:
    """Return the figures; the commands' own output is left out."""
    verified, restored = found.pop("verify"), found.pop("restore")
    created, _checked = found.pop("create"), found.pop("check")
    stored = created["tables"]["episodic_events"]
    if stored != restored["rows"]["episodic_events"]:
        differing.append("rows restored")
    total = found["restore_s"] + found["workers_s"] + found["verify_s"]
    return {
        "events": stored,
        "contexts": restored["contexts"],
        "create_s": found["create_s"],
        "restore_s": found["restore_s"],
        "verify_s": found["verify_s"],
        "total_s": round(total, 2),
        "peak_mb": max(found[f"{name}_peak_mb"] for name in COMMANDS),
        "bytes": found["bytes"],
        "equal": not differing and verified["ok"],
        **found,
        "differing": differing,
        "history_rows": filled.history,
        "log_records": created["log_records"],
        "left": sum(verified["left"].values()),
        "framing": "embedded stack, 8 partitions; total: restore, workers and verify; steps of "
        f"thresholds: {HISTORY_OF_CONTEXT} of each context; no episodes and no vectors",
    }
