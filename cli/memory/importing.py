"""Stores and embeds the episodes of a file, and prints progress: for `import` and `backfill`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from cli.support.output import FAILURE, echo, show_json

if TYPE_CHECKING:
    from memory.embedding.interface import Embedder
    from memory.episodes.record import Episode
    from settings import Settings

_BATCH: Final = 500
_NAMED: Final = 5
"""Refused lines that are named."""


def store_file(
    settings: Settings, file: str, convert: Callable[[int, Any], Episode | None], *, json: bool
) -> None:
    """Store the episodes of a file of JSON lines and print what was done.

    `convert`: makes an episode of a line's number and content, None for none, or raises `NotARun`.
    Exits with 1 if lines are refused. Raises `PostgresUnreachable` and `NotMigrated`.
    """
    from replay.files.input import local_file

    result = ImportResult()
    _store_episodes(settings, _converted(local_file(file), result, convert), result)
    if json:
        show_json(vars(result))
    else:
        _echo_result(result)
    if result.refused:
        raise typer.Exit(FAILURE)


@dataclass
class ImportResult:
    """What an import has done."""

    written: int = 0
    kept: int = 0
    """Episodes that the store has already, from as many or more events, or that were erased."""
    refused: int = 0
    """Lines of which no episode can be made."""
    without_vector: int = 0
    reasons: list[str] = field(default_factory=list)
    """Why the first of these lines are refused."""

    def refuse(self, line: int, why: object) -> None:
        """Count a line, and name the first ones."""
        self.refused += 1
        if self.refused <= _NAMED:
            self.reasons.append(f"line {line}: {why}")
            echo(f"line {line} is refused: {why}")


def _records(file: Path, result: ImportResult) -> Iterator[tuple[int, Any]]:
    """Yield (line number, decoded line); lines that are no JSON are counted."""
    import orjson

    from replay.files.json_lines import json_lines

    with json_lines(file) as lines:
        for number, line in lines:
            if not line.strip():
                continue
            try:
                yield number, orjson.loads(line)
            except orjson.JSONDecodeError as error:
                result.refuse(number, f"not JSON ({error})")


def _converted(
    file: Path, result: ImportResult, convert: Callable[[int, Any], Episode | None]
) -> Iterator[Episode]:
    """Yield the episodes of a file; what `convert` refuses with `NotARun` is counted."""
    from memory.episodes.imported import NotARun

    for number, record in _records(file, result):
        try:
            episode = convert(number, record)
        except NotARun as error:
            result.refuse(number, error)
        else:
            if episode is not None:
                yield episode


def _store_episodes(settings: Settings, episodes: Iterable[Episode], result: ImportResult) -> None:
    """Store and embed episodes. Raises `PostgresUnreachable` and `NotMigrated`."""
    from memory.embedding.choice import make_embedder
    from settings import embedding_of

    asyncio.run(
        _store_batches(settings.postgres, make_embedder(embedding_of(settings)), episodes, result)
    )


async def _store_batches(
    dsn: str, embedder: Embedder, episodes: Iterable[Episode], result: ImportResult
) -> None:
    from memory.store.importing import embed_imported, import_episodes
    from sinks.postgres.reading import reading_postgres

    waiting = iter(episodes)
    async with reading_postgres(dsn) as connection:
        while batch := list(islice(waiting, _BATCH)):
            stored = await import_episodes(connection, batch)
            result.written += len(stored.written)
            result.kept += stored.stale
            result.without_vector += await embed_imported(connection, stored.written, embedder)
            if (result.written + result.kept) % 10_000 < len(batch):
                echo(f"{result.written:,} episodes so far")


def _echo_result(result: ImportResult) -> None:
    parts = [f"{result.written:,} episodes are stored"]
    if result.kept:
        parts.append(f"{result.kept:,} stay as they are (known already), or were erased")
    if result.refused:
        parts.append(f"{result.refused:,} lines are refused")
    if result.without_vector:
        parts.append(
            f"{result.without_vector:,} have no vector yet: the memory worker fills them in"
        )
    echo("; ".join(parts))
