"""`headstart tune`: searches for the best policy settings and confirms them on later data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.support.option_groups import Only
from cli.support.options import Json, SettingOptions, Yes
from cli.support.output import claim_outputs, confirm, echo, show_json, show_table
from cli.support.progress import Bar
from cli.support.source_options import HistoryOptions

if TYPE_CHECKING:
    from replay.execution.tuning import Tuned
    from settings import Settings

SEARCHED = (
    "hops", "hops:keep=.998", "hops:keep=.9999", "hops:alarm=6", "hops:alarm=24", "histogram",
    "sliding", "hedge", "hops_target",
)  # fmt: skip


Candidates = Annotated[
    list[str] | None, typer.Option(help="A candidate; repeatable [default: a few of each kind].")
]
Grid = Annotated[list[str] | None, typer.Option(help="Candidates: 'ema:alpha=.05..0.5x8'; repeat.")]
Share = Annotated[
    float, typer.Option(min=0.1, max=0.9, help="Share of the predictions to search on.")
]
Apply = Annotated[
    str | None,
    typer.Option(metavar="PATTERN", help="Assign the winner to these contexts, if confirmed."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="With --apply: only report the effect.")]
Html = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Write the report of the later part to this file."),
]

TuneHistory = Annotated[
    HistoryOptions,
    Only(
        "source", "since", "until", "tenant", "workflow_type", "domain", "levels", "gain", "cost",
        "include", "processes",
    ),
]  # fmt: skip


def tune(
    policy: Candidates = None,
    grid: Grid = None,
    split: Share = 0.6,
    html: Html = None,
    apply: Apply = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    *,
    history: TuneHistory,
    options: Annotated[
        SettingOptions, Only("kafka", "kafka_config", "postgres", "learner", "data")
    ],
    json: Json = False,
) -> None:
    """Search settings on the first part of the log, and confirm the best on the rest.

    Changes nothing without --apply; the last line states whether a change pays off. --apply does
    what `headstart learner choose PATTERN` does, after confirmation, for --tenant or all tenants.

    Examples: headstart tune --since 7d --grid 'hops:keep=.995..0.9999x6';
    headstart tune --source log.jsonl.zst --policy td --policy sliding --split .5 --json;
    headstart tune --since 7d --workflow-type refund --apply workflow_type=refund
    """
    from processing.control.learner_assignments import parts
    from replay.execution.tuning import tune as run
    from replay.predictions.policy_grid import chosen

    if apply is not None:
        parts(apply)
    elif dry_run or yes:
        raise typer.BadParameter("--dry-run and --yes belong to --apply PATTERN")
    claim_outputs(html, inputs=[history.source], json=json)
    settings = options.read()
    candidates = chosen(policy or [], grid or []) or list(SEARCHED)
    source = history.open(settings)
    with Bar(None) as bar:
        found = run(
            source, candidates, settings.learner, bar, share=split, processes=history.processes
        )
    for warning in found.confirmed["read"]["warnings"]:
        echo(warning)
    _write_report(html, found)
    echo(found.conclusion)
    applied = None
    if apply is not None:
        applied = _apply(found, apply, history.tenant, settings, dry_run=dry_run, yes=yes)
    _show(found, applied, json=json)


def _write_report(html: str | None, found: Tuned) -> None:
    if html is None:
        return
    from replay.results.page import write_page

    write_page(html, found.confirmed)
    echo(f"{html}: open it in a browser")


def _apply(
    found: Tuned, pattern: str, tenant: str | None, settings: Settings, *, dry_run: bool, yes: bool
) -> dict[str, Any] | None:
    """Assign the winner to the contexts of a pattern; return None if nothing was changed."""
    from cli.thresholds.learner import send_choice

    scope = "all tenants" if tenant is None else f"tenant {tenant}"
    if not found.better:
        echo("--apply: nothing is changed, because no improvement is confirmed")
        return None
    if dry_run:
        echo(f"--dry-run: {found.winner} would be assigned to {pattern} of {scope}")
        return None
    confirm(f"Assign {found.winner} to {pattern} of {scope} from now on?", yes)
    applied = send_choice(settings, pattern, found.winner, tenant)
    echo(f"{pattern}: {found.winner}, in {len(applied['offsets'])} partitions")
    return applied


def _parts(found: Tuned) -> list[str]:
    """Return the headings of both parts, with their numbers of predictions."""
    names = {"searched": "first part", "confirmed": "later part"}
    return [f"{names[part]} ({count:,} predictions)" for part, count in found.predictions.items()]


def _show(found: Tuned, applied: dict[str, Any] | None, *, json: bool) -> None:
    from replay.results.conclusion import amount, remark

    searched, confirmed = found.searched["policies"], found.confirmed["policies"]
    falling = sorted(searched, key=lambda name: -searched[name]["utility"])
    if json:
        policies = {
            name: {
                "searched": searched[name]["utility"],
                "confirmed": confirmed[name]["utility"],
                "difference": confirmed[name]["difference"],
                "difference_interval": confirmed[name]["difference_interval"],
            }
            for name in falling
        }
        show_json({"winner": found.winner, "present": found.present, "better": found.better,
                   "split": found.split._asdict(), "predictions": found.predictions,
                   "conclusion": found.conclusion,
                   **found.left_out,
                   "applied": applied, "policies": policies})  # fmt: skip
        return
    heading = f"policy{remark(found.left_out)}".replace("(assumed", "(in part assumed")
    show_table(
        (heading, *_parts(found)),
        [
            (name, amount(searched[name]["utility"]), amount(confirmed[name]["utility"]))
            for name in falling
        ],
    )
