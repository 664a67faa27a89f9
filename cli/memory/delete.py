"""`headstart memory delete`: erases one memory of a user, or all, by a purge."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from cli.memory.list_ import User
from cli.memory.purge import WAIT_S, DryRun, Purging, Wait, purge_services
from cli.support.options import Json, KafkaPostgresOptions, Tenant, Yes
from cli.support.output import echo

if TYPE_CHECKING:
    from settings import Settings
    from topics.control.messages import Purge


def delete(
    user: User,
    name: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Id of the memory, or a workflow id.")
    ] = None,
    tenant: Tenant = "default",
    everything: Annotated[
        bool, typer.Option("--all", help="Everything of the user, not one memory.")
    ] = False,
    dry_run: DryRun = False,
    wait: Wait = WAIT_S,
    yes: Yes = False,
    *,
    options: KafkaPostgresOptions,
    json: Json = False,
) -> None:
    """Delete a memory of a user, or with --all everything of the user, everywhere.

    A purge of the memory's workflow: its events, episode, vectors and the retrievals that found it
    go, and replays leave them out; see `headstart memory purge`. Refused if another user has a part
    in the workflow. Exit code 1: there is no such memory, or workers have not carried it out.

    Examples: headstart memory delete refund-4711 --tenant acme --user u7;
    headstart memory delete --all --tenant acme --user u7 --yes --json
    """
    from cli.support.identifiers import require_names

    require_names(tenant=tenant, user=user)
    if (name is None) != everything:
        raise typer.BadParameter("give the ID of one memory, or --all")
    settings = options.read()

    async def run() -> None:
        purge = await _deletion(settings, tenant, user, name)
        purging = Purging(
            purge_services(settings), purge, dry_run=dry_run, yes=yes, wait=wait, vacuum=False
        )
        await purging.run(json=json)

    asyncio.run(run())


async def _deletion(settings: Settings, tenant: str, user: str, name: str | None) -> Purge:
    from memory.users.client import UserMemory

    memory = UserMemory(settings.postgres, settings.kafka, tenant=tenant, user_id=user)
    purge = await memory.deletion(name)
    if name is None:
        echo("this erases everything of the user, also the memory profile and own thresholds")
    return purge
