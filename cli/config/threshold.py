"""`headstart config set|unset|get threshold`: overrides, served in place of learned thresholds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from math import isnan
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.config.apply import (
    COLUMNS,
    By,
    Reason,
    row,
    set_and_show,
    shown,
    unset_and_report,
    user_name,
)
from cli.support.context_options import ContextOptions
from cli.support.identifiers import require_names
from cli.support.options import Json, KafkaOptions, KafkaRedisOptions
from cli.support.output import show_json, show_table
from cli.support.times import now_ms, parse_age, parse_moment

if TYPE_CHECKING:
    from settings import Settings

DAY_MS: Final = 86_400_000
LONGEST_MS: Final = 3_650 * DAY_MS
"""The longest `--for`."""

Tool = Annotated[str | None, typer.Option(help="Only guesses of this tool [default: every tool].")]
Speculate = Annotated[
    float | None, typer.Option(min=0, max=1, help="Confidence needed to start early.")
]
Suggest = Annotated[float | None, typer.Option(min=0, max=1, help="Confidence needed to suggest.")]


def set_threshold(
    tool: Tool = None,
    speculate: Speculate = None,
    suggest: Suggest = None,
    until: Annotated[
        str | None, typer.Option(metavar="MOMENT", help="End, in ISO 8601; UTC without an offset.")
    ] = None,
    lasting: Annotated[
        str | None, typer.Option("--for", metavar="AGE", help="Duration: 90s, 30m, 2h, 7d.")
    ] = None,
    reason: Reason = "",
    by: By = None,
    *,
    context: ContextOptions,
    options: KafkaRedisOptions,
    json: Json = False,
) -> None:
    """Serve this threshold instead of the learned one, for a context and all contexts below it.

    Learning continues. It replaces an override of the same context and tool. Without --until or
    --for it applies until `headstart config unset threshold`.

    Example: headstart config set threshold --workflow-type refund --speculate .97 --for 2h
    --reason "refund API is slow"
    """
    from topics.commands.messages import ThresholdOverride

    ends = _ends(until, lasting)
    _check(speculate, suggest)
    require_names(tool=tool)
    settings = options.read()
    command = ThresholdOverride(
        tenant=context.tenant,
        workflow_type=context.workflow_type,
        path=context.path(settings),
        tool=tool,
        speculate=speculate,
        suggest=suggest,
        until=ends,
        by=user_name(by),
        reason=reason,
        at=now_ms(),
    )
    set_and_show(settings, command, lambda: context.notes(settings), json=json)


def unset_threshold(
    tool: Tool = None,
    reason: Reason = "",
    by: By = None,
    *,
    context: ContextOptions,
    options: KafkaRedisOptions,
    json: Json = False,
) -> None:
    """Unset an override of exactly this context and tool, and show what applies there now.

    That is the learned threshold, or another override. --json has it as `applies` (null: as
    learned), and as `others` the overrides of single tools and of contexts below.

    Example: headstart config unset threshold --workflow-type refund --domain retail
    """
    from cli.config.remaining import remaining_overrides, sentences
    from sinks.redis.queries import served_chain

    settings = options.read()
    key, path = _key(settings, context, tool), context.path(settings)

    def now_applies() -> tuple[Iterable[str], Mapping[str, Any]]:
        where = context.tenant, context.workflow_type
        _values, stored = asyncio.run(served_chain(settings.redis, *where, []))
        found = remaining_overrides(stored, context.workflow_type, path, tool, now_ms())
        return sentences(found), found.as_json

    unset_and_report(settings, key, user_name(by), reason, now_applies, json=json)


def get_threshold(
    tool: Tool = None,
    *,
    context: ContextOptions,
    options: KafkaOptions,
    json: Json = False,
) -> None:
    """Show the override of exactly this context and tool; exit code 1 if there is none.

    `headstart thresholds show` shows the threshold that results for a context.

    Example: headstart config get threshold --workflow-type refund --domain retail --json
    """
    from topics.commands.log import read_commands
    from topics.commands.messages import command_key, in_force

    settings = options.read()
    key = _key(settings, context, tool)
    state = asyncio.run(read_commands(settings.kafka))
    found = [each for each in state.commands if command_key(each) == key]
    if not found or not in_force(found[0], now_ms()):
        raise LookupError(
            "no override is in force there; `headstart config list` shows those that are"
        )
    if json:
        show_json(shown(found[0]))
    else:
        show_table(COLUMNS, [row(found[0])])


def _check(speculate: float | None, suggest: float | None) -> None:
    if speculate is None and suggest is None:
        raise typer.BadParameter("give --speculate, --suggest or both")
    if any(each is not None and isnan(each) for each in (speculate, suggest)):
        raise typer.BadParameter("a threshold is a number from 0 to 1")
    if speculate is not None and suggest is not None and suggest > speculate:
        raise typer.BadParameter("--suggest is above --speculate: nothing would be suggested")


def _key(settings: Settings, context: ContextOptions, tool: str | None) -> bytes:
    from topics.commands.messages import ThresholdOverride, command_key

    tenant, workflow_type = context.tenant, context.workflow_type
    require_names(tool=tool)
    path = context.path(settings)
    return command_key(
        ThresholdOverride(tenant=tenant, workflow_type=workflow_type, path=path, tool=tool, at=0)
    )


def _ends(until: str | None, lasting: str | None) -> int | None:
    if until is not None and lasting is not None:
        raise typer.BadParameter("give --until or --for, not both")
    now = now_ms()
    ends = None if until is None else parse_moment(until)
    if lasting is not None:
        age = parse_age(lasting)
        if age > LONGEST_MS:
            raise typer.BadParameter(
                f"{lasting!r} is longer than {LONGEST_MS // DAY_MS:,} days; leave it out for an "
                "override that applies until `headstart config unset threshold`",
                param_hint="--for",
            )
        ends = now + age
    if ends is not None and ends <= now:
        raise typer.BadParameter(f"it would have ended already: {until or lasting}")
    return ends
