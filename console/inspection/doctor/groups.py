"""Whether a member of each consumer group takes in what waits."""

from __future__ import annotations

from console.inspection.doctor.findings import WRONG, Finding
from console.inspection.lag import Log, ask_stored, lags
from console.inspection.partition_owners import without_owner
from console.inspection.services import AskedPostgres


async def check_groups(kafka: str, postgres: str) -> list[Finding]:
    """Return what no worker takes in.

    Whether broker and Postgres answer is said by others: where one does not, nothing is found.
    """
    try:
        async with AskedPostgres(postgres) as asked:
            log = await Log(kafka).ask()
            stored = await ask_stored(await asked.connection(), log.epoch)
    except Exception:
        return []
    found = without_owner(lags(log, stored), log.groups)
    return [Finding("groups", WRONG, each.what, each.remedy) for each in found]
