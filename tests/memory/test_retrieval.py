"""Retrieval finds what it should, within one tenant."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
import pytest

from bench.support.made_episodes import MadeEpisode
from memory.embedding.wordllama import WordLlamaEmbedder
from memory.retrieval import search
from memory.retrieval.request import MemoryQuery
from memory.retrieval.result import Retrieval
from memory.retrieval.search import Search
from memory.retrieval.service import RetrievalService
from memory.retrieval.words import WordCounter
from tests.memory.stored_episodes import StoredEpisodes

pytestmark = pytest.mark.integration

EMBEDDER = WordLlamaEmbedder()
TENANTS = ("tenant-1", "tenant-2")
QUERY = "please cancel my flight, the booking was charged twice"
MODES: dict[str, dict[str, Any]] = {
    "equal context": {
        "mode": "exact",
        "workflow_type": "workflow-3",
        "context": {"domain": "domain-0", "complexity": "low"},
    },
    "fuzzy": {"mode": "fuzzy", "context": {"domain": "domain-1", "region": "region-2"}},
    "lexical": {"mode": "lexical", "text": QUERY},
    "vector": {"mode": "vector", "text": QUERY},
    "hybrid": {"mode": "hybrid", "text": QUERY},
}
PASSING: dict[str, tuple[dict[str, Any], Callable[[int, MadeEpisode], bool]]] = {
    "nothing": ({}, lambda _n, _made: True),
    "workflow type": (
        {"workflow_type": "workflow-3"},
        lambda _n, made: made.workflow_type == "workflow-3",
    ),
    "tool": ({"tool": "tool_3"}, lambda _n, made: "tool_3" in made.tools),
    "outcome": ({"outcome": "success"}, lambda _n, made: made.outcome == "success"),
    "confidence": ({"min_confidence": 0.6}, lambda _n, made: made.confidence >= 0.6),
    "since": (
        {"since": 1_788_000_000_000},
        lambda _n, made: made.ended >= 1_788_000_000_000,
    ),
    "concepts": (
        {"concepts": ["cancel", "order"]},
        lambda _n, made: bool({"cancel", "order"} & set(made.concepts)),
    ),
    "domains": (
        {"domains": ["domain-2"]},
        lambda _n, made: made.context["domain"] == "domain-2",
    ),
    "event types": ({"event_types": ["user_feedback"]}, lambda n, _made: n % 5 == 0),
    "several": (
        {"outcome": "success", "since": 1_788_000_000_000, "tool": "tool_3"},
        lambda _n, made: (
            made.outcome == "success" and made.ended >= 1_788_000_000_000 and "tool_3" in made.tools
        ),
    ),
}


def ask(stored: StoredEpisodes, *queries: MemoryQuery) -> list[Retrieval]:
    async def run() -> list[Retrieval]:
        async with RetrievalService(stored.dsn, [EMBEDDER], timeout_s=60) as service:
            return [await service.search(query) for query in queries]

    found = asyncio.run(run())
    assert [each.degraded for each in found] == [()] * len(queries)
    return found


def ids(found: Retrieval) -> list[int]:
    return [each.id for each in found.episodes]


def similarity(made: MadeEpisode, text: str) -> float:
    both = EMBEDDER.embed([made.query, text]).astype(np.float16).astype(float)
    return float(both[0] @ both[1])


@pytest.mark.parametrize("given", MODES.values(), ids=MODES)
def test_no_mode_finds_another_tenants_episodes(
    stored: StoredEpisodes, given: dict[str, Any]
) -> None:
    queries = [MemoryQuery(tenant=tenant, k=500, **given) for tenant in (*TENANTS, "nobody")]
    *found, none = ask(stored, *queries)
    for tenant, each in zip(TENANTS, found, strict=True):
        assert each.episodes
        assert set(ids(each)) <= stored.of(tenant).keys()
    assert none.episodes == ()


@pytest.mark.parametrize("name", PASSING)
def test_the_nearest_that_pass_a_filter_are_found(stored: StoredEpisodes, name: str) -> None:
    """zeph #5732: facts of another scope were found."""
    given, passes = PASSING[name]
    of_tenant = stored.of("tenant-1")
    passing = [
        each.id
        for number, each in enumerate(stored.made)
        if each.tenant == "tenant-1" and passes(number, each)
    ]
    assert passing
    kinds = [
        {"mode": "vector", "k": 10},
        {"mode": "vector", "k": 500},
        {"mode": "lexical", "k": 500},
    ]
    nearest, every, lexical = ask(
        stored, *(MemoryQuery(text=QUERY, tenant="tenant-1", **given, **kind) for kind in kinds)
    )
    assert sorted(ids(every)) == sorted(passing)
    assert set(ids(lexical)) == {
        each
        for each in passing
        if set(QUERY.replace(",", "").split()) & set(of_tenant[each].query.split())
    }
    exact = sorted((similarity(of_tenant[each], QUERY) for each in passing), reverse=True)
    similarities = [each.similarity or 0.0 for each in nearest.episodes]
    assert similarities == pytest.approx(exact[:10], abs=2e-3)
    assert similarities == sorted(similarities, reverse=True)


