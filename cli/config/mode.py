"""`headstart config set|unset|get mode`: how far executors may go; the kill switch."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from cli.config.apply import COLUMNS, By, Reason, row, set_and_show, shown, unset_and_say, user_name
from cli.support.options import Json, KafkaRedisOptions
from cli.support.output import say, show_json, show_table
from cli.support.times import now_ms

if TYPE_CHECKING:
    from sinks.redis.served_modes import ServedMode
    from topics.commands.messages import ModeCommand


class Mode(StrEnum):
    """How far executors may go, the most restrictive first."""

    OFF = "off"
    OBSERVE = "observe"
    ACT = "act"


Whose = Annotated[str | None, typer.Option("--tenant", help="All executors of this tenant.")]
Agent = Annotated[str | None, typer.Option(help="Only this agent of the tenant.")]
Everybody = Annotated[bool, typer.Option("--everybody", help="Every executor there is.")]


def set_mode(
    mode: Annotated[Mode, typer.Argument(help="off; observe: log, start nothing; act.")],
    tenant: Whose = None,
    agent: Agent = None,
    everybody: Everybody = False,
    reason: Reason = "",
    by: By = None,
    *,
    options: KafkaRedisOptions,
    json: Json = False,
) -> None:
    """Tell executors how far they may go: everybody, those of a tenant, or one agent of it.

    The most restrictive holds: of HEADSTART_MODE where the executor runs, everybody's, the tenant's
    and the agent's. `off --everybody` is the kill switch; it needs no worker to take effect.

    Examples: headstart config set mode off --everybody --reason incident;
    headstart config set mode observe --tenant acme --agent planner
    """

    command = _command(tenant, agent, everybody, mode)
    command.by, command.reason, command.at = user_name(by), reason, now_ms()
    settings = options.read()
    set_and_show(settings, command, json=json)


def unset_mode(
    tenant: Whose = None,
    agent: Agent = None,
    everybody: Everybody = False,
    reason: Reason = "",
    by: By = None,
    *,
    options: KafkaRedisOptions,
    json: Json = False,
) -> None:
    """Take a mode back: of those that are left the most restrictive holds.

    Example: headstart config unset mode --everybody
    """
    from topics.commands.messages import command_key

    key = command_key(_command(tenant, agent, everybody))
    settings = options.read()
    unset_and_say(settings, key, user_name(by), reason, "taken back", json=json)


def get_mode(
    tenant: Whose = None,
    agent: Agent = None,
    everybody: Everybody = False,
    *,
    options: KafkaRedisOptions,
    json: Json = False,
) -> None:
    """Show every mode set that concerns these executors; the most restrictive one holds.

    What holds is what Redis serves, also where it was written there by hand. What is no mode
    counts as off.

    Example: headstart config get mode --tenant acme --agent planner
    """
    from sinks.redis.served_modes import holding
    from topics.commands.log import read_commands
    from topics.commands.messages import ModeCommand

    wanted = _command(tenant, agent, everybody)
    settings = options.read()
    state = asyncio.run(read_commands(settings.kafka))
    found = [
        each
        for each in state.commands
        if isinstance(each, ModeCommand)
        and each.tenant in {None, wanted.tenant}
        and each.agent in {None, wanted.agent}
    ]
    found.sort(key=lambda each: (each.tenant is not None, each.agent is not None))
    holds = next((mode.value for mode in Mode if mode.value in {each.mode for each in found}), None)
    served = _served(settings.redis, tenant, agent)
    if served is not None:
        holds = holding(served)
    if json:
        shows = None if served is None else [each._asdict() for each in served]
        show_json({"modes": [shown(each) for each in found], "holds": holds, "served": shows})
    elif found:
        show_table(COLUMNS, [row(each) for each in found])
    known = {(each.tenant, f"agent/{each.agent}" if each.agent else "*"): each for each in found}
    for each in served or ():
        command = known.get((each.tenant, each.field))
        if command is None or command.mode != each.stored:
            taken = "" if each.sound else f", which is no mode: executors take it for {each.holds}"
            say(
                f"Redis serves {each.stored!r} for {each.whose}{taken}; no command set that: "
                "`headstart config set mode` replaces it"
            )
    if holds:
        say(f"{holds} holds, unless HEADSTART_MODE where an executor runs is more restrictive")
    else:
        say("no mode is set: HEADSTART_MODE where an executor runs holds, else act")


def _served(redis: str, tenant: str | None, agent: str | None) -> list[ServedMode] | None:
    """Return what Redis serves; None, said, where it does not answer."""
    from sinks.connections import RedisUnreachable
    from sinks.redis.served_modes import served_modes

    try:
        return asyncio.run(served_modes(redis, tenant, agent))
    except RedisUnreachable as error:
        say(f"what executors are told is not known: {error}")
        return None


def _command(
    tenant: str | None, agent: str | None, everybody: bool, mode: Mode = Mode.ACT
) -> ModeCommand:
    """Return a command about whom the options name. Raises `typer.BadParameter`."""
    from topics.commands.messages import ModeCommand

    if everybody == (tenant is not None) or (agent and everybody):
        raise typer.BadParameter(
            "say whom: --everybody, --tenant TENANT, or --tenant TENANT --agent AGENT"
        )
    return ModeCommand(mode=mode.value, tenant=tenant, agent=agent, at=0)
