"""`headstart thresholds reset` and `import`: delete or replace learned state by control records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, NoReturn

import typer

from cli.support.options import Json, KafkaRedisOptions, TenantOnly, Yes
from cli.support.output import FAILURE, confirm, echo, show_json
from cli.support.times import now_ms
from cli.thresholds.republish import repair_or_report

if TYPE_CHECKING:
    from replay.log.live_table import TablePartition
    from replay.rebuild.newer_learning import NewerLearning
    from settings import Settings
    from topics.control.messages import Control

_MOST_NAMED: Final = 10
"""Most tenants of a file to list in an error."""
DryRun = Annotated[bool, typer.Option("--dry-run", help="Report the effect, and send nothing.")]


def reset(
    pattern: Annotated[
        str,
        typer.Argument(
            help="key=value parts joined by /; a value may be *; * alone: all contexts."
        ),
    ],
    tenant: Annotated[
        str | None, typer.Option(help="Only this tenant [default: all tenants].")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    *,
    options: KafkaRedisOptions,
    json: Json = False,
) -> None:
    """Delete the learned state of every context that matches all parts of a pattern.

    They start to learn again; a workflow type starts with its tenant's default. Contexts below
    them are deleted as well. A control record is sent to every partition of headstart.events,
    signed if HEADSTART_OPERATORS_KEY is set. If no context matches, nothing is sent, and the exit
    code is 1.

    Examples: headstart thresholds reset workflow_type=refund --tenant acme --dry-run;
    headstart thresholds reset 'user_id=u7' --yes
    """
    from headstart.events.schema import new_id
    from processing.control.learner_assignments import parts
    from topics.control.messages import Reset

    parts(pattern)
    settings = options.read()
    now = now_ms()
    reset = Reset(new_id(now), now, pattern, tenant)
    scope = f"of {tenant}" if tenant else "of every tenant"
    about = {"id": reset.id, "pattern": pattern, "tenant": tenant}
    question = f"Forget {{}} contexts {scope}?"
    nothing = f"no context {scope} has learned anything that {pattern} matches"
    how = _How(question, nothing, about, dry_run, yes, json)
    asyncio.run(_intervene(settings, how, lambda count: [(n, reset) for n in range(count)]))


def import_learned(
    file: Annotated[Path, typer.Argument(help="A file from `headstart thresholds export`.")],
    tenant: TenantOnly = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    *,
    options: KafkaRedisOptions,
    json: Json = False,
) -> None:
    """Replace the state of contexts by an export; they continue to learn from it.

    Their learned state is overwritten. A control record per context is sent to its partition of
    headstart.events, signed if HEADSTART_OPERATORS_KEY is set. A context keeps the imported state
    only if the same policy learns there; choose it first. Prints for how many contexts this
    discards newer learning, with --json as `newer`: start executors after an import. If the file
    has no context of the tenant, nothing is sent, and the exit code is 1.

    Examples: headstart thresholds import learned.jsonl --dry-run;
    headstart thresholds import learned.jsonl --tenant acme --yes
    """
    from headstart.events.schema import new_id
    from replay.rebuild.learned_state_file import UnusableExport, read_learned
    from replay.rebuild.newer_learning import newer_learning
    from replay.rebuild.seed_rehearsal import seeds_of

    settings = options.read()
    header, lines = read_learned(file)
    if header.levels != settings.levels:
        wanted = ",".join(header.levels)
        raise UnusableExport(f"{file}: has the levels {wanted}; set HEADSTART_LEVELS={wanted}")
    now = now_ms()
    wanted_lines = [each for each in lines if tenant in (None, each.tenant)]
    id = new_id(now)
    about = {"id": id, "file": str(file), "tenant": tenant}
    nothing = f"{file} holds no contexts"
    if tenant is not None:
        others = ", ".join(sorted({each.tenant for each in lines})[:_MOST_NAMED])
        nothing = f"{file} holds no context of tenant {tenant!r}"
        nothing += f"; it has those of {others}" if others else ""
    how = _How("Overwrite {} contexts?", nothing, about, dry_run, yes, json)
    if not wanted_lines:
        _end_without(how)
    asyncio.run(
        _intervene(
            settings,
            how,
            lambda count: seeds_of(wanted_lines, count, id, now),
            lambda tables: newer_learning(tables, wanted_lines),
        )
    )


class _How(NamedTuple):
    question: str
    nothing: str
    """The message if no context is affected."""
    about: Mapping[str, Any]
    dry_run: bool
    yes: bool
    json: bool


async def _intervene(
    settings: Settings,
    how: _How,
    controls: Callable[[int], Sequence[tuple[int, Control]]],
    newer: Callable[[Mapping[int, TablePartition]], NewerLearning] | None = None,
) -> None:
    """Apply control records to a copy of the table, ask for confirmation, and send them.

    `controls` returns (partition, record) pairs for a number of partitions; `newer` what they would
    discard of the table.
    """
    from replay.log.live_table import read_whole_table
    from replay.rebuild.seed_rehearsal import rehearse
    from settings import operators_key, rules_of
    from topics.control.log import send_control
    from topics.epoch import read_epoch

    epoch = await read_epoch(settings.kafka)
    tables = await read_whole_table(settings.kafka, epoch)
    records = controls(epoch.partitions)
    discarded = None if newer is None else newer(tables)
    tried = rehearse(tables, epoch, rules_of(settings), records, now_ms())
    found = {**how.about, "contexts": tried.contexts, "refused": tried.refused}
    if discarded is not None:
        found["newer"] = discarded._asdict()
        if discarded.contexts:
            echo(str(discarded))
    for reason in tried.refused:
        echo(f"would be refused: {reason}")
    if not tried.contexts and not tried.refused:
        _end_without(how)
    if how.dry_run or tried.refused:
        _show({**found, "sent": False}, f"{tried.contexts} contexts, nothing sent", how.json)
        if tried.refused:
            raise typer.Exit(FAILURE)
        return
    confirm(how.question.format(tried.contexts), how.yes)
    # Redis ignores updates older than its value, even if that version was never in the log.
    await repair_or_report(settings, epoch, tables)
    offsets: dict[int, int] = {}
    key = operators_key(settings)
    for control, same in groupby(records, lambda each: each[1]):
        places = [partition for partition, _ in same]
        offsets |= await send_control(settings.kafka, control, key, only=places)
    text = f"{tried.contexts} contexts, in {len(offsets)} partitions"
    _show({**found, "sent": True, "offsets": offsets}, text, how.json)


def _end_without(how: _How) -> NoReturn:
    """Exit with 1, because no context is affected."""
    if how.json:
        show_json({**how.about, "contexts": 0, "refused": [], "sent": False})
    echo(f"error: {how.nothing}; nothing was sent")
    raise typer.Exit(FAILURE)


def _show(found: Mapping[str, Any], text: str, json: bool) -> None:
    if json:
        show_json(found)
    else:
        echo(text)
