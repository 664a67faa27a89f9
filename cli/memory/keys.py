"""`headstart memory keys`: the keys of encryption at rest."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.support.option_groups import CommandGroup
from cli.support.options import Json, PostgresOptions, TenantOnly, Yes
from cli.support.output import confirm, echo, put, require_found, show_json, show_table
from cli.support.times import iso_moment

if TYPE_CHECKING:
    from sinks.postgres.encryption.administration import ListedKey

app = CommandGroup(help="Keys of encryption at rest: new, list, rotate, shred.")


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(metavar="ID", help="Its id, such as k2 or 2026-11.")],
) -> None:
    """Print a new master key, as a line of the file that HEADSTART_ENCRYPTION_KEY_FILE names.

    Put it first in the file: new texts are encrypted with the first key, and older ones are read
    with those below. Keep a copy outside of this machine: without it the texts are lost.

    Example: headstart memory keys new k1 > /etc/headstart/encryption.key
    """
    from sinks.postgres.encryption.master_keys import new_master_key

    put(new_master_key(name))


@app.command("list")
def list_keys(tenant: TenantOnly = None, *, options: PostgresOptions, json: Json = False) -> None:
    """List the data keys of tenants, and which master key wraps each.

    Exit code 1: there are none.

    Examples: headstart memory keys list; headstart memory keys list --tenant acme --json
    """
    from sinks.postgres.encryption import administration
    from sinks.postgres.reading import reading_postgres

    settings = options.read()

    async def run() -> list[ListedKey]:
        async with reading_postgres(settings.postgres) as connection:
            return await administration.list_keys(connection, tenant)

    found = asyncio.run(run())
    if json:
        show_json({"keys": [each._asdict() for each in found]})
    elif found:
        show_table(("tenant", "number", "master key", "made", "shredded"), map(_row, found))
    require_found(len(found), "key", tenant=tenant)


def _row(key: ListedKey) -> list[Any]:
    shredded = "" if key.shredded is None else iso_moment(key.shredded)
    return [key.tenant, key.number, key.master, iso_moment(key.made), shredded]


@app.command("rotate")
def rotate(*, options: PostgresOptions, json: Json = False) -> None:
    """Wrap the data keys of all tenants with the newest master key: the first that is given.

    The keys that wrap them now must be given too; afterwards they can be removed. Texts are not
    written again: each is encrypted with the data key of its tenant. If interrupted, run it again.

    Example: headstart memory keys rotate
    """
    from sinks.postgres.encryption.administration import rewrite_keys, rotate_next
    from sinks.postgres.encryption.master_keys import master_keys
    from sinks.postgres.reading import reading_postgres

    settings = options.read()

    async def run() -> tuple[int, str]:
        count = 0
        async with reading_postgres(settings.postgres) as connection:
            while some := await rotate_next(connection):
                count += some
                echo(f"{count:,} keys so far")
            return count, await rewrite_keys(connection) if count else ""

    count, left = asyncio.run(run())
    newest = master_keys().newest
    if json:
        show_json({"rotated": count, "master": newest, "rewritten": not left})
        return
    echo(f"{count:,} keys are wrapped by {newest} now; older master keys are not needed any more")
    _warn(left)


@app.command("shred")
def shred(
    tenant: Annotated[str, typer.Option(help="The tenant.")],
    yes: Yes = False,
    *,
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """Destroy the data keys of a tenant: nothing can read its encrypted texts any more.

    Queries, responses, arguments and outputs of its events and episodes are gone at once, also in
    packed runs; vectors and logged retrievals are deleted. Tools, outcomes, contexts and times
    stay. Later events are encrypted with a new key. The topic headstart.events and backups are not
    changed: `headstart memory purge --whole-tenant` erases the log. If interrupted, run it again.
    Exit code 1: the tenant has no key.

    Examples: headstart memory keys shred --tenant acme; headstart memory keys shred --tenant acme
    --yes --json
    """
    from sinks.postgres.encryption import administration
    from sinks.postgres.reading import reading_postgres

    settings = options.read()
    confirm(f"Make all encrypted texts of the tenant {tenant} unreadable, for ever?", yes)

    async def run() -> tuple[int, int, str, bool]:
        async with reading_postgres(settings.postgres) as connection:
            count, cleared = await administration.shred(connection, tenant), 0
            while some := await administration.clear_next(connection, tenant):
                cleared += some
            known = bool(await administration.list_keys(connection, tenant))
            return count, cleared, await administration.rewrite_keys(connection), known

    count, cleared, left, known = asyncio.run(run())
    if json:
        show_json({"shredded": count, "episodes": cleared, "rewritten": not left})
    elif known:
        echo(
            f"{count:,} keys of {tenant} are destroyed; the texts of {cleared:,} episodes are gone"
        )
        _warn(left)
    require_found(int(known), "key", tenant=tenant)


def _warn(left: str) -> None:
    if left:
        echo(
            f"warning: old versions of keys stay in the file of the table ({left}): run VACUUM "
            "(FULL) tenant_keys as its owner"
        )
