"""`headstart topics`: the topics on the broker, compared with the catalogue."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cli.support.option_groups import CommandGroup, Only
from cli.support.options import (
    Json,
    KafkaOptions,
    KafkaPostgresOptions,
    ServiceOptions,
    SettingOptions,
)
from cli.support.output import counted, echo, put, show_json, show_table

app = CommandGroup(help="The topics: list, create, recreate, delete, describe; ACLs.")


class AclFormat(StrEnum):
    """For which server, and in which form, `topics acl` prints rights."""

    KAFKA = "kafka"
    STRIMZI = "strimzi"
    REDIS = "redis"
    POSTGRES = "postgres"


@app.command("list")
def list_topics(
    options: KafkaOptions,
    json: Json = False,
) -> None:
    """List every topic of the catalogue with its state on the broker.

    Example: headstart topics list --json
    """
    from topics.catalogue import TOPICS
    from topics.kafka.topic_states import describe_topics

    settings = options.read()
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
    replication: Annotated[int, typer.Option(min=1, help="Copies of each partition.")] = 1,
    *,
    options: Annotated[
        SettingOptions, Only("kafka", "kafka_config", "postgres", "redis", "data", "partitions")
    ],
    json: Json = False,
) -> None:
    """Create missing topics, and a log epoch if the log is new.

    Reads the epochs stored in Postgres and Redis, so that the new one is larger.

    Example: headstart topics create --kafka broker:9092 --partitions 32 --replication 3
    """
    from cli.support.times import now_ms
    from sinks.epochs import known_epochs, remember_epoch
    from sinks.redis.commands import commands_in_redis
    from topics.commands.log import begin_commands
    from topics.epoch import ensure_topics

    reading = options.load()
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
        echo(f"created {', '.join(created) or 'nothing: all topics exist'}; log epoch {epoch}")


@app.command("delete")
def delete(
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it, only list them.")] = False,
    discard_unprocessed: Annotated[
        bool,
        typer.Option("--discard-unprocessed", help="Also delete events that are not processed."),
    ] = False,
    *,
    options: KafkaPostgresOptions,
    json: Json = False,
) -> None:
    """Delete the topics of the log, to create them with another number of partitions.

    Deletes events, decisions, thresholds, shared models, notices, log epochs, the changelog and the
    consumer groups; commands and dead letters are kept. Export the learned state first: `headstart
    thresholds export FILE`. No export has shared models: they start from nothing, and the command
    first prints how many there are. Refuses while a worker runs, and while there are events that
    are not in the archive or not learned from; waits up to 20 s for an ended worker's session. See
    docs/how-to/partitions.md.

    Example: headstart topics delete --yes
    """
    from cli.system.topic_deletion import delete_log
    from topics.catalogue import OF_ONE_LOG
    from topics.kafka.admin import partition_counts
    from topics.models.log import count_models

    settings = options.read()
    models = asyncio.run(count_models(settings.kafka))
    if models:
        echo(restarting(models))
    if yes:
        found = asyncio.run(delete_log(settings, discard_unprocessed=discard_unprocessed))
    else:
        names = [topic.name for topic in OF_ONE_LOG]
        found = sorted(asyncio.run(partition_counts(settings.kafka, names)))
    if json:
        show_json({"deleted": found if yes else [], "found": found, "shared_models": models})
    elif yes:
        echo(f"deleted {', '.join(found) or 'nothing: none exists'}")
    else:
        echo(f"--yes deletes {', '.join(found) or 'nothing: none exists'}; nothing was deleted")


def restarting(models: int) -> str:
    """Return the warning of a deletion about this many shared models, at least one."""
    begin = "begins" if models == 1 else "begin"
    return (
        "warning: with headstart.models and headstart.decisions deleted, "
        f"{counted(models, 'shared model')} {begin} again from nothing; no export has shared models"
    )


@app.command("recreate")
def recreate(
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="A new folder for what is carried over [default: log-of-epoch-N in --data].",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it; without it, only print what would be done.")
    ] = False,
    *,
    options: ServiceOptions,
    json: Json = False,
) -> None:
    """Delete the topics of the log and create them again, with all that was learned.

    Stop the workers on every host first; executors go on, and what they emit waits in their
    spools. What was learned, shared models, and what no worker has processed are saved to FOLDER
    and written to the new topics, which have the same partitions, copies and settings. If it is
    interrupted, run it again. Then start the workers. See docs/how-to/recreate-topics.md.

    Examples: headstart topics recreate; headstart topics recreate --yes --to /backup/old-log
    """
    from cli.system.topic_recreation import describe_plan, plan, recreate_topics, result_lines

    settings = options.read()
    planned = plan(settings, to)
    if not yes:
        for line in describe_plan(planned):
            echo(line)
        if json:
            show_json({"done": False, **planned})
        return
    done = recreate_topics(settings, planned["folder"])
    for line in result_lines(done):
        echo(line)
    if json:
        import msgspec

        show_json({"done": True, **msgspec.to_builtins(done)})


@app.command("describe")
def describe(
    name: Annotated[str, typer.Argument(help="A topic of `headstart topics list`.")],
    *,
    options: KafkaOptions,
    json: Json = False,
) -> None:
    """Show a topic's contract and offsets; `held_back`: records behind open transactions.

    Example: headstart topics describe headstart.events
    """
    from settings.suggestions import did_you_mean
    from topics.catalogue import TOPICS
    from topics.kafka.topic_states import describe_topics

    topic = next((topic for topic in TOPICS if topic.name == name), None)
    if topic is None:
        known = ", ".join(topic.name for topic in TOPICS)
        nearest = did_you_mean(name, [topic.name for topic in TOPICS])
        raise LookupError(
            f"there is no topic {name!r} in the catalogue{nearest}; there are {known}"
        )
    settings = options.read()
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


@app.command("acl")
def acl(
    form: Annotated[
        AclFormat,
        typer.Option(
            "--format",
            help="kafka: kafka-acls.sh; strimzi: KafkaUsers; redis: ACL SETUSER; postgres: SQL.",
        ),
    ] = AclFormat.KAFKA,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="PROCESS", help="executor, operator or a worker [default: all]."),
    ] = None,
    user: Annotated[
        list[str] | None,
        typer.Option(metavar="PROCESS=NAME", help="Its user [default: headstart-PROCESS]."),
    ] = None,
    cluster: Annotated[str, typer.Option(help="For strimzi: name of the Kafka resource.")] = (
        "kafka"
    ),
    *,
    options: KafkaOptions,
    json: Json = False,
) -> None:
    """Print what each process may do, as ACLs for Kafka, Redis or Postgres; connects to nothing.

    A process is executor, a worker (episodes, thresholds, history, predictions, memory; spans if
    HEADSTART_SPANS_TOPIC is set) or operator, which runs the commands. Each has a user of its own;
    several may have the same. No password is printed or changed. See
    docs/how-to/permissions.md.

    Examples: headstart topics acl --kafka broker:9092 > acls.sh; headstart topics acl --format
    redis; headstart topics acl --user thresholds=CN=worker --user history=CN=worker
    """
    from cli.system.acl_output import checked_processes, printed_rights, users_of
    from deploy.access.rights import rights

    settings = options.read()
    users = users_of(user or ())
    found = rights(settings.spans_topic, checked_processes(only or ()))
    text = printed_rights(form, found, users, settings.kafka, cluster)
    if json:
        listed = [{"user": users[each.identity], **each._asdict()} for each in found]
        show_json({"format": form.value, "rights": listed, "text": text})
    else:
        for line in text.splitlines():
            put(line)
