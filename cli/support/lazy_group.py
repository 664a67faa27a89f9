"""A group that imports a command only when it is used: `--help` imports none.

The table holds their help lines too; a test compares these with the commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from textwrap import shorten
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

from cli.support.finite_options import FiniteCommand
from cli.support.option_groups import expand_options


class CommandSpec(NamedTuple):
    """A command's location, and the first line of its help."""

    where: str
    """`module:attribute`, a function or a `typer.Typer`."""
    help: str


def lazy(places: Mapping[str, CommandSpec]) -> type[TyperGroup]:
    """Return a group class with these commands, by name, in this order."""

    class Group(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - click's name
            return list(places)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
            if cmd_name in places and cmd_name not in self.commands:
                self.commands[cmd_name] = _load(cmd_name, places[cmd_name].where)
            return self.commands.get(cmd_name)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            if args and args[0] not in places:
                load_all(self)  # click suggests names from `commands`
            return super().resolve_command(ctx, args)

        def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
            room = formatter.width - 6 - max(map(len, places), default=0)
            with formatter.section("Commands"):
                lines = [shorten(at.help, room, placeholder="...") for at in places.values()]
                formatter.write_dl(list(zip(places, lines, strict=True)))

    return Group


def load_all(group: Any) -> None:
    """Import every command of a group into its `commands`."""
    group.commands = {name: group.get_command(None, name) for name in group.list_commands(None)}


def _load(name: str, where: str) -> Any:
    module, _, attribute = where.partition(":")
    found = getattr(import_module(module), attribute)
    holder = typer.Typer(rich_markup_mode=None)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name, cls=FiniteCommand)(expand_options(found))
    return typer.main.get_group(holder).commands[name]
