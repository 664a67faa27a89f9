"""`headstart emit`: events from a JSONL file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from cli.support.options import Json, KafkaOptions
from cli.support.output import FAILURE, echo, show_json


def emit(
    file: Annotated[
        str, typer.Argument(help="JSONL file, one event a line, or CSV; - for JSONL from stdin.")
    ],
    *,
    options: KafkaOptions,
    json: Json = False,
) -> None:
    """Send events from a JSONL file, or from standard input.

    Refused lines are reported with their number; the others are sent, and the exit code is 1.
    Events of a file that is emitted twice are learned from twice, even if they have ids.

    Examples: headstart emit events.jsonl; cat events.jsonl | headstart emit -
    """
    from headstart.emitting.jsonl import emit_lines
    from headstart.kafka_producer import require_broker
    from replay.files.json_lines import json_lines

    settings = options.read()
    report = emit_lines(
        file,
        settings.kafka,
        echo,
        check=lambda: asyncio.run(require_broker(settings.kafka)),
        # A pipe is read line by line, because it may never end.
        opened=(lambda name: json_lines(Path(name))) if Path(file).is_file() else None,
    )
    if json:
        show_json({"emitted": report.emitted, "refused": report.refused})
    else:
        echo(f"{report.emitted} events sent, {report.refused} lines refused")
    if report.refused:
        raise typer.Exit(FAILURE)
