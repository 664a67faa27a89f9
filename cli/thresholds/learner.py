"""`headstart learner`: assigns policies to contexts while workers run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.support.option_groups import CommandGroup
from cli.support.options import Json, KafkaOptions, KafkaRedisOptions, Limit, Since
from cli.support.output import echo, require_found, show_json, show_table
from cli.support.times import now_ms, parse_since
from cli.support.unknown_names import echo_notes, notes_on_names, workflow_type_in

if TYPE_CHECKING:
    from settings import Settings

app = CommandGroup(help="The policy of each context: choose, list.")

Pattern = Annotated[
    str,
    typer.Argument(help="key=value parts joined by /; a value may be *; * alone: all contexts."),
]
Tenant = Annotated[str | None, typer.Option(help="Only this tenant [default: all tenants].")]


@app.command("choose")
def choose(
    pattern: Pattern,
    policy: Annotated[
        str | None, typer.Argument(help="The policy, such as td or ema:alpha=.1.")
    ] = None,
    back: Annotated[bool, typer.Option("--back", help="Remove the pattern's choice.")] = False,
    tenant: Tenant = None,
    *,
    options: KafkaRedisOptions,
    json: Json = False,
) -> None:
    """Assign a policy to every context that matches all parts of a pattern.

    The most specific pattern applies; one for a tenant before one for all tenants. A context
    switches with its next outcome, and starts without state. --back is sent in any case, as workers
    may not have read a choice yet; if the table holds none, the exit code is 1. A control record is
    sent to every partition of headstart.events, signed if HEADSTART_OPERATORS_KEY is set. A tenant
    or workflow type of which Redis knows nothing gets a note (--json: `notes`).

    Examples: headstart learner choose workflow_type=refund ema:alpha=.1;
    headstart learner choose 'domain=retail/user_id=*' hops_target --tenant acme;
    headstart learner choose workflow_type=refund --back
    """
    from learners.policy import spec
    from learners.registry import policy as find
    from processing.control.learner_assignments import parts

    if (policy is None) is not back:
        raise typer.BadParameter("name a policy, or give --back")
    parts(pattern)
    learner = None if policy is None else spec(find(policy))
    settings = options.read()
    held = asyncio.run(_holders(settings.kafka, pattern, tenant)) if back else 0
    sent = send_choice(settings, pattern, learner, tenant)
    notes = [] if back else notes_on_names(settings, tenant, workflow_type_in(pattern))
    if json:
        show_json({**sent, "notes": notes})
    else:
        echo(f"{pattern}: {learner or 'as without a choice'}, in {len(sent['offsets'])} partitions")
    echo_notes(notes)
    if back:
        scope = f"tenant {tenant!r}" if tenant else "every tenant"
        require_found(held, f"choice for {pattern} of {scope} in the table", always=True)


async def _holders(kafka: str, pattern: str, tenant: str | None) -> int:
    """Return the number of partitions whose table holds a choice for exactly this pattern."""
    from processing.control.learner_assignments import choices_in
    from replay.log.live_table import read_whole_table
    from topics.epoch import read_epoch

    tables = await read_whole_table(kafka, await read_epoch(kafka))
    return sum(
        (each.pattern, each.tenant) == (pattern, tenant) and each.learner is not None
        for table in tables.values()
        for each in choices_in(table.rows)
    )


def send_choice(
    settings: Settings, pattern: str, learner: str | None, tenant: str | None
) -> dict[str, Any]:
    """Send a choice to every partition; return its fields and offsets.

    Raises `BrokerUnreachable`, `TopicsMissing` and `NotEverywhere`.
    """
    from headstart.events.schema import new_id
    from settings import operators_key
    from topics.control.log import send_control
    from topics.control.messages import LearnerChoice

    choice = LearnerChoice(new_id(), now_ms(), pattern, learner, tenant)
    offsets = asyncio.run(send_control(settings.kafka, choice, operators_key(settings)))
    return {"id": choice.id, "pattern": pattern, "learner": learner, "offsets": offsets}


@app.command("list")
def list_choices(
    since: Since = None,
    limit: Limit = 1000,
    *,
    options: KafkaOptions,
    json: Json = False,
) -> None:
    """List the choices in force, from each partition of the live table.

    Example: headstart learner list --json
    """
    from replay.log.live_table import read_whole_table
    from topics.epoch import read_epoch

    settings, begin = options.read(), parse_since(since)

    async def run() -> list[dict[str, Any]]:
        tables = await read_whole_table(settings.kafka, await read_epoch(settings.kafka))
        return _held({number: table.rows for number, table in tables.items()})

    found = [each for each in asyncio.run(run()) if each["at"] >= begin][:limit]
    if json:
        show_json({"default": settings.learner, "choices": found})
    else:
        columns = ("pattern", "tenant", "learner", "partitions")
        show_table(columns, [[each[column] for column in columns] for each in found])
        echo(f"elsewhere: {settings.learner}")
    require_found(len(found), "choice", since=since)


def _held(tables: dict[int, dict[bytes, bytes]]) -> list[dict[str, Any]]:
    """Return the choices in rows, each with the number of partitions that have it."""
    from processing.control.learner_assignments import choices_in

    counts: dict[Any, int] = {}
    for rows in tables.values():
        for choice in choices_in(rows):
            if choice.learner is not None:
                counts[choice] = counts.get(choice, 0) + 1
    return [
        {
            "pattern": choice.pattern,
            "tenant": choice.tenant,
            "learner": choice.learner,
            "at": choice.at,
            "partitions": count,
        }
        for choice, count in sorted(counts.items(), key=lambda each: each[0].pattern)
    ]
