"""`headstart thresholds reset` and `import`: delete or replace learned state by control records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, NoReturn

import typer

from cli.support.options import Json, KafkaRedisOptions, TenantOnly, Yes
from cli.support.output import FAILURE, confirm, say, show_json
from cli.support.times import now_ms
from cli.thresholds.republish import repair_or_say

if TYPE_CHECKING:
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
    said = Reset(new_id(now), now, pattern, tenant)
    whose = f"of {tenant}" if tenant else "of every tenant"
    about = {"id": said.id, "pattern": pattern, "tenant": tenant}
    question = f"Forget {{}} contexts {whose}?"
    nothing = f"no context {whose} has learned anything that {pattern} matches"
    how = _How(question, nothing, about, dry_run, yes, json)
    asyncio.run(_intervene(settings, how, lambda count: [(n, said) for n in range(count)]))


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
    only if the same policy learns there; choose it first. If the file has no context of the
    tenant, nothing is sent, and the exit code is 1.

    Examples: headstart thresholds import learned.jsonl --dry-run;
    headstart thresholds import learned.jsonl --tenant acme --yes
    """
    from headstart.events.schema import new_id
    from replay.rebuild.learned_state_file import NotLearned, read_learned
    from replay.rebuild.seed_rehearsal import seeds_of

    settings = options.read()
    header, lines = read_learned(file)
    if header.levels != settings.levels:
        wanted = ",".join(header.levels)
        raise NotLearned(f"{file}: has the levels {wanted}; set HEADSTART_LEVELS={wanted}")
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
    asyncio.run(_intervene(settings, how, lambda count: seeds_of(wanted_lines, count, id, now)))


class _How(NamedTuple):
    question: str
    nothing: str
    """The message if no context is affected."""
    about: Mapping[str, Any]
    dry_run: bool
    yes: bool
    json: bool


async def _intervene(
    settings: Settings, how: _How, controls: Callable[[int], Sequence[tuple[int, Control]]]
) -> None:
    """Apply control records to a copy of the table, ask for confirmation, and send them.

    `controls` returns (partition, record) pairs for a number of partitions.
    """
    from replay.log.live_table import read_whole_table
    from replay.rebuild.seed_rehearsal import rehearse
    from settings import operators_key, rules_of
    from topics.control.log import send_control
    from topics.epoch import read_epoch

    epoch = await read_epoch(settings.kafka)
    tables = await read_whole_table(settings.kafka, epoch)
    said = controls(epoch.partitions)
    tried = rehearse(tables, epoch, rules_of(settings), said, now_ms())
    found = {**how.about, "contexts": tried.contexts, "refused": tried.refused}
    for reason in tried.refused:
        say(f"would be refused: {reason}")
    if not tried.contexts and not tried.refused:
        _end_without(how)
    if how.dry_run or tried.refused:
        _show({**found, "sent": False}, f"{tried.contexts} contexts, nothing sent", how.json)
        if tried.refused:
            raise typer.Exit(FAILURE)
        return
    confirm(how.question.format(tried.contexts), how.yes)
    # Redis ignores updates older than its value, even if that version was never in the log.
    await repair_or_say(settings, epoch, tables)
    offsets: dict[int, int] = {}
    key = operators_key(settings)
    for control, same in groupby(said, lambda each: each[1]):
        places = [partition for partition, _ in same]
        offsets |= await send_control(settings.kafka, control, key, only=places)
    text = f"{tried.contexts} contexts, in {len(offsets)} partitions"
    _show({**found, "sent": True, "offsets": offsets}, text, how.json)


def _end_without(how: _How) -> NoReturn:
    """Exit with 1, because no context is affected."""
    if how.json:
        show_json({**how.about, "contexts": 0, "refused": [], "sent": False})
    say(f"error: {how.nothing}; nothing was sent")
    raise typer.Exit(FAILURE)


def _show(found: Mapping[str, Any], text: str, json: bool) -> None:
    if json:
        show_json(found)
    else:
        say(text)
