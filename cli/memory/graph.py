"""`headstart memory graph`: which concepts appear in the same episodes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from cli.support.options import Json, PostgresOptions, Since, Tenant
from cli.support.output import claim_outputs, echo, require_found, show_json, show_table
from cli.support.times import parse_since

if TYPE_CHECKING:
    from memory.retrieval.concepts import ConceptGraph

_ROWS_SHOWN = 20


def graph(
    tenant: Tenant = "default",
    workflow_type: Annotated[str | None, typer.Option(help="Only this workflow type.")] = None,
    outcome: Annotated[
        str | None, typer.Option(help="Only success, failure, partial or aborted.")
    ] = None,
    since: Since = None,
    concepts: Annotated[int, typer.Option(min=1, max=500, help="At most this many concepts.")] = 50,
    pairs: Annotated[int, typer.Option(min=1, max=5_000, help="At most this many pairs.")] = 200,
    related: Annotated[
        bool, typer.Option("--related", help="Only pairs in over 20 % of the episodes.")
    ] = False,
    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw it on a page that opens offline.")
    ] = None,
    *,
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """Show which concepts of a tenant appear in the same episodes, the most frequent pairs first.

    Episodes of users whose memory is off are left out. lift: how many times as often as if the two
    concepts were independent. share: of the episodes that have a concept; related are concepts that
    over 20 % of these have together.

    Examples: headstart memory graph --tenant acme --html concepts.html; headstart memory graph
    --related; headstart memory graph --outcome failure --since 7d --json
    """
    from memory.retrieval.concepts import read_concepts
    from memory.retrieval.request import InvalidQuery, MemoryQuery
    from sinks.postgres.reading import reading_postgres

    claim_outputs(html, json=json)
    begin = parse_since(since) or None
    try:
        query = MemoryQuery(
            text="concepts", tenant=tenant, workflow_type=workflow_type, outcome=outcome,  # type: ignore[arg-type]
            since=begin,
        )  # fmt: skip
    except InvalidQuery as error:
        raise typer.BadParameter(str(error)) from error
    settings = options.read()

    async def run() -> ConceptGraph:
        async with reading_postgres(settings.postgres) as connection:
            found = await read_concepts(connection, query, concepts, pairs)
        return found.only_related() if related else found

    _show(asyncio.run(run()), tenant, html, json=json)


def _show(found: ConceptGraph, tenant: str, html: str | None, *, json: bool) -> None:
    if html is not None and found.concepts:
        from cli.memory.concept_page import concept_page
        from replay.files.output import write_file

        write_file(html, concept_page(found, f"Concepts of {tenant}"))
        echo(f"{html}: open it in a browser")
    if json:
        show_json(found.as_json())
    elif found.concepts:
        rows = [
            (each.a, each.b, f"{each.episodes:,}", f"{each.share:.1%}", f"{each.lift:.2f}")
            for each in found.pairs[:_ROWS_SHOWN]
        ]
        show_table(("concept", "concept", "episodes", "share", "lift"), rows)
    require_found(len(found.concepts), "episode with a concept", tenant=tenant)
