"""`headstart dead-letters`: lists, shows, replays and drops dead letters."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.data.dead_letter_selection import (
    All,
    At,
    DeadLetterSelection,
    FilterOptions,
    Positions,
    choice,
    position,
)
from cli.data.dead_letter_view import fields, page, row, with_value
from cli.support.option_groups import CommandGroup
from cli.support.options import Json, KafkaOptions, Limit, Yes
from cli.support.output import (
    FAILURE,
    confirm,
    echo,
    printable,
    require_found,
    show_json,
    show_table,
)
from cli.support.times import now_ms

if TYPE_CHECKING:
    from topics.dead_letters.log import DeadLetterLog
    from topics.dead_letters.messages import DeadLetterRecord, OutgoingRecord

app = CommandGroup(help="Records that workers refused: list, show, replay, drop.")


@app.command("list")
def list_letters(
    limit: Limit = 20,
    handled: Annotated[
        bool, typer.Option("--handled", help="Include those that were replayed or dropped.")
    ] = False,
    *,
    filters: FilterOptions,
    options: KafkaOptions,
    json: Json = False,
) -> None:
    """List dead letters, newest first, except those that were replayed or dropped.

    An event that breaks the contract has two: each consumer group refuses it separately.

    Example: headstart dead-letters list --group episodes --reason workflow_id --since 2h
    """
    from topics.dead_letters.log import DeadLetterLog

    wanted = filters.filter()
    settings = options.read()

    async def run() -> tuple[DeadLetterLog, list[DeadLetterRecord], int]:
        log = await DeadLetterLog.open(settings.kafka)
        newest: deque[DeadLetterRecord] = deque(maxlen=limit)
        total = 0
        async for letter in log.letters(wanted, handled=handled):
            newest.append(letter)
            total += 1
        return log, list(reversed(newest)), total

    log, letters, total = asyncio.run(run())
    if json:
        found = [fields(letter, log.handling(letter)) for letter in letters]
        show_json({"dead_letters": found, "total": total})
    else:
        columns = ("at", "refused", "group", "source", "bytes", "reason")
        show_table(columns, [list(row(each, log.handling(each)).values()) for each in letters])
        echo(f"{len(letters)} of {total}, newest first")
    require_found(total, "dead letter", **vars(filters))


@app.command("show")
def show(
    at: At,
    raw: Annotated[bool, typer.Option("--raw", help="Print only the original bytes.")] = False,
    *,
    options: KafkaOptions,
    json: Json = False,
) -> None:
    """Show one dead letter: the reason, where it came from, and the original bytes.

    Examples: headstart dead-letters show 0:12; headstart dead-letters show 0:12 --raw > event.json
    """
    from topics.dead_letters.log import DeadLetterLog

    if raw and json:
        raise typer.BadParameter("--raw prints the bytes and nothing else, --json an object")
    place = position(at)
    settings = options.read()

    async def run() -> tuple[DeadLetterLog, DeadLetterRecord]:
        log = await DeadLetterLog.open(settings.kafka)
        return log, await log.letter(*place)

    log, letter = asyncio.run(run())
    if raw:
        sys.stdout.buffer.write(letter.value)
        sys.stdout.buffer.flush()
    elif json:
        show_json(with_value(letter, log.handling(letter)))
    else:
        show_table(("field", "value"), page(letter, log.handling(letter)))
        print(f"\n{printable(letter.value)}", flush=True)


@app.command("replay")
def replay(
    positions: Positions = None,
    every: All = False,
    file: Annotated[
        Path | None, typer.Option(help="Replay the corrected bytes in this file instead.")
    ] = None,
    yes: Yes = False,
    *,
    filters: FilterOptions,
    options: KafkaOptions,
    json: Json = False,
) -> None:
    """Send dead letters to headstart.events again, each only for the group that refused it.

    Those that would be refused again are left unchanged, and the exit code is 1, as it is when
    there is nothing to replay. To correct an event for both groups, give both of its dead letters
    with --file.

    Examples: headstart dead-letters replay 0:12 0:13 --file event.json;
    headstart dead-letters replay --all --reason "belongs to partition" --yes
    """
    from replay.files.input import read_input

    chosen = choice(positions, every, filters)
    if file is not None and every:
        raise typer.BadParameter("--file corrects one event, --all means many")
    corrected = None if file is None else read_input(file)
    settings = options.read()
    log, count = asyncio.run(_open_and_count(settings.kafka, chosen, corrected is not None))
    if count:
        confirm(_question("replay", count), yes)
    left = asyncio.run(_replay(settings.kafka, log, chosen, corrected)) if count else []
    for at, why in left:
        echo(f"{at} is not replayed: {why}")
    if json:
        refused = [{"at": at, "reason": why} for at, why in left]
        show_json({"replayed": count - len(left), "not_replayed": refused})
    else:
        echo(f"{count - len(left)} replayed, {len(left)} not")
    if left:
        raise typer.Exit(FAILURE)
    require_found(count, "dead letter that waits", always=True, **vars(filters))


@app.command("drop")
def drop(
    positions: Positions = None,
    every: All = False,
    yes: Yes = False,
    *,
    filters: FilterOptions,
    options: KafkaOptions,
    json: Json = False,
) -> None:
    """Mark dead letters as dropped: `list` hides them from then on.

    The bytes stay on the broker until the topic's retention deletes them; `list --handled` shows
    them. Exit code 1 if there is nothing to drop.

    Examples: headstart dead-letters drop 0:12; headstart dead-letters drop --all --since 1h --yes
    """

    chosen = choice(positions, every, filters)
    settings = options.read()
    log, count = asyncio.run(_open_and_count(settings.kafka, chosen, one_event=False))
    if count:
        confirm(_question("drop", count), yes)
        asyncio.run(_drop(settings.kafka, log, chosen))
    if json:
        show_json({"dropped": count})
    else:
        echo(f"{count} dropped")
    require_found(count, "dead letter that waits", always=True, **vars(filters))


def _question(do: str, count: int) -> str:
    return f"{do} {count} dead letter{'' if count == 1 else 's'}?"


async def _open_and_count(
    kafka: str, chosen: DeadLetterSelection, one_event: bool
) -> tuple[DeadLetterLog, int]:
    """Open the log and count the selection; `one_event`: it must have one event as its source."""
    from topics.dead_letters.log import DeadLetterLog

    log = await DeadLetterLog.open(kafka)
    count, sources = 0, set()
    async for letter in chosen.letters(log):
        count += 1
        if one_event:
            sources.add(letter.source)
    if len(sources) > 1:
        raise ValueError("--file corrects one event; these dead letters come from several")
    return log, count


async def _replay(
    kafka: str, log: DeadLetterLog, chosen: DeadLetterSelection, corrected: bytes | None
) -> list[tuple[str, str]]:
    """Replay dead letters; return (position, reason) of those that cannot be replayed."""
    from processing.dead_letter_replay import NotReplayable, replay_of
    from topics.dead_letters.log import SENT_AT_ONCE, DeadLetterSender
    from topics.epoch import read_epoch

    epoch = await read_epoch(kafka)
    left: list[tuple[str, str]] = []
    async with DeadLetterSender(kafka) as sender:
        async for some in _by(SENT_AT_ONCE, chosen.letters(log)):
            at = now_ms()
            replays: list[tuple[DeadLetterRecord, OutgoingRecord]] = []
            for letter in some:
                try:
                    outgoing = replay_of(
                        letter,
                        corrected,
                        epoch=epoch.number,
                        partitions=epoch.partitions,
                        now_ms=at,
                    )
                except NotReplayable as error:
                    left.append((letter.at, str(error)))
                else:
                    replays.append((letter, outgoing))
            await sender.replay(replays, at)
    return left


async def _drop(kafka: str, log: DeadLetterLog, chosen: DeadLetterSelection) -> None:
    from topics.dead_letters.log import SENT_AT_ONCE, DeadLetterSender

    async with DeadLetterSender(kafka) as sender:
        async for some in _by(SENT_AT_ONCE, chosen.letters(log)):
            await sender.drop(some, now_ms())


async def _by(
    size: int, letters: AsyncIterator[DeadLetterRecord]
) -> AsyncIterator[list[DeadLetterRecord]]:
    """Yield dead letters in lists of at most `size`."""
    some: list[DeadLetterRecord] = []
    async for letter in letters:
        some.append(letter)
        if len(some) == size:
            yield some
            some = []
    if some:
        yield some
