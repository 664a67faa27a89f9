"""`headstart config`: overrides and modes, and every setting with its origin."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cli.config.apply import COLUMNS, row, shown
from cli.config.mode import get_mode, set_mode, unset_mode
from cli.config.threshold import get_threshold, set_threshold, unset_threshold
from cli.support.option_groups import CommandGroup, Only
from cli.support.options import Json, KafkaRedisOptions, Limit, SettingOptions, Since, TenantOnly
from cli.support.output import FAILURE, echo, require_found, show_json, show_table
from cli.support.times import now_ms, parse_since

if TYPE_CHECKING:
    from topics.commands.messages import Command

app = CommandGroup(help="Overrides and modes: set, unset, get, list; and settings: show.")
_set = CommandGroup(help="Set a threshold or a mode manually.")
_unset = CommandGroup(help="Unset a threshold or a mode.")
_get = CommandGroup(help="Show one threshold or mode.")
_set.command("threshold")(set_threshold)
_set.command("mode")(set_mode)
_unset.command("threshold")(unset_threshold)
_unset.command("mode")(unset_mode)
_get.command("threshold")(get_threshold)
_get.command("mode")(get_mode)
app.add_typer(_set, name="set")
app.add_typer(_unset, name="unset")
app.add_typer(_get, name="get")


@app.command("list")
def list_commands(
    tenant: TenantOnly = None,
    since: Since = None,
    limit: Limit = 1000,
    expired: Annotated[bool, typer.Option("--expired", help="Include expired entries.")] = False,
    *,
    options: KafkaRedisOptions,
    json: Json = False,
) -> None:
    """List every override and mode in force; --since: those set since then.

    Modes that Redis serves without a command are listed on stderr: they are in force too.

    Example: headstart config list --tenant acme
    """
    from topics.commands.log import read_commands
    from topics.commands.messages import command_key, in_force

    settings, begin = options.read(), parse_since(since)
    state, now = asyncio.run(read_commands(settings.kafka)), now_ms()
    found = [
        each
        for each in sorted(state.commands, key=command_key)
        if (expired or in_force(each, now)) and (tenant is None or each.tenant in {None, tenant})
        if each.at >= begin
    ][:limit]
    if json:
        commands = [{**shown(each), "in_force": in_force(each, now)} for each in found]
        show_json({"commands": commands})
    elif found:
        show_table(COLUMNS, [row(each) for each in found])
    elif not (tenant or since):
        echo("no override or mode is set")
    if not json:
        _report_uncommanded(
            settings.redis, [each for each in state.commands if in_force(each, now)]
        )
    require_found(len(found), "override or mode", tenant=tenant, since=since)


def _report_uncommanded(redis: str, commands: Sequence[Command]) -> None:
    """Print the modes that Redis serves without a command."""
    from sinks.connections import RedisUnreachable
    from sinks.redis.served_modes import ServedMode, every_mode
    from topics.commands.messages import ModeCommand

    modes = [each for each in commands if isinstance(each, ModeCommand)]
    known = {
        (each.tenant, f"agent/{each.agent}" if each.agent else "*", each.mode) for each in modes
    }
    try:
        served = asyncio.run(every_mode(redis))
    except RedisUnreachable as error:
        echo(f"cannot read the modes that Redis serves: {error}")
        return
    there = {(each.tenant, each.field, each.stored) for each in served}
    for mode in modes:
        field = f"agent/{mode.agent}" if mode.agent else "*"
        if (mode.tenant, field, mode.mode) not in there:
            owner = ServedMode(mode.tenant, field, mode.mode, mode.mode).owner
            echo(
                f"{mode.mode} is set for {owner}, and Redis does not serve it: `headstart "
                "thresholds republish` serves it, or prints why it cannot"
            )
    for each in served:
        if (each.tenant, each.field, each.stored) not in known:
            what = f"Redis serves {each.stored!r} for {each.owner}, which no command set"
            echo(f"{what}: {each.holds} holds")


@app.command("show")
def show(
    name: Annotated[str | None, typer.Argument(help="Only this setting.")] = None,
    *,
    options: Annotated[
        SettingOptions,
        Only("kafka", "kafka_config", "postgres", "redis", "data", "learner", "partitions"),
    ],
    json: Json = False,
) -> None:
    """Show every setting with its value, origin and meaning. Passwords are masked.

    A value comes from its flag, else HEADSTART_NAME, else the settings file (headstart.toml here,
    or what HEADSTART_CONFIG names), else the running stack (addresses), else its default.

    Exits with 1 if executors would refuse a value.

    Example: headstart config show redis
    """
    from settings.executor import refused
    from settings.origins import shown as settings_of
    from settings.suggestions import did_you_mean
    from settings.variables import unread

    reading = options.load()
    for note in unread(reading.origins):
        echo(note)
    if wrong := list(refused()):
        for each in wrong:
            echo(f"error: {each}")
        raise typer.Exit(FAILURE)
    found = {each.name: each for each in settings_of(reading)}
    if name is not None:
        if name not in found:
            raise LookupError(
                f"there is no setting {name!r}{did_you_mean(name, found)}; "
                "`headstart config show` lists all"
            )
        found = {name: found[name]}
    if json:
        show_json({"settings": [each._asdict() for each in found.values()]})
    else:
        show_table(("name", "value", "origin", "meaning"), list(found.values()))
