"""`headstart ship`: sends the events spooled on this host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.support.options import Json, KafkaConfig
from cli.support.output import FAILURE, echo, show_json


def ship(
    spool: Annotated[
        Path | None,
        typer.Option(help="Directory of spools.  [default: HEADSTART_SPOOL, else your own]"),
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option(help="Send to this broker instead of the one recorded in the spool."),
    ] = None,
    kafka_config: KafkaConfig = None,
    drain: Annotated[
        bool,
        typer.Option("--drain", help="Exit when the spools are empty; with 1 if events were lost."),
    ] = False,
    timeout: Annotated[float | None, typer.Option(help="Exit after this many seconds.")] = None,
    json: Json = False,
) -> None:
    """Send the events that emitters on this host have spooled, until Ctrl-C or SIGTERM.

    Waits while another process ships the directory, and takes over when that one exits. Records
    that cannot be sent (damaged, too old, refused by the broker) are moved to DIR/quarantine.

    Examples: headstart ship; headstart ship --spool /var/lib/headstart --drain --timeout 60
    """
    from headstart.connections.own_security import use_security
    from headstart.connections.properties import security_in
    from headstart.log_lines import configure_logging
    from headstart.shipping.process import ship
    from headstart.spool.layout import default_directory

    configure_logging()
    directory = spool or default_directory()
    if kafka_config is not None:
        use_security(security_in(Path(kafka_config)))
    report = ship(
        directory,
        kafka=kafka,
        own_security=kafka_config is not None,
        drain=drain,
        timeout_s=timeout,
    )
    if json:
        found = report._asdict()
        show_json({"spool": str(found.pop("directory")), **found})
    else:
        echo(str(report))
    if drain and not report.complete:
        raise typer.Exit(FAILURE)
