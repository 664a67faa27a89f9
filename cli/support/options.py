"""Options that several commands share, and the settings they make."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

KafkaPart = Annotated[
    str, typer.Option(help="embedded, apache (also started here), or the address of one that runs.")
]
Part = Annotated[str, typer.Option(help="embedded, or the address of one that runs.")]
Kafka = Annotated[str | None, typer.Option(help="Broker, host:port[,host:port].")]
Postgres = Annotated[str | None, typer.Option(help="Postgres DSN.")]
Redis = Annotated[str | None, typer.Option(help="Redis URL.")]
Data = Annotated[Path | None, typer.Option(help="Data directory [default: .headstart].")]
Health = Annotated[
    str | None, typer.Option(help="Where the first worker answers health checks, host:port.")
]
Learner = Annotated[
    str | None, typer.Option(help="Threshold policy, such as td or ema:alpha=.1 [default: hops].")
]
Partitions = Annotated[int | None, typer.Option(help="Partitions of new topics [default: 8].")]
Tenant = Annotated[str, typer.Option(help="Whose events and thresholds.")]
Limit = Annotated[int, typer.Option(min=1, help="At most this many.")]
Since = Annotated[
    str | None, typer.Option(metavar="AGE", help="Only what is not older: 90s, 30m, 2h, 7d.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on the last line of stdout.")]
