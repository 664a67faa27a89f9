"""Puts an override or mode into effect: appends it to the log and publishes it to Redis."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.support.output import FAILURE, echo, show_json, show_table
from cli.support.times import now_ms, shown_moment
from cli.support.unknown_names import echo_notes

if TYPE_CHECKING:
    from settings import Settings
    from topics.commands.messages import Command

By = Annotated[str | None, typer.Option(help="Author [default: your user name].")]
Reason = Annotated[str, typer.Option(help="The reason, shown with the entry.")]

_LATER = (
    "A threshold worker serves it once it runs and reaches Redis (`headstart status`); "
    "`headstart config get mode --everybody` and `headstart thresholds show` show what is served"
)


def user_name(by: str | None) -> str:
    """Return --by, or the login name."""
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "unknown"


async def set_and_serve(settings: Settings, command: Command) -> str | None:
    """Append a command and publish it; return why it is not yet served, or None.

    Raises `ValueError` for an invalid command, `BrokerUnreachable` and `TopicsMissing`.
    """
    from sinks.redis.command_authors import remember_command
    from topics.commands.log import read_commands, send_commands
    from topics.commands.messages import command_key, decode_command, encode_command

    decode_command(encode_command(command))
    await read_commands(
        settings.kafka
    )  # the log must have been initialised before anything is appended
    offset = await send_commands(settings.kafka, [command])
    with contextlib.suppress(ConnectionError):  # `_serve` reports it
        await remember_command(settings.redis, command)
    return await _serve(settings, command_key(command), offset)


async def unset_now(settings: Settings, key: bytes, by: str, reason: str) -> str | None:
    """Unset a key; return why its value is still served, or None.

    Raises `LookupError` if the key is not set.
    """
    from sinks.redis.command_authors import forget_command
    from topics.commands.log import read_commands, unset_commands

    if key not in await read_commands(settings.kafka):
        raise LookupError(
            "nothing is set there; `headstart config list --expired` lists the entries"
        )
    offset = await unset_commands(settings.kafka, [key], by, reason)
    with contextlib.suppress(ConnectionError):
        await forget_command(settings.redis, key)
    return await _serve(settings, key, offset)


def set_and_show(
    settings: Settings, command: Command, notes: Callable[[], Sequence[str]], *, json: bool
) -> None:
    """Set a command and show it; exit with 1 if it is not yet served.

    `notes`: returns what is unusual about the command's names, once it is served. Raises what
    `set_and_serve` does.
    """
    waits = asyncio.run(set_and_serve(settings, command))
    found = [] if waits else notes()
    if json:
        show_json({"set": shown(command), "served": waits is None, "notes": found})
    else:
        show_table(COLUMNS, [row(command)])
    echo_notes(found)
    if waits:
        echo(waits)
        raise typer.Exit(FAILURE)


def unset_and_report(
    settings: Settings,
    key: bytes,
    by: str,
    reason: str,
    done: Callable[[], tuple[Iterable[str], Mapping[str, Any]]],
    *,
    json: bool,
) -> None:
    """Unset a key and print what applies now; exit with 1 if its value is still served.

    `done`: returns that, once the key is unset in Redis, as lines and as fields of JSON. Raises as
    `unset_now` does.
    """
    try:
        waits = asyncio.run(unset_now(settings, key, by, reason))
    except LookupError:
        if json:
            show_json({"unset": False, "served": False})
        raise
    lines, fields = ((waits,), {}) if waits else done()
    if json:
        show_json({"unset": True, "served": waits is None, **fields})
    for line in lines:
        echo(line)
    if waits:
        raise typer.Exit(FAILURE)


async def _serve(settings: Settings, key: bytes, offset: int) -> str | None:
    """Publish the values in force for a key whose record was appended at `offset`."""
    from sinks.redis.commands import CommandPublisher
    from topics.commands.log import is_whole, read_commands
    from topics.commands.messages import target_of

    place, state = target_of(key), await read_commands(settings.kafka)
    if state.version(place).offset < offset:  # else an older value would look served
        return (
            f"recorded at offset {offset} of headstart.commands, but not yet served: the broker "
            f"does not return it yet. {_LATER}; if this persists, run `headstart doctor`"
        )
    try:
        async with CommandPublisher(settings.redis) as publisher:
            if await publisher.has_all_modes():
                await publisher.serve(state, [place], now_ms())
            else:  # Redis is new or was emptied
                whole = partial(is_whole, settings.kafka, state)
                await publisher.serve_all(state, now_ms(), whole)
            for _attempt in range(3):
                why = await publisher.not_served(state, place, now_ms())
                if why is None:
                    break
                state = await read_commands(
                    settings.kafka
                )  # another command may have been appended since
                await publisher.serve(state, [place], now_ms())
    except ConnectionError as error:
        return f"recorded, but not yet served: {error}. {_LATER}"
    return f"recorded, but not served: {why}" if why else None


def shown(command: Command) -> dict[str, Any]:
    """Return a command as JSON fields."""
    import msgspec

    fields: dict[str, Any] = msgspec.to_builtins(command)
    return fields


def row(command: Command) -> Sequence[Any]:
    """Return a command as a row of the table; see `COLUMNS`."""
    from topics.commands.messages import ThresholdOverride

    at, words = shown_moment(command.at), (command.by, command.reason)
    if isinstance(command, ThresholdOverride):
        where = command.path or f"workflow_type={command.workflow_type}"
        named = (("speculate", command.speculate), ("suggest", command.suggest))
        what = ", ".join(f"{name} {value:g}" for name, value in named if value is not None)
        until = shown_moment(command.until)
        return (command.tenant, where, command.tool or "every tool", what, until, at, *words)
    where = f"agent {command.agent}" if command.agent else "every agent"
    return (command.tenant or "everybody", where, "", f"mode {command.mode}", None, at, *words)


COLUMNS = ("tenant", "where", "tool", "set to", "until", "since", "by", "reason")
