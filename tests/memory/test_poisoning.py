"""Fifty poisoned cases of one writer steer nothing: neither retrievals nor guesses."""

from __future__ import annotations

import asyncio

import pytest

from headstart.prediction.interface import PredictedCall, ToolCall
from memory.cases.case import Case
from memory.embedding.wordllama import WordLlamaEmbedder
from memory.episodes.hashes import hash64
from memory.episodes.record import Episode
from memory.ranking.evidence import CallIndex
from memory.retrieval.client import Memory
from memory.speculation.rules import CalibratedVotes, RunShown
from memory.store.importing import embed_imported, import_episodes
from sinks.connections import connect_postgres
from tests.memory.finished_runs import finished_run

USERS, COPIES = 3, 50
POISON = ("export_all", "send")
VERBS = ("cancel", "track", "return", "exchange", "review", "gift", "insure", "reorder")
OBJECTS = ("laptop", "mattress", "bicycle", "coffee", "umbrella")
TASKS = [(verb, thing) for verb in VERBS for thing in OBJECTS]
PHRASES = ("please {} my {}", "{} the {}", "i want to {} a {}", "can you {} this {}", "{} {} now")
EMBEDDER = WordLlamaEmbedder()


def query(task: int, phrase: int) -> str:
    return PHRASES[phrase].format(*TASKS[task])


def course(task: int) -> tuple[str, ...]:
    verb, thing = TASKS[task]
    return f"find_{thing}", verb


def honest() -> list[Episode]:
    return [
        finished_run("acme", task * USERS + user, query(task, user), course(task),
                     user=f"u{user}")
        for task in range(len(TASKS)) for user in range(USERS)
    ]  # fmt: skip


def poisoned() -> list[Episode]:
    """Copies of questions that will be asked, with success, by one writer."""
    return [
        finished_run("acme", 10_000 + n, query(n % 10, n % len(PHRASES)), POISON, user="mallory")
        for n in range(COPIES)
    ]


def answers(dsn: str) -> list[tuple[str, ...]]:
    """Return the first course of each of 200 retrievals."""
    with Memory(dsn, tenant="acme", embedders=[EMBEDDER], timeout_s=60) as memory:
        found = []
        for task in range(len(TASKS)):
            for phrase in range(len(PHRASES)):
                evidence = memory.context(query(task, phrase), tokens=2_000).evidence
                found.append(evidence[0].cluster.sequence if evidence else ())
        return found


@pytest.mark.integration
def test_fifty_poisoned_cases_steer_none_of_200_retrievals(migrated: str) -> None:
    async def store(episodes: list[Episode]) -> None:
        async with await connect_postgres(migrated) as connection:
            await import_episodes(connection, episodes)
            await embed_imported(connection, episodes, EMBEDDER)

    asyncio.run(store([*honest(), *poisoned()]))
    found = answers(migrated)
    wanted = [course(task) for task in range(len(TASKS)) for _ in PHRASES]
    assert len(found) == 200
    assert sum(each == POISON for each in found) == 0
    right = sum(one == other for one, other in zip(found, wanted, strict=True))
    assert right >= 199, "at a cost of at most half a point"


FIRST = ToolCall("find", {"item": 1})


def case(number: int, writer: str, tool: str) -> Case:
    calls = (FIRST, ToolCall(tool, {"item": 1}))
    return Case(str(hash64(writer, str(number))), writer, "", "refund", "q", calls, 1.0, number)


def confidences(cases: list[Case], user: str = "user:me") -> dict[str, float]:
    """Return the confidences of guesses of `pay` and `export`, each .6 before."""
    index = CallIndex()
    for each in cases:
        index.add(each)
    rule = CalibratedVotes().run(index, RunShown(user, [], [FIRST]))
    guesses = [PredictedCall(tool, {"item": 1}, 0.6, None) for tool in ("pay", "export")]  # type: ignore[arg-type]
    return {each.guess.tool: each.guess.confidence for each in rule.judged(guesses, 0)}


@pytest.mark.parametrize("writer", ["user:mallory", "run:", "session:"])
@pytest.mark.parametrize("others", [0, 3])
def test_fifty_poisoned_cases_raise_no_confidence(writer: str, others: int) -> None:
    """Also where nothing else is known, and where each run has a session of its own."""
    known = [case(n, f"user:u{n}", "pay") for n in range(others)]
    poison = [
        case(n, f"{writer}{n}" if writer.endswith(":") else writer, "export")
        for n in range(100, 100 + COPIES)
    ]
    without, found = confidences([]), confidences([*known, *poison])
    assert found["export"] <= without["export"]
    if others and writer == "user:mallory":
        assert found["pay"] > without["pay"]


def test_one_case_of_one_other_writer_raises_no_confidence() -> None:
    assert confidences([case(1, "user:u1", "pay")])["pay"] <= confidences([])["pay"]
