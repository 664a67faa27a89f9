"""`headstart topics`: the topics on the broker, beside what they should be."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.support.options import Data, Json, Kafka, Partitions, Postgres, Redis
from cli.support.output import say, show_json, show_table

if TYPE_CHECKING:
    from settings import Settings

MEMBERS_S: Final = 20.0
"""Longer than the session of an ended worker (agents/health/stall_guard.py): it has to be over."""

app = typer.Typer(help="The topics: list, create, delete, describe.", no_args_is_help=True)


@app.command("list")
def list_topics(kafka: Kafka = None, data: Data = None, json: Json = False) -> None:
    """List every topic of the catalogue and what the broker has of it.

    Example: headstart topics list --json
    """
    from settings import read_settings
    from topics.catalogue import TOPICS
    from topics.kafka.admin import describe_topics

    settings = read_settings(kafka=kafka, data=data)
    states = asyncio.run(describe_topics(settings.kafka, [topic.name for topic in TOPICS]))
    rows = [
        {
            "name": topic.name,
            "exists": topic.name in states,
            "partitions": states[topic.name].partitions if topic.name in states else None,
            "records": sum(states[topic.name].end.values()) if topic.name in states else None,
            "cleanup": topic.cleanup,
        }
        for topic in TOPICS
    ]
    if json:
        show_json({"topics": rows})
    else:
        show_table(list(rows[0]), [list(row.values()) for row in rows])


@app.command("create")
def create(
    kafka: Kafka = None,
    postgres: Postgres = None,
    redis: Redis = None,
    data: Data = None,
    partitions: Partitions = None,
    replication: Annotated[int, typer.Option(min=1, help="Copies of each partition.")] = 1,
    json: Json = False,
) -> None:
    """Create the topics that are missing, and mint a log epoch where the log is new.

    Asks Postgres and Redis for the epochs they remember, so that the new one is larger.

    Example: headstart topics create --kafka broker:9092 --partitions 32 --replication 3
    """
    from cli.support.times import now_ms
    from settings import read_with_origins
    from sinks.epochs import known_epochs, remember_epoch
    from sinks.redis.commands import commands_in_redis
    from topics.commands.log import begin_commands
    from topics.epoch import ensure_topics

    reading = read_with_origins(
        kafka=kafka, postgres=postgres, redis=redis, data=data, partitions=partitions
    )
    settings = reading.settings

    async def run() -> tuple[list[str], int]:
        known = await known_epochs(settings.postgres, settings.redis)
        created, epoch = await ensure_topics(
            settings.kafka,
            partitions=settings.partitions,
            replication=replication,
            known=known,
            exact=reading.origins["partitions"] != "default",
        )
        await remember_epoch(settings.redis, epoch.number)
        await begin_commands(settings.kafka, commands_in_redis(settings.redis, now_ms()))
        return created, epoch.number

    created, epoch = asyncio.run(run())
    if json:
        show_json({"created": created, "epoch": epoch})
    else:
        say(f"created {', '.join(created) or 'nothing: all topics exist'}; log epoch {epoch}")


@app.command("delete")
def delete(
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete; without it they are only named.")
    ] = False,
    kafka: Kafka = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Delete the topics of the log that the broker has, to create them with other partitions.

    Events, thresholds, notices, log epochs and the changelog, with all that they hold; commands and
    dead letters stay. Save what was learned before: `headstart thresholds export FILE`. The
    consumer groups go, too. Refuses while a worker runs, for which it may wait 20 s. See
    docs/how-to/partitions.md.

    Example: headstart topics delete --yes
    """
    from settings import read_settings
    from topics.catalogue import EPISODES_GROUP, HISTORY_GROUP, OF_ONE_LOG, THRESHOLDS_GROUP
    from topics.kafka.admin import delete_groups, delete_topics, partition_counts

    settings = read_settings(kafka=kafka, data=data)
    names = [topic.name for topic in OF_ONE_LOG]

    async def run() -> list[str]:
        if not yes:
            return sorted(await partition_counts(settings.kafka, names))
        await _require_no_workers(settings)
        groups = (THRESHOLDS_GROUP, EPISODES_GROUP, HISTORY_GROUP)
        await delete_groups(settings.kafka, groups, MEMBERS_S)
        return await delete_topics(settings.kafka, names)

    found = asyncio.run(run())
    if json:
        show_json({"deleted": found if yes else [], "found": found})
    elif yes:
        say(f"deleted {', '.join(found) or 'nothing: none exists'}")
    else:
        say(f"--yes deletes {', '.join(found) or 'nothing: none exists'}; nothing was deleted")


async def _require_no_workers(settings: Settings) -> None:
    """Raise `RuntimeError` where workers take in the log, or the log ends with its broker."""
    from contextlib import suppress

    from console.inspection.workers import find_workers
    from topics.epoch import read_minted_epoch
    from topics.kafka.admin import TopicsMissing

    with suppress(TopicsMissing):
        if (await read_minted_epoch(settings.kafka))[0].volatile:
            raise RuntimeError(
                "the embedded broker's topics end with `headstart up`, and the next start creates "
                "them: stop it instead. Nothing was deleted"
            )
    workers = find_workers(settings.data)
    running = [f"{each.name} (process {each.pid})" for each in workers if each.running]
    if running:
        raise RuntimeError(
            f"workers run: {', '.join(running)}. Stop them first (with `up`: start it with "
            "--no-workers). Nothing was deleted"
        )


@app.command("describe")
def describe(
    name: Annotated[str, typer.Argument(help="A topic of `headstart topics list`.")],
    kafka: Kafka = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Show a topic's contract and its offsets; `held_back`: by transactions that are open.

    Example: headstart topics describe headstart.events
    """
    from settings import read_settings
    from settings.suggestions import did_you_mean
    from topics.catalogue import TOPICS
    from topics.kafka.admin import describe_topics

    topic = next((topic for topic in TOPICS if topic.name == name), None)
    if topic is None:
        known = ", ".join(topic.name for topic in TOPICS)
        nearest = did_you_mean(name, [topic.name for topic in TOPICS])
        raise LookupError(
            f"there is no topic {name!r} in the catalogue{nearest}; there are {known}"
        )
    settings = read_settings(kafka=kafka, data=data)
    state = asyncio.run(describe_topics(settings.kafka, [name])).get(name)
    described = {
        "name": topic.name,
        "holds": topic.holds,
        "key": topic.key,
        "schema": topic.schema,
        "configuration": topic.configuration(),
        "partitions": state.partitions if state else None,
        "begin": dict(state.begin) if state else None,
        "end": dict(state.end) if state else None,
        "held_back": state.held_back if state else None,
    }
    if json:
        show_json(described)
    else:
        show_table(("field", "value"), list(described.items()))
