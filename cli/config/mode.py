"""`headstart config set|unset|get mode`: executor modes, and the kill switch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.config.apply import (
    COLUMNS,
    By,
    Reason,
    row,
    set_and_show,
    shown,
    unset_and_report,
    user_name,
)
from cli.support.identifiers import require_names
from cli.support.option_groups import OptionGroup
from cli.support.options import Json, KafkaRedisOptions
from cli.support.output import echo, show_json, show_table
from cli.support.times import now_ms
from cli.support.unknown_names import echo_notes, notes_on_names

if TYPE_CHECKING:
    from sinks.redis.served_modes import ServedMode
    from topics.commands.messages import ModeCommand


class Mode(StrEnum):
    """Executor modes, the most restrictive first."""

    OFF = "off"
    OBSERVE = "observe"
    ACT = "act"


@dataclass(frozen=True)
class ModeTarget(OptionGroup):
    """The executors that a mode is for."""

    tenant: Annotated[
        str | None, typer.Option("--tenant", help="All executors of this tenant.")
    ] = None
    agent: Annotated[str | None, typer.Option(help="Only this agent of the tenant.")] = None
    everybody: Annotated[bool, typer.Option("--everybody", help="All executors.")] = False

    def command(self, mode: Mode = Mode.ACT, **more: Any) -> ModeCommand:
        """Return a command for these executors. Raises `typer.BadParameter`."""
        from topics.commands.messages import ModeCommand

        if self.everybody == (self.tenant is not None) or (self.agent and self.everybody):
            raise typer.BadParameter(
                "select executors: --everybody, --tenant TENANT, or --tenant TENANT --agent AGENT"
            )
        require_names(tenant=self.tenant, agent=self.agent)
        fields = {"at": 0} | more
        return ModeCommand(mode=mode.value, tenant=self.tenant, agent=self.agent, **fields)


def set_mode(
    mode: Annotated[Mode, typer.Argument(help="off; observe: log, start nothing; act.")],
    reason: Reason = "",
    by: By = None,
    *,
    target: ModeTarget,
    options: KafkaRedisOptions,
    json: Json = False,
) -> None:
    """Set the mode of all executors, of a tenant's, or of one agent of a tenant.

    The most restrictive of HEADSTART_MODE at the executor, the mode of all executors, the tenant's
    and the agent's applies. `off --everybody` is the kill switch; it needs no running worker. A
    tenant of which nothing is known yet is set nevertheless, with a note (--json: `notes`).

    Examples: headstart config set mode off --everybody --reason incident;
    headstart config set mode observe --tenant acme --agent planner
    """

    command = target.command(mode, by=user_name(by), reason=reason, at=now_ms())
    settings = options.read()
    set_and_show(
        settings,
        command,
        lambda: notes_on_names(settings, target.tenant, agent=target.agent),
        json=json,
    )


def unset_mode(
    reason: Reason = "",
    by: By = None,
    *,
    target: ModeTarget,
    options: KafkaRedisOptions,
    json: Json = False,
) -> None:
    """Unset a mode; the most restrictive of the remaining ones applies.

    Example: headstart config unset mode --everybody
    """
    from topics.commands.messages import command_key

    key = command_key(target.command())
    settings = options.read()
    unset_and_report(settings, key, user_name(by), reason, lambda: (("taken back",), {}), json=json)


def get_mode(
    *,
    target: ModeTarget,
    options: KafkaRedisOptions,
    json: Json = False,
) -> None:
    """Show every mode that applies to these executors; the most restrictive one is in force.

    The mode in force is read from Redis, even if it was written there manually. An invalid mode
    counts as off.

    Example: headstart config get mode --tenant acme --agent planner
    """
    from sinks.redis.served_modes import holding
    from topics.commands.log import read_commands
    from topics.commands.messages import ModeCommand

    wanted = target.command()
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
    served, notes = _served(settings.redis, target), []
    if served is not None:
        holds = holding(served)
        notes = notes_on_names(settings, target.tenant)
    if json:
        shows = None if served is None else [each._asdict() for each in served]
        show_json(
            {
                "modes": [shown(each) for each in found],
                "holds": holds,
                "served": shows,
                "notes": notes,
            }
        )
    elif found:
        show_table(COLUMNS, [row(each) for each in found])
    echo_notes(notes)
    _report_uncommanded(found, served or ())
    if holds:
        echo(f"{holds} holds, unless HEADSTART_MODE where an executor runs is more restrictive")
    else:
        echo("no mode is set: HEADSTART_MODE where an executor runs holds, else act")


def _report_uncommanded(commands: Sequence[ModeCommand], served: Sequence[ServedMode]) -> None:
    """Print the modes that Redis serves without a command."""
    known = {(each.tenant, f"agent/{each.agent}" if each.agent else "*"): each for each in commands}
    for each in served:
        command = known.get((each.tenant, each.field))
        if command is None or command.mode != each.stored:
            taken = (
                "" if each.sound else f", which is not a mode: executors treat it as {each.holds}"
            )
            echo(
                f"Redis serves {each.stored!r} for {each.owner}{taken}; no command set that: "
                "`headstart config set mode` replaces it"
            )


def _served(redis: str, target: ModeTarget) -> list[ServedMode] | None:
    """Return the modes that Redis serves; print a line and return None if it does not answer."""
    from sinks.connections import RedisUnreachable
    from sinks.redis.served_modes import served_modes

    try:
        return asyncio.run(served_modes(redis, target.tenant, target.agent))
    except RedisUnreachable as error:
        echo(f"cannot read the modes that Redis serves: {error}")
        return None
