"""`headstart contexts`: the contexts with their counts."""

from __future__ import annotations

import asyncio
from typing import Any

from cli.support.options import Json, KafkaRedisOptions, Limit, Since, TenantOnly, WorkflowTypeOnly
from cli.support.output import echo, percent, require_found, show_json, show_table
from cli.support.times import parse_since
from cli.support.unreadable import described, report_unreadable
from cli.thresholds.learned_times import LearnedTimes, read_learned_times


def contexts(
    tenant: TenantOnly = None,
    workflow_type: WorkflowTypeOnly = None,
    since: Since = None,
    limit: Limit = 100,
    *,
    options: KafkaRedisOptions,
    json: Json = False,
) -> None:
    """List contexts with their counts, most recently learned first.

    FP: share of started guesses that were wrong; FN: share of guesses not started that were right.
    saved, wasted: seconds. --json prints all "metrics" of `thresholds show --json`.

    last is exact to five minutes, or a range for outcomes after a pause of the workers, for which
    the broker is asked. --since keeps every context that may have learned since then.

    Example: headstart contexts --tenant acme --since 1h --limit 20
    """
    from sinks.redis.queries import UnreadableFields, served_thresholds

    settings = options.read()
    begin = parse_since(since)
    unreadable: list[UnreadableFields] = []

    async def run() -> tuple[list[dict[str, Any]], LearnedTimes]:
        served = served_thresholds(settings.redis, tenant, unreadable=unreadable)
        counted = [
            _counted(each)
            async for each in served
            if workflow_type in {None, each["workflow_type"]}
        ]
        times = await read_learned_times(settings.kafka)
        latest = [each | {"latest": times.latest(each)} for each in counted]
        return [each for each in latest if each["latest"] >= begin], times

    found, times = asyncio.run(run())
    found.sort(key=lambda each: (-each["latest"], -each["at"], each["path"]))
    if json:
        more = {"unreadable": described(unreadable)} if unreadable else {}
        show_json({"contexts": found[:limit], "total": len(found), **more})
    else:
        _show(found, limit, times)
        report_unreadable(unreadable)
    count = len(found) + len(unreadable)
    require_found(count, "context", tenant=tenant, workflow_type=workflow_type, since=since)


def _show(found: list[dict[str, Any]], limit: int, times: LearnedTimes) -> None:
    columns = (
        "tenant", "path", "outcomes", "hits", "misses", "FP", "FN", "saved", "wasted", "speculate",
        "last",
    )  # fmt: skip
    rows = [_shown(each, times) for each in found[:limit]]
    show_table(columns, [[each[column] for column in columns] for each in rows])
    echo(f"{len(rows)} of {len(found)}, most recently learned first")


def _counted(served: dict[str, Any]) -> dict[str, Any]:
    from console.inspection.learned import counts_of
    from processing.state.counters import metrics

    return {
        "tenant": served["tenant"],
        "workflow_type": served["workflow_type"],
        "path": served["path"],
        "outcomes": served["outcomes"],
        **metrics(counts_of(served)),
        "speculate": round(served["speculate"], 4),
        "at": served["at"],
    }


def _shown(context: dict[str, Any], times: LearnedTimes) -> dict[str, Any]:
    """Return the cells of a context."""
    return {
        **context,
        "FP": percent(context["fp_rate"]),
        "FN": percent(context["fn_rate"]),
        "saved": _seconds(context["saved_ms"]),
        "wasted": _seconds(context["wasted_ms"]),
        "last": times.shown(context["at"], context["latest"]),
    }


def _seconds(ms: float) -> str:
    """Return milliseconds as seconds, with two decimals below ten."""
    return f"{ms / 1000:,.2f}" if abs(ms) < 9_995 else f"{ms / 1000:,.1f}"
