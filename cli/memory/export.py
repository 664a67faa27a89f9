"""`headstart memory export`: episodes, or everything of one user, into a file."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from cli.support.options import Json, PostgresOptions, Since, TenantOnly
from cli.support.output import claim_outputs, echo, show_json
from cli.support.times import parse_since

if TYPE_CHECKING:
    from settings import Settings

_SAY_EVERY = 10_000


def export(
    file: Annotated[
        str, typer.Argument(help="Output file, .gz or .zst compresses it; -: standard output.")
    ],
    tenant: TenantOnly = None,
    since: Since = None,
    user: Annotated[
        str | None, typer.Option(help="Everything of this user of the tenant, not only episodes.")
    ] = None,
    *,
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """Write episodes to FILE: JSON lines, one episode each, without vectors.

    `headstart memory import` reads it, also into another system or tenant. With --user: everything
    that Postgres has of a user, each line an object with its kind (profile, event, episode,
    retrieval, threshold, notice), which no command reads back.

    Without an episode FILE stays as it is, and the exit code is 1.

    Examples: headstart memory export memory.jsonl.zst; headstart memory export acme.jsonl --tenant
    acme --since 30d; headstart memory export u7.jsonl --tenant acme --user u7
    """
    claim_outputs(file, json=json)
    settings = options.read()
    if user is None:
        count = asyncio.run(_episodes(settings, file, tenant, parse_since(since)))
        found = {"file": file, "episodes": count}
        said = f"{count:,} episodes in {file}"
    else:
        if tenant is None or since is not None:
            raise typer.BadParameter("--user exports all of one user: give --tenant, not --since")
        kinds = asyncio.run(_everything(settings, file, tenant, user))
        found = {"file": file, "user": user, "lines": dict(kinds)}
        parts = ", ".join(f"{number:,} {kind}" for kind, number in kinds.items())
        said = f"{kinds.total():,} lines in {file}: {parts}"
    if json:
        show_json(found)
    else:
        echo(said)


async def _episodes(settings: Settings, file: str, tenant: str | None, begin: int) -> int:
    import orjson

    from memory.episodes.imported import EXPORT, exported
    from memory.store.reading import all_episodes
    from replay.files.output import output_file
    from replay.sources.base import NothingThere
    from sinks.postgres.reading import reading_postgres

    count = 0
    async with reading_postgres(settings.postgres) as connection:
        with output_file(file) as out:
            out.write(orjson.dumps({"format": EXPORT, "version": 1}) + b"\n")
            async for episodes in all_episodes(connection, tenant, begin):
                for episode in episodes:
                    out.write(orjson.dumps(exported(episode)) + b"\n")
                count += len(episodes)
                if count % _SAY_EVERY < len(episodes):
                    echo(f"{count:,} episodes so far")
            if not count:
                raise NothingThere("the memory holds no such episode; nothing is written")
    return count


async def _everything(settings: Settings, file: str, tenant: str, user: str) -> Counter[str]:
    from cli.support.output import json_line
    from memory.users.export import user_export
    from replay.files.output import output_file
    from replay.sources.base import NothingThere
    from sinks.postgres.reading import reading_postgres

    kinds: Counter[str] = Counter()
    async with reading_postgres(settings.postgres) as connection:
        with output_file(file) as out:
            async for line in user_export(connection, tenant, user):
                out.write(json_line(line))
                kinds[line["kind"]] += 1
                if kinds.total() % _SAY_EVERY == 0:
                    echo(f"{kinds.total():,} lines so far")
            if not kinds:
                raise NothingThere(f"nothing is stored of user {user!r}; nothing is written")
    return kinds
