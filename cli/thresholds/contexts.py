"""`headstart contexts`: what is learned about, with counts."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from cli.support.options import Data, Json, Limit, Redis, Since
from cli.support.output import require_found, say, show_json, show_table
from cli.support.times import shown_moment, since_ms
from cli.support.unreadable import described, say_unreadable


def contexts(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    workflow_type: Annotated[str | None, typer.Option(help="Only this workflow type's.")] = None,
    since: Since = None,
    limit: Limit = 100,
    redis: Redis = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """List contexts with what was counted in them, those that learned last first.

    FP: the share of what was started that was wrong; FN: of what was not started that was right.
    saved, wasted: seconds. With --json all that `thresholds show --json` has under "metrics".

    last is exact to five minutes; outcomes that waited while no worker ran may have happened later
    than it says. --since leaves out no context that may have learned since then.

    Example: headstart contexts --tenant acme --since 1h --limit 20
    """
    from processing.state.clock import latest_of
    from settings import read_settings
    from sinks.redis.queries import UnreadableFields, served_thresholds

    settings = read_settings(redis=redis, data=data)
    begin = since_ms(since)
    unreadable: list[UnreadableFields] = []

    async def run() -> list[dict[str, Any]]:
        served = served_thresholds(settings.redis, tenant, unreadable=unreadable)
        return [
            _counted(each)
            async for each in served
            if latest_of(each["at"]) >= begin and workflow_type in {None, each["workflow_type"]}
        ]

    found = sorted(asyncio.run(run()), key=lambda each: (-each["at"], each["path"]))
    if json:
        more = {"unreadable": described(unreadable)} if unreadable else {}
        show_json({"contexts": found[:limit], "total": len(found), **more})
    else:
        _show(found, limit)
        say_unreadable(unreadable)
    count = len(found) + len(unreadable)
    require_found(count, "context", tenant=tenant, workflow_type=workflow_type, since=since)


def _show(found: list[dict[str, Any]], limit: int) -> None:
    columns = (
        "tenant", "path", "outcomes", "hits", "misses", "FP", "FN", "saved", "wasted", "speculate",
        "last",
    )  # fmt: skip
    rows = [_shown(each) for each in found[:limit]]
    show_table(columns, [[each[column] for column in columns] for each in rows])
    say(f"{len(rows)} of {len(found)}, those that learned last first")


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


def _shown(context: dict[str, Any]) -> dict[str, Any]:
    """Return what the table has of a context."""
    fp, fn = (context[name] for name in ("fp_rate", "fn_rate"))
    return {
        **context,
        "FP": "" if fp is None else f"{fp:.1%}",
        "FN": "" if fn is None else f"{fn:.1%}",
        "saved": _seconds(context["saved_ms"]),
        "wasted": _seconds(context["wasted_ms"]),
        "last": shown_moment(context["at"]),
    }


def _seconds(ms: float) -> str:
    """Return milliseconds in seconds: with two decimals where it is fewer than ten."""
    return f"{ms / 1000:,.2f}" if abs(ms) < 9_995 else f"{ms / 1000:,.1f}"
