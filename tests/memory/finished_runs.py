"""Finished runs for tests of policies: what was done follows from one word of the query, or not."""

from __future__ import annotations

import random

from memory.episodes.hashes import context_hash, episode_id, query_hash
from memory.episodes.record import Episode, MadeCall

AT = 1_750_000_000_000
COURSES = {
    "cancel": ("find_order", "cancel_order", "refund"),
    "track": ("find_order", "track_parcel"),
    "upgrade": ("find_user", "offer_upgrade", "charge", "confirm"),
    "invoice": ("find_user", "make_invoice", "send_mail"),
}
_FILLING = [f"filler{number}" for number in range(40)]


def finished_runs(tenant: str, count: int, *, telling: bool = True) -> list[Episode]:
    """Return runs of six users in the order of their ends; those of a longer list begin equal."""
    draw = random.Random(f"{tenant} {telling}")
    found = []
    for number in range(count):
        word = draw.choice(list(COURSES))
        query = " ".join([word, *draw.choices(_FILLING, k=6)])
        tools = COURSES[word if telling else draw.choice(list(COURSES))]
        found.append(finished_run(tenant, number, query, tools, user=f"user-{draw.randrange(6)}"))
    return found


def finished_run(
    tenant: str,
    number: int,
    query: str,
    tools: tuple[str, ...],
    *,
    user: str = "u1",
    outcome: str = "success",
) -> Episode:
    """Return a finished run."""
    kind, name = "order", f"run-{number}"
    return Episode(
        id=episode_id(tenant, kind, name), tenant=tenant, workflow_type=kind, workflow_id=name,
        user_id=user, agent_id=None, session_id=None, started=AT + number * 60_000,
        ended=AT + number * 60_000 + 30_000, outcome=outcome,  # type: ignore[arg-type]
        reward=1.0 if outcome == "success" else 0.0, confidence=0.9, duration_ms=1.0, cost_ms=None,
        query=query, query_hash=query_hash(query), context={}, context_hash=context_hash(kind, {}),
        first_call=None, calls=tuple(MadeCall(tool, '{"id":1}', True) for tool in tools),
        concepts=(), domains=(), agents_used=(), insights=(), reference_ids=(), response=None,
        events=4,
    )  # fmt: skip