@pytest.mark.parametrize("filters", ["nothing", "outcome", "tool"])
def test_large_tenants_are_searched_by_the_index(
    stored: StoredEpisodes, filters: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """hindsight PR 3541: a limit beyond ef_search found fewer."""
    monkeypatch.setattr(search, "EXACT_ROWS", 10)
    given, passes = PASSING[filters]
    matching = sum(
        passes(number, each) and each.tenant == "tenant-1"
        for number, each in enumerate(stored.made)
    )
    for k in (1, 10, 60, 500):
        (found,) = ask(
            stored, MemoryQuery(text=QUERY, tenant="tenant-1", mode="vector", k=k, **given)
        )
        assert len(found.episodes) == min(k, matching)
        scores = [each.score for each in found.episodes]
        assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("mode", ["lexical", "vector", "hybrid"])
@pytest.mark.parametrize("tenant", TENANTS)
def test_as_many_as_match_are_found(stored: StoredEpisodes, tenant: str, mode: Any) -> None:
    """honcho #1048: fewer results than top_k."""
    every = len(stored.of(tenant))
    text = "the my a to of for with is was i need want have from in on it and not before after"
    matching = every if mode != "lexical" else sum(
        bool(set(text.split()) & set(each.query.split())) for each in stored.of(tenant).values()
    )  # fmt: skip
    sizes = (1, 7, 100, 500)
    found = ask(stored, *(MemoryQuery(text=text, tenant=tenant, mode=mode, k=k) for k in sizes))
    assert [len(each.episodes) for each in found] == [min(k, matching) for k in sizes]
    assert len(set(ids(found[-1]))) == len(found[-1].episodes)


def test_an_equal_query_is_found_whatever_its_case_and_spaces(stored: StoredEpisodes) -> None:
    made = stored.made[0]
    text = f"  {made.query.upper()}  ".replace(" ", "\t ")
    found, none = ask(
        stored,
        MemoryQuery(text=text, tenant=made.tenant, mode="exact"),
        MemoryQuery(text=made.query + " now", tenant=made.tenant, mode="exact"),
    )
    assert ids(found) == [made.id]
    assert none.episodes == ()
    assert found.episodes[0].calls[0].tool == made.tools[0]


def test_query_and_context_must_both_be_equal_if_both_are_given(stored: StoredEpisodes) -> None:
    made = stored.made[0]
    other = {**made.context, "complexity": "unheard of"}
    found, none = ask(
        stored,
        *(
            MemoryQuery(
                text=made.query, context=context, workflow_type=made.workflow_type,
                tenant=made.tenant, mode="exact",
            )
            for context in (made.context, other)
        ),
    )  # fmt: skip
    assert (ids(found), none.episodes) == ([made.id], ())


@pytest.mark.parametrize(
    "keys", [("domain",), ("region", "domain"), ("nowhere",), ("region", "nowhere")]
)
def test_contexts_are_equal_in_the_chosen_keys(
    stored: StoredEpisodes, keys: tuple[str, ...]
) -> None:
    context = {"domain": "domain-0", "region": "region-4", "other": [1, {"a": None}]}
    wanted = {key: context[key] for key in keys if key in context}
    (found,) = ask(
        stored,
        MemoryQuery(
            context=context, keys=keys, workflow_type="workflow-3", tenant="tenant-1",
            mode="exact", k=500,
        ),
    )  # fmt: skip
    matching = [
        each
        for each in stored.of("tenant-1").values()
        if each.workflow_type == "workflow-3"
        and {key: each.context[key] for key in keys if key in each.context} == wanted
    ]
    newest = sorted(matching, key=lambda each: (-each.ended, each.id))
    assert ids(found) == [each.id for each in newest]


def test_fuzzy_contexts_are_sorted_by_equal_pairs(stored: StoredEpisodes) -> None:
    context = {"domain": "domain-0", "region": "region-4", "channel": "mail"}
    found, few = ask(
        stored,
        *(MemoryQuery(context=context, tenant="tenant-1", mode="fuzzy", k=k) for k in (500, 3)),
    )

    def pairs(made: MadeEpisode) -> int:
        return sum(made.context[key] == value for key, value in context.items())

    of_tenant = stored.of("tenant-1")
    expected = sorted((pairs(each) for each in of_tenant.values() if pairs(each)), reverse=True)
    assert [pairs(of_tenant[each]) for each in ids(found)] == expected
    assert ids(few) == ids(found)[:3]
    assert found.episodes[0].score == 1


def test_the_hybrid_mode_prefers_what_several_modes_find(stored: StoredEpisodes) -> None:
    made = stored.made[3]
    (found,) = ask(
        stored,
        MemoryQuery(
            text=made.query, context=made.context, workflow_type=made.workflow_type,
            tenant=made.tenant,
        ),
    )  # fmt: skip
    assert found.episodes[0].id == made.id
    assert found.episodes[0].similarity == pytest.approx(1, abs=2e-3)


def test_age_counts_if_asked(stored: StoredEpisodes) -> None:
    plain, aged = (
        found.episodes
        for found in ask(
            stored,
            *(
                MemoryQuery(text=QUERY, tenant="tenant-1", mode="vector", k=20, half_life_days=days)
                for days in (None, 1.0)
            ),
        )
    )
    scores = [each.score for each in aged]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 20
    assert scores[-1] > 0
    assert sum(each.ended for each in aged) > sum(each.ended for each in plain)


def test_diverse_results_are_less_alike(stored: StoredEpisodes) -> None:
    def likeness(found: Retrieval) -> float:
        rows = EMBEDDER.embed([each.query or "" for each in found.episodes])
        return float((rows @ rows.T).mean())

    plain, diverse = ask(
        stored,
        *(
            MemoryQuery(text=QUERY, tenant="tenant-1", mode="vector", k=10, diversity=diversity)
            for diversity in (0.0, 0.7)
        ),
    )
    assert len(diverse.episodes) == 10
    assert diverse.episodes[0].id == plain.episodes[0].id
    assert likeness(diverse) < likeness(plain)


def test_only_live_episodes_are_found(stored: StoredEpisodes) -> None:
    wanted = MemoryQuery(text=QUERY, tenant="tenant-2", mode="vector", k=5)
    (before,) = ask(stored, wanted)
    gone = ids(before)[:2]
    state = "UPDATE episodes SET state = %s WHERE tenant = 'tenant-2' AND id = ANY (%s)"
    with psycopg.connect(stored.owner_dsn) as owner:
        owner.execute(state, ["merged", gone])
        owner.commit()
        try:
            (after,) = ask(stored, wanted)
        finally:
            owner.execute(state, ["live", gone])
    assert len(after.episodes) == 5
    assert set(ids(after)).isdisjoint(gone)


def test_row_level_security_stops_a_request_for_another_tenant(stored: StoredEpisodes) -> None:
    async def run() -> int:
        async with await psycopg.AsyncConnection.connect(stored.dsn) as connection:
            await connection.execute("SELECT set_config('headstart.tenant', 'tenant-2', true)")
            for mode in (
                {"mode": "lexical", "text": QUERY},
                MODES["fuzzy"],
                MODES["equal context"],
            ):
                query = MemoryQuery(tenant="tenant-1", **mode)
                found = await Search(connection, query, WordCounter(), None).run()
                assert found == ()
            return 1

    assert asyncio.run(run())
