"""Evaluates the memory on a log, an archive, exported or stored episodes, tenant by tenant."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from cli.support.output import echo
from cli.support.progress import Bar
from cli.support.source_options import open_source

if TYPE_CHECKING:
    from replay.memories.case_store import CaseStore
    from replay.memories.progress import MemoryProgress
    from replay.memories.results import ReadCounts
    from replay.sources.base import ReadOptions
    from settings import Settings

MEMORY: Final = "memory"
_TOO_FEW_NAMED: Final = 5


def evaluate_history(
    source: str, reading: ReadOptions, settings: Settings, newest: int, processes: int | None
) -> dict[str, Any]:
    """Return the results: of the one tenant that there is or that was chosen, else by tenant.

    `newest`: runs of each tenant that are evaluated. Raises `NothingThere` where no tenant has
    enough runs, and what reading the source raises.
    """
    from replay.memories.case_store import CaseStore

    with tempfile.TemporaryDirectory(prefix="headstart-memory-") as folder:
        store = CaseStore(Path(folder) / "cases", newest)
        with Bar(None, unit="events", resumable=False) as bar:
            read = _stored(source, reading, settings, store, bar)
        _say_read(read)
        return _evaluated(source, reading, store, read, processes)


def _stored(
    source: str,
    reading: ReadOptions,
    settings: Settings,
    store: CaseStore,
    say: Callable[[MemoryProgress], None],
) -> ReadCounts:
    from replay.files.input import local_file
    from replay.memories.episode_sources import (
        is_episode_export,
        store_export,
        store_log,
        store_memory,
    )
    from replay.sources.base import RecordSource

    if source not in {"broker", "archive"}:
        file = None if source == MEMORY else local_file(source)
        if file is None or is_episode_export(file):
            if reading.range.begin or reading.range.end:
                raise typer.BadParameter(f"{source} has no offsets: give --since and --until")
            if file is None:
                return store_memory(settings.postgres, reading, store)
            return store_export(file, reading, store, say)
        source = str(file)
    opened = open_source(source, reading, settings)
    if not isinstance(opened, RecordSource):
        raise typer.BadParameter(
            f"{opened.name} holds neither events nor episodes; recorded runs are given by --runs"
        )
    return store_log(opened, store, say)


def _say_read(read: ReadCounts) -> None:
    for line in read.warnings:
        echo(f"warning: {line}")
    for line in read.named[:5]:
        echo(f"refused: {line}")
    of = f" of {read.events:,} events" if read.events else ""
    left = f"; {read.without_call:,} without a call are left out" if read.without_call else ""
    refused = f"; {read.refused:,} refused" if read.refused else ""
    echo(f"{read.runs:,} runs with a call{of}{left}{refused}")


def _evaluated(
    source: str, reading: ReadOptions, store: CaseStore, read: ReadCounts, processes: int | None
) -> dict[str, Any]:
    from memory.evaluation.figures import FEWEST
    from replay.memories.evaluation import evaluate, sizes_of
    from replay.memories.results import results, tenant_results
    from replay.sources.base import NothingThere

    counts = store.counts()
    enough = [tenant for tenant, count in counts.items() if count >= FEWEST]
    too_few = {tenant: count for tenant, count in counts.items() if count < FEWEST}
    if not enough:
        raise NothingThere(_why(source, reading, too_few, FEWEST))
    _say_too_few(too_few, FEWEST)
    for tenant in enough:
        if counts[tenant] > store.newest:
            echo(f"{tenant}: the newest {store.newest:,} of {counts[tenant]:,} runs (--newest)")
    sizes = {tenant: sizes_of(store.cases(tenant)) for tenant in enough}
    found = {}
    with Bar(None, unit="runs", resumable=False) as bar:
        for tenant, figures in evaluate(store, sizes, bar, processes):
            own = {"tenant": tenant, "all_runs": counts[tenant]}
            found[tenant] = own | results(source, store.cases(tenant), figures)
    if len(counts) == 1:
        return found[enough[0]] | read.fields
    ordered = {tenant: found[tenant] for tenant in enough}
    return tenant_results(source, ordered, too_few, FEWEST) | read.fields


def _say_too_few(too_few: dict[str, int], least: int) -> None:
    for tenant, count in list(too_few.items())[:_TOO_FEW_NAMED]:
        echo(f"{tenant}: {count} runs with a call, at least {least} are needed; left out")
    if len(too_few) > _TOO_FEW_NAMED:
        echo(f"and {len(too_few) - _TOO_FEW_NAMED:,} more tenants")


def _why(source: str, reading: ReadOptions, too_few: dict[str, int], least: int) -> str:
    if not too_few:
        chosen = reading.chosen.options
        of = f" of{chosen}" if chosen else ""
        return f"{source} holds no run with a call{of}; a call is a task_complete with a tool_id"
    most = max(too_few.values())
    whose = next(iter(too_few)) if len(too_few) == 1 else f"none of {len(too_few):,} tenants"
    has = f"has {most} runs" if len(too_few) == 1 else f"has more than {most} runs"
    return f"{whose} {has} with a call; at least {least} are needed to evaluate a memory"
