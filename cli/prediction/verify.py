"""`headstart predict verify`: compares the shared models with a replay of the decisions."""

from __future__ import annotations

import asyncio

import typer

from cli.support.options import Json, KafkaRedisOptions, TenantOnly
from cli.support.output import FAILURE, echo, require_found, show_json, show_table


def verify(
    tenant: TenantOnly = None,
    *,
    options: KafkaRedisOptions,
    json: Json = False,
) -> None:
    """Replay headstart.decisions and compare the shared models, byte by byte.

    Compared are the newest state of each model in headstart.models and its snapshot in Redis, each
    with the replay up to its offset. Where retention has cut the log, the replay begins with the
    oldest state that is left. A version that is later than the log is a difference, and so is a
    snapshot of an earlier log epoch. Exit code 0: all that could be compared is equal; 1: something
    differs. It only reads, and joins no consumer group.

    Example: headstart predict verify --json
    """
    from replay.models.verify import verify_models
    from settings import operators_key
    from topics.epoch import read_epoch

    settings = options.read()

    async def run() -> list[dict[str, object]]:
        epoch, key = await read_epoch(settings.kafka), operators_key(settings)
        found = await verify_models(settings.kafka, settings.redis, epoch, key, tenant, echo)
        return [{**vars(each), "ok": each.ok} for each in found]

    found = asyncio.run(run())
    ok = all(each["ok"] for each in found)
    if json:
        show_json({"models": found, "ok": ok})
    else:
        columns = ("tenant", "workflow_type", "offset", "events", "stored", "served")
        show_table(columns, [[each[column] for column in columns] for each in found])
        for each in found:
            for why in each["why"]:  # type: ignore[attr-defined]
                echo(f"{each['tenant']}, {each['workflow_type']}: {why}")
        echo("everything that could be compared is equal" if ok else "they differ: see above")
    if not ok:
        raise typer.Exit(FAILURE)
    require_found(len(found), "model", tenant=tenant)
