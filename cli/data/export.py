"""`headstart export`: a piece of the log in a file."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.support.options import Data, Json, Kafka, Postgres
from cli.support.output import claim_outputs, say, show_json
from cli.support.source_options import FromOffset, Since, Source, ToOffset, Until, open_source, span


def export(
    file: Annotated[
        str, typer.Argument(help="Where to write it, such as log.jsonl.zst; -: standard output.")
    ],
    source: Source = "broker",
    since: Since = None,
    until: Until = None,
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    kafka: Kafka = None,
    postgres: Postgres = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Write a piece of the log to FILE: zstd over JSON lines, one a record, as it lay in the topic.

    `zstd -dc FILE | jq` reads it; --source FILE of backtest, tune, replay and export takes it.
    Commits nothing.

    Examples: headstart export last-week.jsonl.zst --since 7d; headstart export all.jsonl.zst
    --source archive
    """
    from replay.files.output import check_ending
    from replay.predictions.notes import Notes
    from replay.rebuild.relearn import NoRecords
    from replay.sources.base import NothingThere, ReadOptions, RecordSource
    from replay.sources.export_file import FORMAT, ExportHeader, Writer
    from settings import read_settings

    claim_outputs(file, inputs=[source], json=json)
    check_ending(file, "zstd")
    settings = read_settings(kafka=kafka, postgres=postgres, data=data)
    reading = ReadOptions(settings.levels, span(since, until, from_offset, to_offset))
    history = open_source(source, reading, settings)
    if not isinstance(history, RecordSource):
        raise NoRecords(f"{history.name} holds no events, only what was judged of them")
    units, notes = history.units(), Notes()
    epoch, partitions = history.log()
    header = ExportHeader(FORMAT, epoch, partitions, history.name)
    with Writer(file, header, [source]) as writer:
        for number, unit in enumerate(units, start=1):
            for batch, _ in history.batches(unit, notes):
                writer.add(batch)
            say(f"partition {number} of {len(units)}: {writer.records} records so far")
        if not writer.records:
            raise NothingThere(f"{history.name} holds no records in the range; nothing is written")
    for warning in notes.warnings:
        say(warning)
    if json:
        show_json({"file": file, "records": writer.records, "epoch": epoch,
                   "partitions": len(units), "warnings": notes.warnings})  # fmt: skip
