"""`headstart memory export`: episodes into a file."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from cli.support.options import Json, PostgresOptions, Since, TenantOnly
from cli.support.output import claim_outputs, echo, show_json
from cli.support.times import parse_since


def export(
    file: Annotated[
        str, typer.Argument(help="Output file, .gz or .zst compresses it; -: standard output.")
    ],
    tenant: TenantOnly = None,
    since: Since = None,
    *,
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """Write episodes to FILE: JSON lines, one episode each, without vectors.

    `headstart memory import` reads it, also into another system or tenant.

    Without an episode FILE stays as it is, and the exit code is 1.

    Examples: headstart memory export memory.jsonl.zst; headstart memory export acme.jsonl --tenant
    acme --since 30d
    """
    import orjson

    from memory.episodes.imported import EXPORT, exported
    from memory.store.reading import all_episodes
    from replay.files.output import output_file
    from replay.sources.base import NothingThere
    from sinks.postgres.reading import reading_postgres

    claim_outputs(file, json=json)
    settings = options.read()
    begin = parse_since(since)

    async def run() -> int:
        count = 0
        async with reading_postgres(settings.postgres) as connection:
            with output_file(file) as out:
                out.write(orjson.dumps({"format": EXPORT, "version": 1}) + b"\n")
                async for episodes in all_episodes(connection, tenant, begin):
                    for episode in episodes:
                        out.write(orjson.dumps(exported(episode)) + b"\n")
                    count += len(episodes)
                    if count % 10_000 < len(episodes):
                        echo(f"{count:,} episodes so far")
                if not count:
                    raise NothingThere("the memory holds no such episode; nothing is written")
        return count

    count = asyncio.run(run())
    if json:
        show_json({"file": file, "episodes": count})
    else:
        echo(f"{count:,} episodes in {file}")
