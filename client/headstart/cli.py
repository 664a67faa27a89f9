"""The console script `headstart`: the service's commands if installed, else the client's own.

A command imports what it needs when it runs: `--help` needs no Kafka client.
"""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from headstart.arguments.checks import InvalidArgument

_REFUSED: Final = 77
"""Exit code, as the service's commands have it: TLS, login or a right; EX_NOPERM of sysexits.h."""


def main() -> None:
    """Run the service's command line if the service is installed, else the client's."""
    for command in entry_points(group="headstart.commands"):
        command.load()()
        return
    parser = argparse.ArgumentParser(
        prog="headstart",
        description="Headstart's client. Its other commands come with the service.",
        epilog="examples: headstart emit events.jsonl --kafka 127.0.0.1:9092; headstart ship",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    emit = commands.add_parser("emit", help="send events from a JSONL file, or - for stdin")
    emit.add_argument("file", help="JSONL file, one event a line, plain or gzip; - for stdin")
    emit.add_argument("--kafka", help="broker; default HEADSTART_KAFKA, else 127.0.0.1:9092")
    emit.add_argument("--kafka-config", help="client.properties with TLS and login")
    emit.set_defaults(run=_emit)
    ship = commands.add_parser("ship", help="send what the emitters of this host have spooled")
    ship.add_argument("--spool", type=Path, help="directory; default HEADSTART_SPOOL, else yours")
    ship.add_argument("--kafka", help="send there, wherever the events were meant for")
    ship.add_argument("--kafka-config", help="client.properties with TLS and login, for all spools")
    ship.add_argument("--drain", action="store_true", help="end when nothing is left")
    ship.add_argument("--timeout", type=float, help="end after so many seconds")
    ship.set_defaults(run=_ship)
    purge = commands.add_parser("spool", help="remove events from this host's spools")
    purge = purge.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "purge", help="of ended processes; stop executors and shipper first"
    )
    purge.add_argument("--tenant", required=True, help="the tenant")
    subject = purge.add_mutually_exclusive_group(required=True)
    subject.add_argument("--user", help="events of this user of the tenant")
    subject.add_argument("--session", help="events of this session")
    subject.add_argument("--workflow", help="events of this workflow id")
    subject.add_argument("--whole-tenant", action="store_true", help="events of all its users")
    purge.add_argument("--spool", type=Path, help="directory; default HEADSTART_SPOOL, else yours")
    purge.add_argument("--dry-run", action="store_true", help="count, and change nothing")
    purge.set_defaults(run=_purge, kafka_config=None)
    arguments = parser.parse_args()
    try:
        if arguments.kafka_config:
            _use(arguments.kafka_config)
        sys.exit(arguments.run(arguments))
    except (OSError, InvalidArgument) as error:  # no such broker or file, or a timeout
        if not _is_refusal(error):
            sys.exit(f"error: {error}")
        print(f"error: {error}", file=sys.stderr)
        sys.exit(_REFUSED)


def _is_refusal(error: Exception) -> bool:
    """Return whether TLS, the login or a right is at fault, not an absent broker or file."""
    from headstart.connections.secret import UnusableSecurity
    from headstart.kafka_producer import BrokerUnreachable

    if isinstance(error, BrokerUnreachable):
        return error.trouble is not None
    return isinstance(error, UnusableSecurity)


def _use(kafka_config: str) -> None:
    from headstart.connections.own_security import use_security
    from headstart.connections.properties import security_in

    use_security(security_in(Path(kafka_config)))


def _emit(arguments: argparse.Namespace) -> int:
    import asyncio

    from headstart.arguments.environment import kafka
    from headstart.emitting.jsonl import emit_lines
    from headstart.kafka_producer import require_broker

    broker = kafka(arguments.kafka)
    report = emit_lines(
        arguments.file,
        broker,
        lambda line: print(line, file=sys.stderr),
        check=lambda: asyncio.run(require_broker(broker)),
    )
    print(f"{report.emitted} events sent, {report.refused} lines refused", file=sys.stderr)
    return 1 if report.refused else 0


def _ship(arguments: argparse.Namespace) -> int:
    import logging

    from headstart.log_lines import configure_logging
    from headstart.shipping.process import ship
    from headstart.spool.layout import default_directory

    configure_logging()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    directory = arguments.spool or default_directory()
    report = ship(
        directory,
        kafka=arguments.kafka,
        own_security=bool(arguments.kafka_config),
        drain=arguments.drain,
        timeout_s=arguments.timeout,
    )
    print(report, file=sys.stderr)
    return 1 if arguments.drain and not report.complete else 0


def _purge(arguments: argparse.Namespace) -> int:
    from headstart.spool.layout import default_directory
    from headstart.spool.purged_events import SpoolSubject
    from headstart.spool.purging import purge_spools

    names = (arguments.tenant, arguments.user, arguments.session, arguments.workflow)
    if "" in names:
        raise InvalidArgument("a name is empty; for all of a tenant give --whole-tenant")
    subject = SpoolSubject(*names, arguments.whole_tenant)
    directory = arguments.spool or default_directory()
    found = purge_spools(directory, subject, dry_run=arguments.dry_run)
    print(found, file=sys.stderr)
    return 0 if found.complete else 1
