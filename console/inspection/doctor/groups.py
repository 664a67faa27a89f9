"""Checks that a member of each consumer group reads the partitions in which records wait."""

from __future__ import annotations

from console.inspection.doctor.broker import LogTopics
from console.inspection.doctor.findings import ERROR, Finding
from console.inspection.lag import ask_groups, ask_stored, lags
from console.inspection.partition_owners import without_owner
from console.inspection.services import AskedPostgres
from headstart.kafka_producer import BrokerUnreachable


async def check_groups(
    kafka: str, postgres: str, topics: LogTopics, spans_topic: str = ""
) -> list[Finding]:
    """Return the partitions that no worker reads although records wait in them.

    `spans_topic`: the topic that the worker `spans` reads, or empty.

    If broker or Postgres does not answer, other checks report it and this one returns nothing.
    """
    try:
        async with AskedPostgres(postgres) as asked:
            log = await ask_groups(kafka, topics.epoch, topics.states, spans_topic=spans_topic)
            stored = await ask_stored(await asked.connection(), log.epoch)
        unowned = list(without_owner(lags(log, stored), log.groups))
    except BrokerUnreachable as error:
        if error.trouble is None:
            return []
        return [Finding("groups", ERROR, error.trouble.what, error.trouble.remedy)]
    except Exception:
        return []
    return [Finding("groups", ERROR, each.what, each.remedy) for each in unowned]
