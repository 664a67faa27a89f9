"""`headstart memory context`: what earlier runs say of a query, as an agent is shown it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.memory.opening import opened_memory, query_text
from cli.memory.search import AskingAgent
from cli.support.options import Json, PostgresOptions, Tenant
from cli.support.output import FAILURE, echo, put, show_json

if TYPE_CHECKING:
    from memory.retrieval.client import CaseContext
    from memory.retrieval.result import Retrieval


def context(
    text: Annotated[str, typer.Argument(help="What is asked; -: standard input.")],
    tenant: Tenant = "default",
    workflow_type: Annotated[
        str | None, typer.Option(help="Only this workflow type [default: that of the best hits].")
    ] = None,
    k: Annotated[int, typer.Option("--k", help="At most this many cases.")] = 4,
    tokens: Annotated[int, typer.Option(min=0, help="At most this long, estimated.")] = 800,
    user: Annotated[
        str | None,
        typer.Option(
            help="The run's user: own cases need no confirmation, the profile is kept to."
        ),
    ] = None,
    agent: AskingAgent = None,
    *,
    options: PostgresOptions,
    json: Json = False,
) -> None:
    """Show what earlier runs did in such a case, as text for an agent's prompt.

    A case stands for the runs that took one course: how many, of how many writers, with the share
    of successes (95 % interval) and a failed one as a contrast. Ranked by the active version of the
    policy (see `headstart memory policy`), else by similarity. Exit code 1: there is none; stderr,
    in --json reason, says why.

    Examples: headstart memory context "cancel my order" --tenant acme;
    headstart memory context "cancel my order" --workflow-type refund --tokens 400 --json
    """
    from memory.episodes.record import writer_of

    asked = query_text(text)
    with opened_memory(options.read(), tenant, partial(_show_closed, json=json)) as memory:
        found = memory.context(
            asked, tokens=tokens, k=k, workflow_type=workflow_type, user_id=user,
            agent_id=agent,
            writer=writer_of(user, None, None, "") if user else "",
        )  # fmt: skip
    _show(found, json=json)


def _show_closed(nothing: Retrieval, *, json: bool) -> None:
    """Print the JSON of a context that could not be searched, as the Python API returns."""
    from memory.retrieval.client import CaseContext

    if json:
        show_json(_fields(CaseContext("", 0, 0, nothing, reason=nothing.degraded[0])))


def _fields(found: CaseContext) -> dict[str, Any]:
    return {
        "text": found.text,
        "tokens": found.tokens,
        "shown": found.shown,
        "policy": found.policy,
        "reason": found.reason,
        "cases": [each.as_json() for each in found.evidence],
        "degraded": list(found.retrieval.degraded),
    }


def _show(found: CaseContext, *, json: bool) -> None:
    if json:
        show_json(_fields(found))
    elif found.text:
        for line in found.text.split("\n"):
            put(line)
    for reason in found.retrieval.degraded:
        echo(f"degraded: {reason}")
    if found.reason:
        echo(f"no case: {found.reason}")
        raise typer.Exit(FAILURE)
