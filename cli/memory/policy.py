"""`headstart memory policy`: the versions of a tenant's ranking policy."""

from __future__ import annotations

import asyncio
from typing import Any

from cli.support.options import Json, Limit, PostgresOptions, Tenant
from cli.support.output import echo, require_found, show_json, show_table
from cli.support.times import iso_moment


def policy(
    tenant: Tenant = "default",
    limit: Limit = 10,
    *,
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """Show the versions of the ranking policy, newest first, and which one is active.

    Each version has learned from finished runs, each of which was asked for first. right: how right
    the expected course was, 0 to 1 (half how alike, half whether equal), by the policy, by
    similarity, and without a search. A policy is active while its gain is over its standard error;
    else similarity ranks. Exit code 1: no version yet; the first comes with 64 finished runs.

    Examples: headstart memory policy --tenant acme; headstart memory policy --limit 1 --json
    """
    from memory.store.policies import policy_versions
    from sinks.postgres.reading import reading_postgres

    settings = options.read()

    async def run() -> list[dict[str, Any]]:
        async with reading_postgres(settings.postgres) as connection:
            return await policy_versions(connection, tenant, limit)

    found = asyncio.run(run())
    active = next((each["version"] for each in found if each["status"] == "active"), None)
    if json:
        show_json({"tenant": tenant, "active": active, "versions": found})
    elif found:
        columns = ("version", "status", "runs", "right", "similarity", "usual", "gain", "+-",
                   "trained")  # fmt: skip
        show_table(columns, map(_row, found))
        ranks = "similarity ranks" if active is None else f"version {active} ranks"
        echo(f"{ranks} the cases of {tenant}")
    if not found:
        echo("the first version comes with 64 finished runs that have a query and a call")
    require_found(len(found), "version of the policy", tenant=tenant)


def _row(version: dict[str, Any]) -> list[Any]:
    figures = version["metrics"]
    return [
        version["version"],
        version["status"],
        f"{figures['runs']:,}",
        f"{figures['policy']:.3f}",
        f"{figures['similarity']:.3f}",
        f"{figures['usual']:.3f}",
        f"{figures['gain']:+.4f}",
        f"{figures['standard_error']:.4f}",
        iso_moment(version["trained_at"]),
    ]
