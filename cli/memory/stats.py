"""`headstart memory stats`: what the memory holds, and how far it is."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from cli.support.options import Json, Limit, PostgresOptions, TenantOnly
from cli.support.output import percent, require_found, show_json, show_table
from cli.support.times import iso_moment

_RANKED: Final = ("concepts", "domains", "tools", "agents")


def stats(
    tenant: TenantOnly = None,
    limit: Limit = 10,
    *,
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """Show the statistics of the memory: episodes, outcomes, concepts, models, lag.

    success_rate is of the runs that have ended; costs are milliseconds that wrong guesses wasted.
    Episodes of users whose memory is off are stored, so they count. Related concepts are in over
    20 % of a tenant's episodes with a concept together. Models, missing vectors, lag and bytes are
    those of all tenants. `--limit`: names of each kind.

    Examples: headstart memory stats; headstart memory stats --tenant acme --json
    """
    from memory.store.reading import memory_stats
    from sinks.postgres.reading import reading_postgres

    settings = options.read()

    async def run() -> dict[str, Any]:
        async with reading_postgres(settings.postgres) as connection:
            return await memory_stats(connection, tenant, limit)

    found = asyncio.run(run())
    if json:
        show_json(found)
    else:
        show_table(("figure", "value"), _rows(found))
    require_found(found["total_episodes"], "episode", tenant=tenant)


def _rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [
        ("episodes", f"{found['total_episodes']:,} of {found['events']:,.0f} events"),
        ("with a query", f"{found['with_query']:,}, {found['queries']:,} different"),
        ("success rate", percent(found["success_rate"]) or "no run has ended"),
        ("average confidence", _number(found["average_confidence"])),
        ("average reward", _number(found["average_reward"])),
        ("average duration", _number(found["average_duration_ms"], " ms")),
        ("wasted by wrong guesses", _number(found["total_cost_ms"], " ms")),
        ("outcomes", _counts(found["outcomes"])),
    ]
    if found["first_at"] is not None:
        span = f"{iso_moment(found['first_at'])} to {iso_moment(found['last_at'])}"
        rows.append(("from, to", span))
    for kind in _RANKED:
        rows.append((f"{kind} ({found[f'total_{kind}']:,})", _counts(found[f"most_common_{kind}"])))
    if found["related_concepts"]:
        rows.append(("related concepts", ", ".join(map(_related, found["related_concepts"]))))
    for model in found["models"]:
        missing = f", {model['missing']:,} of {model['of']:,} missing" if "of" in model else ""
        rows.append((f"model {model['name']}", f"{model['state']}{missing}"))
    if not found["vectors"]:
        rows.append(("vectors", "none: the database has no pgvector 0.8.4"))
    waiting = f"{found['outbox_rows']:,}, the oldest for {found['outbox_oldest_s']:.1f} s"
    rows.append(("waiting in the outbox", waiting))
    rows.append(("on disk", f"{found['bytes'] / 1e6:,.1f} MB"))
    return rows


def _number(value: float | None, unit: str = "") -> str:
    if value is None:
        return "unknown"
    return f"{value:,.0f}{unit}" if value >= 1_000 else f"{value:.3g}{unit}"  # never 1.49e+04


def _related(pair: dict[str, Any]) -> str:
    return f"{pair['a']} and {pair['b']} {pair['share']:.0%}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())
