"""Selects dead letters by position or by filters."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from cli.support.option_groups import OptionGroup
from cli.support.times import parse_since

if TYPE_CHECKING:
    from topics.dead_letters.log import DeadLetterLog
    from topics.dead_letters.messages import DeadLetterFilter, DeadLetterRecord

At = Annotated[str, typer.Argument(metavar="PARTITION:OFFSET", help="As `list` shows it.")]
Positions = Annotated[
    list[str] | None, typer.Argument(metavar="PARTITION:OFFSET...", help="As `list` shows them.")
]
All = Annotated[bool, typer.Option("--all", help="All that match the filters.")]


@dataclass(frozen=True)
class FilterOptions(OptionGroup):
    """The filters of `dead-letters`; all that are given must hold."""

    group: Annotated[
        str | None,
        typer.Option(help="Only those refused by this group: episodes, thresholds, history."),
    ] = None
    topic: Annotated[str | None, typer.Option(help="Only those from this topic.")] = None
    reason: Annotated[
        str | None, typer.Option(help="Only those whose reason contains this text.")
    ] = None
    since: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Maximum age: 90s, 30m, 2h, 7d."),
    ] = None

    def filter(self) -> DeadLetterFilter:
        """Return the filter. Raises `typer.BadParameter`."""
        from topics.dead_letters.messages import DeadLetterFilter

        since = (parse_since(self.since),) if self.since is not None else ()
        return DeadLetterFilter(self.group, self.topic, self.reason, *since)


def position(text: str) -> tuple[int, int]:
    """Parse PARTITION:OFFSET. Raises `typer.BadParameter`."""
    found = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,18})", text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not PARTITION:OFFSET, as `list` shows it")
    return int(found[1]), int(found[2])


@dataclass(frozen=True)
class DeadLetterSelection:
    """Either positions or a filter."""

    positions: tuple[tuple[int, int], ...]
    wanted: DeadLetterFilter

    async def letters(self, log: DeadLetterLog) -> AsyncIterator[DeadLetterRecord]:
        """Yield the selected dead letters that are not yet handled.

        Raises `LookupError` for a position without a dead letter, or one that was handled.
        """
        for partition, offset in self.positions:
            letter = await log.letter(partition, offset)
            handling = log.handling(letter)
            if handling is not None:
                raise LookupError(f"{letter.at} was {handling.did} already; leave it out")
            yield letter
        if not self.positions:
            async for letter in log.letters(self.wanted):
                yield letter


def choice(positions: list[str] | None, every: bool, filters: FilterOptions) -> DeadLetterSelection:
    """Return the selection of a command. Raises `typer.BadParameter`."""
    if not positions and not every:
        raise typer.BadParameter("name dead letters as PARTITION:OFFSET, or choose them with --all")
    if positions and (every or filters != FilterOptions()):
        raise typer.BadParameter("give either PARTITION:OFFSET or --all with filters, not both")
    named = dict.fromkeys(position(text) for text in positions or ())
    return DeadLetterSelection(tuple(named), filters.filter())
