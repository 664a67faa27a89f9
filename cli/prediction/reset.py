"""`headstart predict reset`: deletes what executors of a tenant have learned together."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from cli.support.options import Json, KafkaRedisOptions, Tenant, Yes
from cli.support.output import FAILURE, confirm, echo, show_json
from cli.support.times import now_ms


def reset(
    workflow_type: Annotated[str, typer.Argument(help="The workflow type of the model.")],
    tenant: Tenant = "default",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Report the effect, and send nothing.")
    ] = False,
    yes: Yes = False,
    *,
    options: KafkaRedisOptions,
    json: Json = False,
) -> None:
    """Delete a shared model: the worker starts from nothing, and executors forget what they have.

    A record is sent to headstart.decisions, signed if HEADSTART_OPERATORS_KEY is set, and takes
    effect at its offset, also in a replay. What the model was learned from stays in that topic
    until its retention. Use it to purge a model, and after a change of HEADSTART_HASH_KEY. A
    snapshot in Redis with a version later than the log, which no worker would replace, is deleted.
    If there is no such model, nothing is sent, and the exit code is 1.

    Examples: headstart predict reset refund --tenant acme --dry-run;
    headstart predict reset refund --tenant acme --yes
    """
    from headstart.events.schema import new_id
    from headstart.keys import event_key
    from settings import operators_key
    from sinks.redis.models import delete_ahead
    from topics.epoch import read_epoch
    from topics.models.log import read_log_end, send_resets
    from topics.models.resets import reset_record

    settings = options.read()
    now, about = now_ms(), {"tenant": tenant, "workflow_type": workflow_type}

    async def send() -> tuple[int, str | None]:
        """Return the offset of the reset, and the version that was deleted from Redis."""
        epoch = await read_epoch(settings.kafka)
        record = reset_record(
            tenant, workflow_type, id=new_id(now), at_ms=now, partitions=epoch.partitions,
            operators_key=operators_key(settings),
        )  # fmt: skip
        end = (await read_log_end(settings.kafka)).of(event_key(tenant, workflow_type))
        ahead = await delete_ahead(settings.redis, tenant, workflow_type, end)
        (offset,) = await send_resets(settings.kafka, [record])
        return offset, None if ahead is None else "{}:{}".format(*ahead)

    if not asyncio.run(_is_known(settings.kafka, settings.redis, tenant, workflow_type)):
        if json:
            show_json({**about, "sent": False})
        echo(f"error: {tenant} has no shared model of {workflow_type}; nothing was sent")
        raise typer.Exit(FAILURE)
    offset = deleted = None
    if not dry_run:
        confirm(f"Forget the shared model of {workflow_type} of {tenant}?", yes)
        offset, deleted = asyncio.run(send())
    if json:
        show_json({**about, "sent": offset is not None, "offset": offset, "deleted": deleted})
    else:
        if deleted:
            echo(f"deleted from Redis: version {deleted}, which is later than the log")
        echo(f"the model of {workflow_type} of {tenant} {_effect(offset)}")


async def _is_known(kafka: str, redis: str, tenant: str, workflow_type: str) -> bool:
    """Return whether the model is served in Redis, or stored in the topic."""
    from headstart.keys import event_key
    from headstart.partitioner import partition_for_key
    from sinks.redis.models import is_served
    from topics.epoch import read_epoch
    from topics.models.log import read_models

    if await is_served(redis, tenant, workflow_type):
        return True
    partitions = (await read_epoch(kafka)).partitions
    place = partition_for_key(event_key(tenant, workflow_type), partitions)
    stored = await read_models(kafka, [place])
    return (tenant, workflow_type) in [(each.tenant, each.workflow_type) for each in stored]


def _effect(offset: int | None) -> str:
    if offset is None:
        return "would be reset; nothing was sent"
    return f"is reset at offset {offset}: executors forget it within seconds"
