"""`headstart memory quarantine`: quarantined episodes, and their release."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from cli.support.option_groups import CommandGroup
from cli.support.options import Json, Limit, PostgresOptions, Tenant, TenantOnly, Yes
from cli.support.output import confirm, counted, echo, require_found, show_json, show_table
from cli.support.times import iso_moment

if TYPE_CHECKING:
    from memory.store.quarantine import QuarantinedBatch

app = CommandGroup(help="Episodes beyond the limits of their writers: list, release.")


@app.command("list")
def list_quarantined(
    tenant: TenantOnly = None,
    user: Annotated[str | None, typer.Option(help="Only of this user.")] = None,
    limit: Limit = 100,
    *,
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """List quarantined episodes by writer and reason, the newest first.

    They are not searched and are no evidence; their users still see, export and erase them. user
    rate, session rate: beyond HEADSTART_USER_CASES, HEADSTART_SESSION_CASES in one window. unnamed
    rate: of the runs of a tenant that name neither, beyond HEADSTART_UNNAMED_CASES.
    low-reward flood: far more than other users write, and with little success. flood notice: the
    same while a notice says that the user floods. Exit code 1: none matches.

    Examples: headstart memory quarantine list; headstart memory quarantine list --tenant acme
    --json
    """
    from cli.support.identifiers import require_names
    from memory.store.quarantine import quarantined_batches
    from sinks.postgres.reading import reading_postgres

    require_names(tenant=tenant, user=user)
    settings = options.read()

    async def run() -> list[QuarantinedBatch]:
        async with reading_postgres(settings.postgres) as connection:
            return await quarantined_batches(connection, tenant, user, limit)

    found = asyncio.run(run())
    if json:
        show_json({"quarantined": [each._asdict() for each in found]})
    else:
        columns = ("tenant", "user", "session", "reason", "episodes", "reward", "first", "last")
        show_table(columns, map(_row, found))
    require_found(len(found), "quarantined episode", tenant=tenant, user=user)


@app.command("release")
def release_quarantined(
    tenant: Tenant = "default",
    user: Annotated[str | None, typer.Option(help="Only of this user.")] = None,
    session: Annotated[str | None, typer.Option(help="Only of this session.")] = None,
    unnamed: Annotated[
        bool, typer.Option("--unnamed", help="Only those that name neither user nor session.")
    ] = False,
    yes: Yes = False,
    *,
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """Release quarantined episodes of a user, a session, of neither, or of the whole tenant.

    They count again, at once for words and contexts, and for similar queries within 10 minutes,
    when the memory worker has embedded them. The release is recorded: what the writer has written
    up to now is not quarantined again, by a rebuild either. What follows is.

    Examples: headstart memory quarantine release --tenant acme --user batch; headstart memory
    quarantine release --tenant acme --yes --json
    """
    from cli.support.identifiers import require_names
    from memory.store.quarantine import release
    from sinks.postgres.reading import reading_postgres

    require_names(tenant=tenant, user=user, session=session)
    if unnamed and (user, session) != (None, None):
        raise typer.BadParameter("--unnamed is of runs without a user or session; give it alone")
    settings = options.read()
    if user is None and session is None and not unnamed:
        confirm(f"Release all quarantined episodes of the tenant {tenant}?", yes)

    async def run() -> int:
        async with reading_postgres(settings.postgres) as connection:
            return await release(
                connection, tenant, user_id=user, session_id=session, unnamed=unnamed
            )

    count = asyncio.run(run())
    if json:
        show_json({"tenant": tenant, "user": user, "session": session, "released": count})
    else:
        echo(f"released: {counted(count, 'episode')}")
    require_found(count, "quarantined episode", tenant=tenant, user=user, session=session)


def _row(found: QuarantinedBatch) -> list[object]:
    return [
        found.tenant, found.user_id, found.session_id, found.reason, f"{found.episodes:,}",
        None if found.reward is None else f"{found.reward:.2f}", iso_moment(found.first),
        iso_moment(found.last),
    ]  # fmt: skip
