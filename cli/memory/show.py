"""`headstart memory show`: one episode, whole."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.support.options import Json, PostgresOptions, Tenant
from cli.support.output import require_found, show_json, show_table
from cli.support.times import iso_moment
from memory.episodes.hashes import id_text

if TYPE_CHECKING:
    from memory.episodes.record import Episode

_STATES = {
    "quarantined": "not retrieved (`headstart memory quarantine`)",
    "merged": "counted by an equal run, whose texts these are",
    "pruned": "not retrieved; beyond a limit of `headstart memory prune`, packed events are left",
}
"""What is said of an episode that is not live."""


def show(
    name: Annotated[str, typer.Argument(metavar="ID", help="Id of an episode, or a workflow id.")],
    tenant: Tenant = "default",
    *,
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """Show the episode of ID: query, calls with arguments, outcome, reward.

    `state` says why one is not retrieved: it is quarantined, merged into an equal run, or pruned.
    A pruned one is found by its id only, as `headstart memory list` prints it.

    ID: as the commands of the memory print it, 0x and 16 hexadecimal digits, or the decimal number.
    A negative number follows two dashes and a space, as the last of the line.

    Examples: headstart memory show refund-4711 --tenant acme --json;
    headstart memory show 0x00c1f3a55d20b7e4 --tenant acme
    """
    from memory.store.reading import find_episodes, states_of
    from sinks.postgres.reading import reading_postgres

    settings = options.read()

    async def run() -> list[tuple[Episode, str]]:
        async with reading_postgres(settings.postgres) as connection:
            episodes = await find_episodes(connection, tenant, name)
            states = await states_of(connection, tenant, [each.id for each in episodes])
            return [(each, states[each.id]) for each in episodes if each.id in states]

    found = asyncio.run(run())
    if json:
        show_json({"episodes": [_fields(each) | {"state": state} for each, state in found]})
    else:
        for episode, state in found:
            show_table(("field", "value"), [*_rows(episode), *_state_rows(state)])
    require_found(len(found), f"episode {name}", tenant=tenant)


def _fields(episode: Episode) -> dict[str, Any]:
    calls = [
        {"tool": call.tool, "arguments": call.arguments, "success": call.success}
        for call in episode.calls
    ]
    return {**episode._asdict(), **_ids(episode), "calls": calls, "writer": episode.writer}


def _ids(episode: Episode) -> dict[str, Any]:
    references = tuple(map(id_text, episode.reference_ids))
    return {"id": id_text(episode.id), "reference_ids": references}


def _state_rows(state: str) -> list[tuple[str, object]]:
    return [("state", f"{state}: {_STATES[state]}")] if state in _STATES else []


def _rows(episode: Episode) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    for field, value in {**episode._asdict(), **_ids(episode)}.items():
        if field in ("started", "ended"):
            rows.append((field, iso_moment(value)))
        elif field == "calls":
            rows += [
                ("call" + (" (failed)" if call.success is False else ""),
                 f"{call.tool} {call.arguments}")
                for call in episode.calls
            ]  # fmt: skip
        elif value not in (None, (), {}):
            shown = ", ".join(map(str, value)) if isinstance(value, tuple) else value
            rows.append((field, shown))
    return rows
