"""`headstart migrate`: the database brought to the newest schema."""

from __future__ import annotations

import asyncio

from cli.options import Data, Json, Postgres
from cli.output import say, show_json


def migrate(postgres: Postgres = None, data: Data = None, json: Json = False) -> None:
    """Apply what the database lacks of the schema, whole or not at all; twice is harmless.

    The sinks do so as they start; on its own it is a job before a roll-out. Run it as the workers'
    role, which owns the tables: a partition a day is added to them. Only the extension may take
    another role, once: CREATE EXTENSION vector.

    Example: headstart migrate --postgres postgresql://headstart@db:5432/headstart
    """
    from settings import read_settings
    from sinks.migrate import migrate as apply

    settings = read_settings(postgres=postgres, data=data)
    applied = asyncio.run(apply(settings.postgres))
    if json:
        show_json({"applied": applied})
    else:
        say(f"applied {', '.join(applied) or 'nothing: the schema is the newest'}")
