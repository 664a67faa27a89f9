"""`headstart memory correct`: corrects one memory of a user, by an event."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.memory.list_ import User
from cli.support.options import Json, KafkaPostgresOptions, Tenant
from cli.support.output import FAILURE, echo, show_json

if TYPE_CHECKING:
    from memory.episodes.record import Episode
    from settings import Settings

_LOOK_S: Final = 0.2
_TEXTS: Final = ("query", "response")
Many = list[str] | None


def correct(
    name: Annotated[str, typer.Argument(metavar="ID", help="Id of the memory, or a workflow id.")],
    user: User,
    tenant: Tenant = "default",
    query: Annotated[str | None, typer.Option(help="What was asked.")] = None,
    response: Annotated[str | None, typer.Option(help="What was answered.")] = None,
    outcome: Annotated[
        str | None, typer.Option(help="success, failure, partial or aborted.")
    ] = None,
    concept: Annotated[Many, typer.Option(help="The concepts; repeat for more.")] = None,
    domain: Annotated[Many, typer.Option(help="The domains; repeat for more.")] = None,
    insight: Annotated[Many, typer.Option(help="The insights; repeat for more.")] = None,
    clear: Annotated[
        Many, typer.Option(help="Remove query, response, concepts, domains or insights.")
    ] = None,
    wait: Annotated[
        float, typer.Option(min=0.0, help="Seconds to wait for the memory worker.")
    ] = 30.0,
    *,
    options: KafkaPostgresOptions,
    json: Json = False,
) -> None:
    """Correct a memory of a user: what was asked, answered, how it ended, what was noted.

    The correction is an event of the run (user_feedback with data.correction); the memory worker
    makes the episode again from all its events, also in a rebuild. Only a memory of this user is
    corrected. What was said before stays in the stored events: `headstart memory delete` erases.
    Exit code 1: there is no such memory, or the worker has not applied it within --wait seconds.

    Examples: headstart memory correct refund-4711 --tenant acme --user u7 --outcome failure;
    headstart memory correct refund-4711 --user u7 --query "cancel my order" --clear response
    """
    from cli.support.identifiers import require_names
    from memory.episodes.corrections import InvalidCorrection, require_correction

    require_names(user=user)
    given = {
        "query": query, "response": response, "outcome": outcome, "concepts": concept,
        "domains": domain, "insights": insight,
    }  # fmt: skip
    changes: dict[str, Any] = {key: value for key, value in given.items() if value}
    changes |= {each: None if each in _TEXTS else [] for each in clear or ()}
    try:
        require_correction(changes)
    except InvalidCorrection as error:
        raise typer.BadParameter(str(error)) from error
    asyncio.run(_correct(options.read(), tenant, user, name, changes, wait, json=json))


async def _correct(
    settings: Settings, tenant: str, user: str, name: str, changes: dict[str, Any], wait: float,
    *, json: bool,
) -> None:  # fmt: skip
    from headstart.kafka_producer import require_broker
    from memory.users.client import UserMemory

    memory = UserMemory(settings.postgres, settings.kafka, tenant=tenant, user_id=user)
    await memory.show(name)
    await require_broker(settings.kafka)
    event = await memory.correct(name, **changes)
    echo(f"correction {event['id']} of {event['workflow_id']} is sent")
    episode = await _applied(memory, name, event, wait)
    if json:
        found = {"event": event, "applied": episode is not None}
        show_json(found)
    if episode is None:
        echo(
            f"error: sent, but the memory worker has not applied it within {wait:g} s; it does "
            "when it runs: `headstart status`"
        )
        raise typer.Exit(FAILURE)
    echo(f"the memory of {episode.workflow_id} is corrected: {', '.join(changes)}")


async def _applied(memory: Any, name: str, event: dict[str, Any], wait: float) -> Episode | None:
    """Return the episode once it was made again with the correction; None after `wait` seconds."""
    from memory.users.corrections import includes

    until = time.monotonic() + wait
    while True:
        episode: Episode = await memory.show(name)
        if includes(episode, event):
            return episode
        if time.monotonic() >= until:
            return None
        await asyncio.sleep(_LOOK_S)
