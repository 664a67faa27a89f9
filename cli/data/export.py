"""`headstart export`: writes part of the log to a file."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.support.option_groups import Only
from cli.support.options import Json, KafkaPostgresOptions
from cli.support.output import claim_outputs, echo, show_json
from cli.support.source_options import HistoryOptions


def export(
    file: Annotated[
        str, typer.Argument(help="Output file, such as log.jsonl.zst; -: standard output.")
    ],
    *,
    history: Annotated[
        HistoryOptions, Only("source", "since", "until", "from_offset", "to_offset")
    ],
    options: KafkaPostgresOptions,
    json: Json = False,
) -> None:
    """Write part of the log to FILE: zstd-compressed JSON lines, one unchanged record each.

    `zstd -dc FILE | jq` reads it; --source FILE of backtest, tune, replay and export takes it.
    Commits nothing.

    Examples: headstart export last-week.jsonl.zst --since 7d; headstart export all.jsonl.zst
    --source archive
    """
    from replay.files.output import check_ending
    from replay.predictions.notes import Notes
    from replay.rebuild.relearn import NoRecords
    from replay.sources.base import NothingThere, RecordSource
    from replay.sources.export_file import FORMAT, ExportHeader, Writer

    claim_outputs(file, inputs=[history.source], json=json)
    check_ending(file, "zstd")
    settings = options.read()
    source = history.open(settings)
    if not isinstance(source, RecordSource):
        raise NoRecords(
            f"{source.name} holds outcomes, not events; give --source broker, archive or an export"
        )
    units, notes = source.units(), Notes()
    epoch, partitions = source.log()
    header = ExportHeader(FORMAT, epoch, partitions, source.name)
    with Writer(file, header, [history.source]) as writer:
        for number, unit in enumerate(units, start=1):
            for batch, _ in source.batches(unit, notes):
                writer.add(batch)
            echo(f"partition {number} of {len(units)}: {writer.records} records so far")
        if not writer.records:
            raise NothingThere(f"{source.name} holds no records in the range; nothing is written")
    for warning in notes.warnings:
        echo(warning)
    if json:
        show_json({"file": file, "records": writer.records, "epoch": epoch,
                   "partitions": len(units), "warnings": notes.warnings})  # fmt: skip
