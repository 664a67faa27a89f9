"""`headstart migrate`: upgrades the database schema."""

from __future__ import annotations

import asyncio

from cli.support.options import Json, PostgresOptions
from cli.support.output import echo, show_json


def migrate(
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """Apply missing schema migrations in one transaction; running it again changes nothing.

    The sinks migrate when they start; this command is for a job before a roll-out. Run it as the
    workers' role, which must own the tables to add a partition a day. Only CREATE EXTENSION vector
    may need another role, once.

    Exits with 1 and the statements to run if the role lacks rights that the workers need.

    Example: headstart migrate --postgres postgresql://headstart@db:5432/headstart
    """
    from sinks.postgres.migrate import migrate as apply
    from sinks.postgres.rights import RightsMissing, require_rights

    settings = options.read()
    applied = asyncio.run(apply(settings.postgres))
    lacking: RightsMissing | None = None
    try:
        asyncio.run(require_rights(settings.postgres))
    except RightsMissing as error:
        lacking = error
    if json:
        more = {"missing_rights": lacking.statements} if lacking else {}
        show_json({"applied": applied, **more})
    else:
        echo(f"applied {', '.join(applied) or 'nothing: the schema is the newest'}")
    if lacking is not None:
        raise lacking
