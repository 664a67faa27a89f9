"""Reads the runs of a log, an archive, exported or stored episodes as cases by tenant.

Of a log the episode of each run is assembled by the function of the memory worker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import orjson

from memory.cases.case import Case
from memory.cases.episode_case import case_of_episode
from memory.episodes.assembly import assemble
from memory.episodes.imported import EXPORT, NotARun, from_export
from memory.episodes.record import Episode
from memory.store.reading import all_episodes
from processing.records.batch import RecordBatch
from processing.records.sink_lines import SinkBatch, unpack_events
from replay.files.input import CannotRead, name_of
from replay.files.json_lines import json_lines
from replay.memories.case_store import CaseStore
from replay.memories.progress import MemoryProgress
from replay.memories.results import ReadCounts
from replay.memories.run_sorter import RunSorter
from replay.predictions.notes import Notes
from replay.predictions.unjoined import Filter
from replay.sources.base import ReadOptions, RecordSource, pulled
from sinks.postgres.reading import reading_postgres
from topics.catalogue import EPISODES_GROUP

_SAY_EVERY: Final = 500
"""Episodes between two reports."""
_NEEDED: Final[Mapping[str, Any]] = {
    "started": int, "ended": int, "query": str | None, "reward": float | int | None,
    "user_id": str | None, "agent_id": str | None, "session_id": str | None,
}  # fmt: skip
Say = Callable[[MemoryProgress], None]


def store_log(source: RecordSource, store: CaseStore, say: Say) -> ReadCounts:
    """Store the cases of the runs of a log. Raises what reading the source raises.

    The events are sorted in a file beside that of the store, which is deleted.
    """
    found, notes = ReadCounts(), Notes()
    scratch = store.file.with_suffix(".events")
    try:
        with closing(RunSorter(scratch)) as sorter:
            _sort(source, sorter, found, notes, say)
            store.write(_cases(_assembled(sorter), found))
    finally:
        scratch.unlink(missing_ok=True)
    found.warnings = notes.warnings
    return found


def _sort(
    source: RecordSource, sorter: RunSorter, found: ReadCounts, notes: Notes, say: Say
) -> None:
    begun, units = time.monotonic(), source.units()
    for place, unit in enumerate(units):
        for batch, share in source.batches(unit, notes):
            events = list(_events(batch, source.reading.chosen, found))
            sorter.add(events)
            found.events += len(events)
            reached = (place + share) / len(units)
            say(MemoryProgress(reached, found.events, time.monotonic() - begun))


def _events(batch: RecordBatch, chosen: Filter, found: ReadCounts) -> Iterator[dict[str, Any]]:
    """Yield the events of a batch that the episode sink stores, of those that are wanted."""
    begin = 0
    while begin < len(batch):
        taken, run = SinkBatch(), batch.run(begin)
        taken.add(batch, run, unpack_events, _as_they_came, EPISODES_GROUP)
        begin = run.stop
        for letter in taken.dead_letters:
            found.refuse(f"partition {batch.partition}, offset {letter.offset}: {letter.reason}")
        for raw in taken.records:
            event = orjson.loads(raw)
            if chosen.tenant in (None, event["tenant"]) and (
                chosen.workflow_type in (None, event["workflow_type"])
            ):
                yield event


def _as_they_came(records: Sequence[bytes]) -> Sequence[bytes]:
    return records


def _assembled(sorter: RunSorter) -> Iterator[Episode]:
    for key, events in sorter.runs():
        yield assemble(*key, events)


def _cases(episodes: Iterator[Episode], found: ReadCounts) -> Iterator[tuple[str, Case]]:
    for episode in episodes:
        if episode.calls:
            found.runs += 1
            yield episode.tenant, case_of_episode(episode, at=episode.started)
        else:
            found.without_call += 1


def is_episode_export(file: Path) -> bool:
    """Return whether a file of `local_file` was written by `headstart memory export`."""
    try:
        with json_lines(file) as lines:
            first = orjson.loads(next((line for _, line in lines), b"null"))
    except (orjson.JSONDecodeError, CannotRead):
        return False
    return isinstance(first, dict) and first.get("format") == EXPORT


def store_export(file: Path, reading: ReadOptions, store: CaseStore, say: Say) -> ReadCounts:
    """Store the cases of exported episodes. Raises `CannotRead` and `OSError`."""
    found = ReadCounts()
    episodes = _exported(file, found, say)
    store.write(_cases(_chosen(episodes, reading), found))
    return found


def _exported(file: Path, found: ReadCounts, say: Say) -> Iterator[Episode]:
    begun, count = time.monotonic(), 0
    with json_lines(file) as lines:
        for number, line in lines:
            if number == 1 or not line.strip():
                continue
            try:
                yield _sound(from_export(orjson.loads(line)))
            except (NotARun, orjson.JSONDecodeError) as error:
                found.refuse(f"{name_of(file)}:{number}: {error}")
                continue
            count += 1
            if count % _SAY_EVERY == 0:
                say(MemoryProgress(lines.share, count, time.monotonic() - begun))


def _sound(episode: Episode) -> Episode:
    """Return an episode whose fields have the types that a case needs. Raises `NotARun`."""
    for name, kinds in _NEEDED.items():
        if not isinstance(getattr(episode, name), kinds):
            raise NotARun(f"{name} is of a wrong type")
    for call in episode.calls:
        if not isinstance(orjson.loads(call.arguments), dict):
            raise NotARun("the arguments of a call are no JSON object")
    return episode


def store_memory(dsn: str, reading: ReadOptions, store: CaseStore) -> ReadCounts:
    """Store the cases of the episodes in Postgres. Raises `PostgresUnreachable`, `NotMigrated`."""
    found = ReadCounts()

    async def read() -> AsyncIterator[list[Episode]]:
        async with reading_postgres(dsn) as connection:
            since = reading.range.since or 0
            async for some in all_episodes(
                connection, reading.chosen.tenant, since, quarantined=False
            ):
                yield some

    with asyncio.Runner() as runner:
        episodes = (each for some in pulled(runner, read()) for each in some)
        store.write(_cases(_chosen(episodes, reading), found))
    return found


def _chosen(episodes: Iterator[Episode], reading: ReadOptions) -> Iterator[Episode]:
    """Yield the episodes that ended in the range, of the chosen tenant and workflow type."""
    wanted = reading.chosen
    for episode in episodes:
        if (
            reading.range.holds(episode.ended)
            and wanted.tenant in (None, episode.tenant)
            and wanted.workflow_type in (None, episode.workflow_type)
        ):
            yield episode
