"""The console script `headstart`: the client's own commands, and the service's where installed."""

from __future__ import annotations

import argparse
import asyncio
import sys
from importlib.metadata import entry_points

from headstart.emission import emit_lines
from headstart.producing import require_broker


def main() -> None:
    """Run the service's command line where the service is installed, else the client's."""
    for command in entry_points(group="headstart.commands"):
        command.load()()
        return
    parser = argparse.ArgumentParser(
        prog="headstart",
        description="Headstart's client. Its other commands come with the service.",
        epilog="example: headstart emit events.jsonl --kafka 127.0.0.1:9092",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    emit = commands.add_parser("emit", help="send events from a JSONL file, or - for stdin")
    emit.add_argument("file", help="JSONL file, one event a line, or - for standard input")
    emit.add_argument("--kafka", default="127.0.0.1:9092", help="broker, host:port")
    arguments = parser.parse_args()
    try:
        report = emit_lines(
            arguments.file,
            arguments.kafka,
            lambda line: print(line, file=sys.stderr),
            check=lambda: asyncio.run(require_broker(arguments.kafka)),
        )
    except OSError as error:  # a broker or a file that is not there, or time that ran out
        sys.exit(f"error: {error}")
    print(f"{report.emitted} events sent, {report.refused} lines refused", file=sys.stderr)
    sys.exit(1 if report.refused else 0)
