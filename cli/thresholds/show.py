"""`headstart thresholds show|history`: one context's threshold, the reason, and its changes."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.support.context_options import ContextOptions
from cli.support.options import Json, Limit, PostgresOptions, RedisOptions, Since
from cli.support.output import echo, percent, printable, put, require_found, show_json, show_table
from cli.support.times import now_ms, parse_since, shown_moment
from cli.support.unknown_names import echo_notes
from cli.support.unreadable import described, report_unreadable

if TYPE_CHECKING:
    from console.inspection.explain import Explanation

Tool = Annotated[str | None, typer.Option(help="The guessed tool.")]
_PLOT_ROWS = 10
_ANSWER_LABELS = {"speculative": "started early", "suggestion": "suggested", "explicit": "asked"}
"""Labels for the answers of `learners.modes`."""


def show(
    tool: Tool = None,
    *,
    context: ContextOptions,
    options: RedisOptions,
    json: Json = False,
) -> None:
    """Show the threshold that executors read for one context, and the reason for it.

    Shows the level that it comes from, its evidence and calibration, when it last learned, how
    often each of the three answers was wrong, and the overrides in force, the most specific first.

    Example: headstart thresholds show --workflow-type refund --domain retail --user u7
    """
    from console.inspection.explain import explain

    settings = options.read()
    tenant, workflow_type = context.tenant, context.workflow_type
    paths = _paths(context.path(settings), workflow_type)
    found = asyncio.run(explain(settings.redis, tenant, workflow_type, paths, tool, now_ms()))
    if all(level.outcomes is None for level in found.levels):
        echo_notes(context.notes(settings))
    if json:
        show_json(_described(found))
        return
    threshold = found.threshold
    put(f"speculate {threshold.speculate:.4f}  suggest {threshold.suggest:.4f}")
    _show_why(found)


def _show_why(found: Explanation) -> None:
    from console.inspection.explain import sentences
    from console.inspection.text_view import age_of

    for sentence in sentences(found):
        put(f"  {printable(sentence, '')}")
    if found.age_s is not None:
        last, version = shown_moment(found.value["at"]), found.threshold.version
        put(f"  last learned {age_of(found.age_s)} ago ({last}), version {version}")
    show_table(
        ("level", "speculate", "outcomes", "last learned", ""),
        [
            (
                level.path,
                None if level.speculate is None else f"{level.speculate:.4f}",
                level.outcomes,
                shown_moment(level.at),
                "answers" if level.answers else "",
            )
            for level in found.levels
        ],
    )
    if found.metrics is not None:
        _show_metrics(found.metrics)
    for each in found.overrides:
        put(f"override: {printable(_named(each), '')}")
    report_unreadable(found.unreadable)


def _show_metrics(metrics: Mapping[str, Any]) -> None:
    """Print false positives and negatives of each answer at the level that answers."""
    modes = metrics["modes"]
    show_table(
        ("what was done", "outcomes", "wrong (FP)", "right, not started (FN)"),
        [
            (label, f"{modes[mode]['outcomes']:.0f}", percent(modes[mode]["fp"]),
             percent(modes[mode]["fn"]))
            for mode, label in _ANSWER_LABELS.items()
        ],
    )  # fmt: skip
    means = [f"mean confidence {_number(metrics['mean_confidence'], '.3f')}"]
    means.append(f"mean execution {_number(metrics['mean_execution_ms'], ',.0f')} ms")
    means.append(f"saved {metrics['saved_ms']:,.0f} ms, wasted {metrics['wasted_ms']:,.0f} ms")
    means.append(f"{metrics['feedback_accepted']} of {metrics['feedback']} verdicts accept")
    put(f"  {'; '.join(means)}")


def _number(value: float | None, form: str) -> str:
    return "unknown" if value is None else format(value, form)


def _described(found: Explanation) -> dict[str, Any]:
    from dataclasses import asdict

    from console.inspection.explain import sentences

    threshold = found.threshold
    return {
        **threshold._asdict(),
        "calibration": threshold.calibration and threshold.calibration._asdict(),
        "override": threshold.override and threshold.override._asdict(),
        "available": True,
        "learner": found.value.get("learner"),
        "gain_ms": found.value.get("gain"),
        "cost_ms": found.value.get("cost"),
        "learned_at": found.value.get("at"),
        "learned_age_s": found.age_s,
        "metrics": found.metrics,
        "levels": [asdict(level) for level in found.levels],
        "overrides": found.overrides,
        "why": list(sentences(found)),
        **({"unreadable": described(found.unreadable)} if found.unreadable else {}),
    }


def history(
    since: Since = None,
    limit: Limit = 100,
    *,
    context: ContextOptions,
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """Plot a context's threshold over time and list its newest changes, oldest first.

    Example: headstart thresholds history --workflow-type refund --domain retail --since 7d
    """
    from sinks.postgres.queries import history_of_context
    from sinks.postgres.reading import reading_postgres

    settings = options.read()
    tenant = context.tenant
    path = context.path(settings) or _paths("", context.workflow_type)[0]
    begin = parse_since(since)

    async def run() -> list[dict[str, Any]]:
        async with reading_postgres(settings.postgres) as connection:
            return await history_of_context(connection, tenant, path, limit, begin)

    changes = asyncio.run(run())[::-1]
    if json:
        show_json({"tenant": tenant, "path": path, "changes": changes})
    elif changes:
        _plot([each["speculate"] for each in changes])
        rows = [
            (shown_moment(each["at"]), f"{each['speculate']:.4f}", f"{each['suggest']:.4f}",
             each["outcomes"], each["learner"])
            for each in changes[-_PLOT_ROWS:]
        ]  # fmt: skip
        show_table(("at", "speculate", "suggest", "outcomes", "learner"), rows)
        echo(f"{len(changes)} changes, the newest {len(rows)} listed")
    what = f"change of {path} kept for tenant {tenant!r}"
    require_found(len(changes), what, always=True, since=since)


def _plot(values: list[float]) -> None:
    from cli.support.terminal import only_ascii
    from console.inspection.sparkline import plot

    width = min(100, shutil.get_terminal_size().columns)
    for line in plot(values, width, _PLOT_ROWS, ascii_only=only_ascii(sys.stdout)):
        put(line)


def _paths(path: str, workflow_type: str) -> list[str]:
    """Return the paths of a context, coarse to fine; an empty path is the workflow type's."""
    from headstart.keys import context_paths

    if not path:
        return list(context_paths(workflow_type, lambda _level: None))
    parts = path.split("/")
    return ["/".join(parts[: place + 1]) for place in range(len(parts))]


def _named(override: Mapping[str, Any]) -> str:
    """Return an override on one line, without empty fields."""
    label = {**override, "until": shown_moment(override["until"])}
    label["path"] = label["path"] or "the whole workflow type"
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in label.items()
        if value not in (None, "")
    )
