"""Which dead letters a command means: by name, or all that its filters leave."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from cli.support.output import FAILURE, say
from cli.support.times import now_ms, parse_age

if TYPE_CHECKING:
    from topics.dead_letters.log import LetterLog
    from topics.dead_letters.messages import DeadLetterFilter, DeadLetterRecord

Group = Annotated[
    str | None, typer.Option(help="Only what this group refused: episodes, thresholds, history.")
]
Topic = Annotated[str | None, typer.Option(help="Only what came from this topic.")]
Reason = Annotated[str | None, typer.Option(help="Only where the reason contains this text.")]
Since = Annotated[
    str | None, typer.Option(metavar="AGE", help="Only what was refused since: 90s, 30m, 2h, 7d.")
]
At = Annotated[str, typer.Argument(metavar="PARTITION:OFFSET", help="As `list` shows it.")]
Positions = Annotated[
    list[str] | None, typer.Argument(metavar="PARTITION:OFFSET...", help="As `list` shows them.")
]
All = Annotated[bool, typer.Option("--all", help="All that the filters leave.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def wanted(
    group: str | None, topic: str | None, reason: str | None, since: str | None
) -> DeadLetterFilter:
    """Return the filters of a command. Raises `typer.BadParameter`."""
    from topics.dead_letters.messages import DeadLetterFilter

    if since is None:
        return DeadLetterFilter(group, topic, reason)
    return DeadLetterFilter(group, topic, reason, now_ms() - parse_age(since))


def position(text: str) -> tuple[int, int]:
    """Return (partition, offset) of a name. Raises `typer.BadParameter`."""
    found = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,18})", text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not PARTITION:OFFSET, as `list` shows it")
    return int(found[1]), int(found[2])


@dataclass(frozen=True)
class DeadLetterSelection:
    """Either names, or filters."""

    positions: tuple[tuple[int, int], ...]
    wanted: DeadLetterFilter

    async def letters(self, log: LetterLog) -> AsyncIterator[DeadLetterRecord]:
        """Yield the dead letters that are meant and not yet handled.

        Raises `LookupError` where a name names none.
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


def choice(
    positions: list[str] | None,
    every: bool,
    group: str | None,
    topic: str | None,
    reason: str | None,
    since: str | None,
) -> DeadLetterSelection:
    """Return what a command means. Raises `typer.BadParameter`."""
    filtered = any(each is not None for each in (group, topic, reason, since))
    if not positions and not every:
        raise typer.BadParameter("name dead letters as PARTITION:OFFSET, or choose them with --all")
    if positions and (every or filtered):
        raise typer.BadParameter("--all and its filters choose; leave them out, or the names")
    named = dict.fromkeys(position(text) for text in positions or ())
    return DeadLetterSelection(tuple(named), wanted(group, topic, reason, since))


def confirm(question: str, yes: bool) -> None:
    """Return where the answer is yes; end the command where it is not."""
    if yes:
        return
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        agreed = False
        say("")
    if not agreed:
        say("nothing is changed; --yes does not ask")
        raise typer.Exit(FAILURE)
