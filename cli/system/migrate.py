"""`headstart migrate`: the database brought to the newest schema."""

from __future__ import annotations

import asyncio

from cli.support.options import Json, PostgresOptions
from cli.support.output import say, show_json


def migrate(
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """Apply what the database lacks of the schema, whole or not at all; twice is harmless.

    The sinks do so as they start; on its own it is a job before a roll-out. Run it as the workers'
    role, which owns the tables: a partition a day is added to them. Only the extension may take
    another role, once: CREATE EXTENSION vector.

    Exits with 1 where the role lacks rights that the workers need, and names the statements that
    give them.

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
        say(f"applied {', '.join(applied) or 'nothing: the schema is the newest'}")
    if lacking is not None:
        raise lacking
