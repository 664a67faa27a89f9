"""`headstart events`: the events on the log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from cli.support.option_groups import CommandGroup
from cli.support.options import Json, KafkaOptions, Limit, Since
from cli.support.output import put_json, require_found, show_json
from cli.support.times import parse_since

if TYPE_CHECKING:
    from topics.kafka.topic_states import TopicState

app = CommandGroup(help="The events on the log.")


@app.callback()
def events() -> None:
    """The events on the log."""


@app.command("tail")
def tail(
    since: Since = None,
    limit: Limit = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    *,
    options: KafkaOptions,
    json: Json = False,
) -> None:
    """Print the newest records of headstart.events, one event per line, in order of emission.

    Joins no group and commits nothing. --json prints all events as one object at the end.

    Examples: headstart events tail --limit 3; headstart events tail -f | jq .event_type
    """

    settings = options.read()
    if follow and json:
        raise typer.BadParameter("--json prints one object at the end, --follow has no end")
    shown = asyncio.run(_tail(settings.kafka, limit, parse_since(since), follow, quiet=json))
    if json:
        show_json({"events": shown})
    if not follow:
        require_found(len(shown), "event", since=since)


async def _tail(kafka: str, limit: int, since: int, follow: bool, *, quiet: bool) -> list[object]:
    from topics.catalogue import EVENTS
    from topics.kafka.reader import read_records, topic_state

    state = await topic_state(kafka, EVENTS.name)
    last = sorted(
        [each for each in await _newest(kafka, state, limit) if each.timestamp >= since],
        key=lambda record: (record.timestamp, record.partition, record.offset),
    )
    newest = [(event, record.timestamp) for record in last for event in _events(record.value)][
        -limit:
    ]
    shown = [event for event, _ in sorted(newest, key=_emitted)]
    if quiet:
        return shown
    for event in shown:
        put_json(event)
    if follow:
        async for record in read_records(kafka, EVENTS.name, state.end):
            for event in () if _is_control(record) else _events(record.value):
                put_json(event)
    return shown


def _is_control(record: Any) -> bool:
    """Return whether a record is a control record, which this command does not show."""
    from topics.control.messages import CONTROL_HEADER

    return any(name == CONTROL_HEADER for name, _value in record.headers)


async def _newest(kafka: str, state: TopicState, limit: int) -> list[Any]:
    """Return the last `limit` records of each partition, or all if there are fewer.

    Transaction markers take offsets too, so it starts further back until there are enough records.
    """
    from topics.kafka.reader import read_records

    found: dict[int, list[Any]] = {}
    reach, wanted = limit, dict(state.end)
    while wanted:
        begin = {p: max(state.begin[p], end - reach) for p, end in wanted.items()}
        found.update({p: [] for p in wanted})
        async for record in read_records(kafka, state.name, begin, wanted):
            if not _is_control(record):
                found[record.partition].append(record)
        wanted = {
            p: end
            for p, end in wanted.items()
            if len(found[p]) < limit and begin[p] > state.begin[p]
        }
        reach *= 4
    return [record for records in found.values() for record in records[-limit:]]


def _emitted(shown: tuple[object, int]) -> tuple[int, str]:
    """Return the sort key that orders events across partitions by emission.

    The event's time, else that of its record (Unix ms); then its id, which increases within a
    process.
    """
    event, at = shown
    fields = event if isinstance(event, dict) else {}
    own, id = fields.get("timestamp"), fields.get("id")
    return own if isinstance(own, int) else at, id if isinstance(id, str) else ""


def _events(value: bytes | None) -> list[object]:
    try:
        decoded = orjson.loads(value or b"null")
    except orjson.JSONDecodeError:
        return [{"undecodable": repr((value or b"")[:200])}]
    return decoded if isinstance(decoded, list) else [decoded]
