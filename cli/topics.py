"""`headstart topics`: the topics on the broker, beside what they should be."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from cli.options import Data, Json, Kafka, Partitions, Postgres, Redis
from cli.output import say, show_json, show_table

app = typer.Typer(help="The topics: list, create, describe.", no_args_is_help=True)


@app.command("list")
def list_topics(kafka: Kafka = None, data: Data = None, json: Json = False) -> None:
    """List every topic of the catalogue and what the broker has of it.

    Example: headstart topics list --json
    """
    from settings import read_settings
    from topics.admin import describe_topics
    from topics.catalogue import TOPICS

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
    from cli.times import now_ms
    from settings import read_with_origins
    from sinks.commands import remembered_by
    from sinks.epochs import known_epochs, remember_epoch
    from topics.command_log import begin_commands
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
        await begin_commands(settings.kafka, remembered_by(settings.redis, now_ms()))
        return created, epoch.number

    created, epoch = asyncio.run(run())
    if json:
        show_json({"created": created, "epoch": epoch})
    else:
        say(f"created {', '.join(created) or 'nothing: all topics exist'}; log epoch {epoch}")


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
    from settings.nearest import did_you_mean
    from topics.admin import describe_topics
    from topics.catalogue import TOPICS

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
