"""`headstart notices`: reports changes in contexts and overrides, each once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from cli.support.option_groups import CommandGroup
from cli.support.options import Json, KafkaPostgresOptions, Limit, Since, TenantOnly
from cli.support.output import echo, require_found, show_json, show_table
from cli.support.times import now_ms, parse_since, shown_moment

if TYPE_CHECKING:
    from topics.notices.messages import Notice


class _Listing(TyperGroup):
    """A group that runs `list` if no command is given."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


app = CommandGroup(
    cls=_Listing, help="Thresholds that settled, drifts, anomalies and overrides: list, follow."
)


@app.callback()
def notices() -> None:
    """Thresholds that settled, drifts, anomalies and overrides: list, follow."""


@app.command("list")
def list_notices(
    kind: Annotated[
        list[str] | None, typer.Option(help="Only this kind; may be given more than once.")
    ] = None,
    tenant: TenantOnly = None,
    since: Since = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Continue with new ones until Ctrl-C.")
    ] = False,
    limit: Limit = 20,
    *,
    options: KafkaPostgresOptions,
    json: Json = False,
) -> None:
    """List notices, newest first; docs/reference/notices.md explains each kind.

    --follow prints one JSON object per line, oldest first.

    Example: headstart notices list --kind drift --since 2h
    """
    from topics.notices.messages import KINDS

    if follow and json:
        raise typer.BadParameter("--follow has no last line; each of its lines is JSON anyway")
    for each in kind or ():
        if each not in KINDS:
            raise typer.BadParameter(f"{each!r} is no kind: {', '.join(KINDS)}")
    begin, kinds = parse_since(since), frozenset(kind or ())
    settings = options.read()

    if follow:
        asyncio.run(_follow(settings, limit, begin, tenant, kinds))
        return
    found = asyncio.run(_stored(settings.postgres, limit, begin, tenant, kinds))
    if json:
        show_json({"notices": [_shown(*each) for each in found]})
    elif found:
        columns = ("found", "kind", "tenant", "context", "evidence")
        show_table(columns, [_row(*each) for each in found])
        if len(found) == limit:
            echo(f"the newest {limit}; --limit shows more")
    elif not (kind or tenant or since):
        echo("there are no notices")
    require_found(len(found), "notice", kind=", ".join(kind or ()), tenant=tenant, since=since)


async def _stored(
    postgres: str, limit: int, since: int, tenant: str | None, kinds: frozenset[str]
) -> list[tuple[int, Notice]]:
    from sinks.postgres.notices import newest_notices
    from sinks.postgres.reading import reading_postgres

    async with reading_postgres(postgres) as connection:
        return await newest_notices(connection, limit, since=since, tenant=tenant, kinds=kinds)


async def _follow(
    settings: Any, limit: int, since: int, tenant: str | None, kinds: frozenset[str]
) -> None:
    """Print the stored notices, then new ones, each once."""
    seen: set[str] = set()
    async for found, notice in _all(settings, limit, since, tenant, kinds):
        wanted = (not kinds or notice.kind in kinds) and tenant in (None, notice.tenant)
        if wanted and notice.id not in seen:
            seen.add(notice.id)
            show_json(_shown(found, notice))


async def _all(
    settings: Any, limit: int, since: int, tenant: str | None, kinds: frozenset[str]
) -> AsyncIterator[tuple[int, Notice]]:
    from topics.notices.log import follow_notices, notices_end

    # Read the topic's end first: a notice sent meanwhile is seen twice rather than never.
    end = await notices_end(settings.kafka)
    for each in reversed(await _stored(settings.postgres, limit, since, tenant, kinds)):
        yield each
    async for notice in follow_notices(settings.kafka, end):
        yield now_ms(), notice


def _shown(found: int, notice: Notice) -> dict[str, Any]:
    import msgspec

    fields: dict[str, Any] = msgspec.to_builtins(notice)
    return {"found": found, **fields}


def _row(found: int, notice: Notice) -> tuple[str | None, ...]:
    evidence = " ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in notice.evidence.items()
        if value not in (None, "")
    )
    where = notice.path or f"workflow_type={notice.workflow_type}"
    return shown_moment(found), notice.kind, notice.tenant, where, evidence
