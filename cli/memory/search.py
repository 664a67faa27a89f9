"""`headstart memory search`: the episodes that are like a query or a context."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from cli.memory.opening import opened_memory, query_text
from cli.support.options import Json, PostgresOptions, Since, Tenant
from cli.support.output import echo, require_found, show_json, show_table
from cli.support.times import parse_since
from memory.episodes.hashes import CONTEXT_KEYS, id_text

if TYPE_CHECKING:
    from memory.retrieval.result import FoundEpisode, Retrieval

_QUERY_SHOWN = 40

Text = Annotated[
    str,
    typer.Argument(
        help="What is asked; -: standard input. It may be left out in modes exact, fuzzy."
    ),
]
SearchMode = Annotated[str, typer.Option(help="exact, fuzzy, lexical, vector or hybrid.")]
Context = Annotated[
    str | None, typer.Option(metavar="JSON", help="The run's context, a JSON object.")
]
Keys = Annotated[
    list[str] | None,
    typer.Option(
        help="Key of --context that must be equal in modes exact, hybrid; repeat for more "
        "[default: domain, complexity]."
    ),
]
AskingUser = Annotated[
    str | None, typer.Option(help="The run's user, whose memory profile is kept to.")
]
AskingAgent = Annotated[str | None, typer.Option(help="The run's agent, for that profile.")]
EventTypes = Annotated[
    list[str] | None, typer.Option(help="Has a stored event of one of these types.")
]
HalfLife = Annotated[
    float | None, typer.Option(metavar="DAYS", help="Age at which an episode counts half.")
]
Many = Annotated[list[str] | None, typer.Option(help="Has one of these; repeat for more.")]


def search(
    text: Text = "",
    tenant: Tenant = "default",
    mode: SearchMode = "hybrid",
    context: Context = None,
    key: Keys = None,
    workflow_type: Annotated[str | None, typer.Option(help="Only this workflow type.")] = None,
    k: Annotated[int, typer.Option("--k", help="At most this many, up to 500.")] = 10,
    user: AskingUser = None,
    agent: AskingAgent = None,
    tool: Annotated[str | None, typer.Option(help="Only runs that called it.")] = None,
    outcome: Annotated[
        str | None, typer.Option(help="Only success, failure, partial or aborted.")
    ] = None,
    min_confidence: Annotated[float | None, typer.Option(help="Least confidence.")] = None,
    since: Since = None,
    concept: Many = None,
    domain: Many = None,
    event_type: EventTypes = None,
    half_life: HalfLife = None,
    diversity: Annotated[
        float, typer.Option(help="0 to 1: how much likeness to earlier results counts against.")
    ] = 0.0,
    *,
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """Search the episodes of a tenant: by equal or similar query, by context, by words.

    exact: equal query, equal context (the keys --key, needs --workflow-type), or both;
    fuzzy: contexts by equal values; lexical: by words; vector: by similarity; hybrid: vector,
    words and equal context, fused. What could not be searched is named on stderr, in --json as
    degraded.

    Examples: headstart memory search "cancel my order" --tenant acme --outcome success;
    headstart memory search --mode fuzzy --context '{"domain": "retail"}' --json
    """
    begin, like, asked = parse_since(since) or None, _object(context), query_text(text)
    with opened_memory(options.read(), tenant, partial(_show_closed, json=json)) as memory:
        found = memory.search(
            asked, mode=mode, context=like, keys=key or CONTEXT_KEYS, k=k, tool=tool,
            workflow_type=workflow_type, user_id=user, agent_id=agent,
            outcome=outcome, min_confidence=min_confidence, since=begin, concepts=concept or (),
            domains=domain or (), event_types=event_type or (), half_life_days=half_life,
            diversity=diversity,
        )  # fmt: skip
    _show(found, json=json)
    require_found(len(found.episodes), "episode", tenant=tenant, mode=mode)


def _object(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise typer.BadParameter(f"no JSON: {error}", param_hint="--context") from error
    if not isinstance(value, dict):
        raise typer.BadParameter("must be a JSON object", param_hint="--context")
    return value


def _show_closed(nothing: Retrieval, *, json: bool) -> None:
    """Print the JSON of a search that could not be done, as the Python API returns."""
    if json:
        show_json(nothing.as_json())


def _show(found: Retrieval, *, json: bool) -> None:
    if json:
        show_json(found.as_json())
    elif found.episodes:
        columns = ("id", "score", "similarity", "ended", "workflow_type", "workflow_id", "outcome",
                   "confidence", "tools", "query")  # fmt: skip
        show_table(columns, map(_row, found.episodes))
    for reason in found.degraded:
        echo(f"degraded: {reason}")


def _row(found: FoundEpisode) -> list[Any]:
    query = " ".join((found.query or "").split())
    return [
        id_text(found.id),
        f"{found.score:.4f}",
        "" if found.similarity is None else f"{found.similarity:.2f}",
        datetime.fromtimestamp(found.ended / 1000, UTC).strftime("%Y-%m-%d %H:%M"),
        found.workflow_type,
        found.workflow_id,
        found.outcome,
        "" if found.confidence is None else f"{found.confidence:.2f}",
        " ".join(found.tools[:6]) + (" ..." if len(found.tools) > 6 else ""),
        query[:_QUERY_SHOWN] + ("..." if len(query) > _QUERY_SHOWN else ""),
    ]
