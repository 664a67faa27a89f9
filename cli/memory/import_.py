"""`headstart memory import`: episodes from a file that `memory export` wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.support.options import Json, PostgresOptions

if TYPE_CHECKING:
    from memory.episodes.record import Episode


def import_(
    file: Annotated[
        str, typer.Argument(help="File of `headstart memory export`; -: standard input.")
    ],
    tenant: Annotated[
        str | None, typer.Option(help="Store all as episodes of this tenant [default: their own].")
    ] = None,
    *,
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """Store the episodes of FILE, and embed their queries.

    An episode that the store has from more events stays as it is; importing a file twice changes
    nothing. Lines that are no episode are refused, counted and the first ones named; the others are
    stored, and the exit code is 1.

    Examples: headstart memory import memory.jsonl.zst; headstart memory import acme.jsonl --tenant
    acme-test --json
    """
    from cli.memory.importing import store_file
    from cli.support.identifiers import require_names
    from memory.episodes.imported import EXPORT, NotARun, from_export

    require_names(tenant=tenant)
    settings = options.read()

    def convert(number: int, record: Any) -> Episode | None:
        if number == 1:
            version = record.get("version") if isinstance(record, dict) else None
            if not isinstance(record, dict) or record.get("format") != EXPORT or version != 1:
                raise NotARun(
                    f"{file} was not written by `headstart memory export` of this version; runs "
                    "of agents are read by `headstart memory backfill --runs`"
                )
            return None
        return from_export(record, tenant)

    store_file(settings, file, convert, json=json)
