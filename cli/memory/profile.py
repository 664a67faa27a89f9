"""`headstart memory profile`: what a user has set of the memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.memory.list_ import User
from cli.support.option_groups import CommandGroup
from cli.support.options import Json, PostgresOptions, Tenant
from cli.support.output import show_json, show_table

if TYPE_CHECKING:
    from memory.users.profile import MemoryProfile

app = CommandGroup(help="What a user has set of the memory: on or off, window, sharing.")

Agent = Annotated[str | None, typer.Option(help="Only for this agent [default: for all].")]


@app.command("show")
def show_profile(
    user: User,
    tenant: Tenant = "default",
    agent: Annotated[str | None, typer.Option(help="What holds for this agent.")] = None,
    *,
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """Show what a user has set, and what holds for an agent; the defaults if nothing is set.

    Example: headstart memory profile show --tenant acme --user u7 --agent support --json
    """
    from cli.support.identifiers import require_names
    from memory.users.profile import effective_profile
    from memory.users.profiles import user_profiles
    from sinks.postgres.reading import reading_postgres

    require_names(user=user, agent=agent)
    settings = options.read()

    async def run() -> list[MemoryProfile]:
        async with reading_postgres(settings.postgres) as connection:
            return await user_profiles(connection, tenant, user)

    stored = asyncio.run(run())
    _show(effective_profile(stored, agent), stored, json=json)


@app.command("set")
def set_profile_(
    user: User,
    tenant: Tenant = "default",
    agent: Agent = None,
    enabled: Annotated[
        bool | None, typer.Option("--on/--off", help="Switch the memory on or off.")
    ] = None,
    window: Annotated[
        int | None, typer.Option(min=1, help="Use only so many of the user's newest cases.")
    ] = None,
    days: Annotated[
        int | None, typer.Option(min=0, help="Use only cases of so many last days; 0: of any age.")
    ] = None,
    shared: Annotated[
        bool | None,
        typer.Option("--share/--no-share", help="Give agents the user's cases of other agents."),
    ] = None,
    *,
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """Set what a user wants of the memory; options that are left out stay as they are.

    Off: nothing is retrieved for the user's runs, and no other run is given the user's cases. Runs
    are still recorded, see `headstart memory delete`. Off for all agents is off for each.

    Examples: headstart memory profile set --tenant acme --user u7 --off; headstart memory profile
    set --tenant acme --user u7 --agent support --window 50 --days 30 --share
    """
    from cli.support.identifiers import require_names
    from memory.users.profiles import set_profile, user_profiles
    from sinks.postgres.reading import reading_postgres

    require_names(tenant=tenant, user=user, agent=agent)
    given = {"enabled": enabled, "window_size": window, "shared": shared}
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if days is not None:
        changes["window_days"] = days or None
    if not changes:
        raise typer.BadParameter("give one of --on, --off, --window, --days, --share, --no-share")
    settings = options.read()

    async def run() -> tuple[MemoryProfile, list[MemoryProfile]]:
        async with reading_postgres(settings.postgres) as connection:
            set_now = await set_profile(connection, tenant, user, agent, **changes)
            return set_now, await user_profiles(connection, tenant, user)

    found, stored = asyncio.run(run())
    _show(found, stored, json=json)


def _show(holds: MemoryProfile, stored: list[MemoryProfile], *, json: bool) -> None:
    if json:
        show_json({"profile": holds.as_json(), "stored": [each.as_json() for each in stored]})
        return
    rows = [(*_row(each), "stored") for each in stored]
    if holds not in stored:
        rows.append((*_row(holds), "holds"))
    show_table(("agent", "memory", "newest cases", "days", "other agents' cases", ""), rows)


def _row(profile: MemoryProfile) -> tuple[object, ...]:
    return (
        profile.agent_id or "all", "on" if profile.enabled else "off", profile.window_size,
        profile.window_days or "any", "yes" if profile.shared else "no",
    )  # fmt: skip
