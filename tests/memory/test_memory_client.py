"""Agents search by plain functions, from threads and from async code."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from typer.testing import CliRunner

from cli.main import app
from memory.embedding.interface import Vectors
from memory.embedding.wordllama import WordLlamaEmbedder
from memory.retrieval.answers import AnswerRule
from memory.retrieval.client import Memory
from memory.retrieval.request import InvalidQuery
from tests.memory.stored_episodes import StoredEpisodes

pytestmark = pytest.mark.integration

TEXT = "please cancel my flight"
PATIENT_S = 60


def test_one_object_serves_threads_and_async_code(stored: StoredEpisodes) -> None:
    with Memory(stored.dsn, tenant="tenant-1", timeout_s=PATIENT_S) as memory:
        first = [each.id for each in memory.search(TEXT).episodes]
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda _: memory.search(TEXT), range(40)))

        async def run() -> list[int]:
            direct = memory.search(TEXT)
            beside = await asyncio.to_thread(memory.search, TEXT)
            return [each.id for each in (*direct.episodes, *beside.episodes)]

        assert asyncio.run(run()) == first + first
    assert len(first) == 10
    assert all([one.id for one in each.episodes] == first for each in found)
    assert [each.id for each in memory.search(TEXT).episodes] == first  # it starts again
    memory.close()
    memory.close()


def test_cases_are_rendered_as_data(stored: StoredEpisodes) -> None:
    with Memory(stored.dsn, tenant="tenant-1", timeout_s=PATIENT_S) as memory:
        found = memory.context(TEXT, tokens=900, outcome="success")
        none = memory.context(TEXT, tool="never called")
    assert 1 <= found.shown == len(found.evidence) <= 4
    assert found.tokens <= 900
    best = found.evidence[0].example
    assert best in found.retrieval.episodes
    assert best.calls[0].tool in found.text
    assert str(best.query)[:12] in found.text
    assert (none.text, none.retrieval.degraded) == ("", ())
    assert none.reason == "no finished run with a tool call matches"


def test_a_past_answer_needs_an_equal_query_and_context(stored: StoredEpisodes) -> None:
    made = next(
        each
        for each in stored.made
        if each.tenant == "tenant-1" and each.outcome == "success" and each.confidence > 0.7
    )
    with Memory(stored.dsn, tenant="tenant-1", timeout_s=PATIENT_S) as memory:
        given = {"workflow_type": made.workflow_type, "rule": AnswerRule(shared=True)}
        same = memory.answer(made.query.upper(), context=made.context, **given)
        unshared = memory.answer(
            made.query.upper(), workflow_type=made.workflow_type, context=made.context
        )
        other = memory.answer(made.query, context={**made.context, "user": "x"}, **given)
    assert same.response == f"Done: {made.query}."
    assert same.episode is not None
    assert same.episode.id == made.id
    assert unshared.response is None
    assert other.response is None
    assert other.similar[0].id == made.id


def test_without_a_database_nothing_is_raised(closed: str) -> None:
    host, _, port = closed.partition(":")
    with Memory(f"host={host} port={port} dbname=x user=y", timeout_s=0.5) as memory:
        first = memory.search(TEXT)
        begun = time.monotonic()
        again = [memory.search(TEXT) for _ in range(20)]
        assert time.monotonic() - begun < 9  # not one timeout each
        context = memory.context(TEXT)
        assert (context.text, context.evidence) == ("", ())
        assert f"{host}:{port}" in context.reason
        with pytest.raises(InvalidQuery):
            memory.search("")
    for found in (first, *again):
        assert found.episodes == ()
        assert f"{host}:{port}" in found.degraded[0]


class HangingEmbedder(WordLlamaEmbedder):
    """Has the name of the stored model, and does not answer until it is told to."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def embed(self, texts: Sequence[str], /) -> Vectors:
        self.released.wait(60)
        return super().embed(texts)


def test_the_first_call_too_ends_in_time_without_the_model(stored: StoredEpisodes) -> None:
    embedder = HangingEmbedder()
    begun = time.monotonic()
    with Memory(
        stored.dsn, tenant="tenant-1", embedders=[embedder], timeout_s=1, embedding_timeout_s=0.05
    ) as memory:
        (reason,) = memory.search(TEXT, mode="vector").degraded
        assert time.monotonic() - begun < 10
        assert "did not answer within 0.05 s" in reason
        embedder.released.set()


def test_the_applications_own_logs_of_psycopg_stay(
    closed: str, caplog: pytest.LogCaptureFixture
) -> None:
    host, _, port = closed.partition(":")
    log = logging.getLogger("psycopg.pool")
    with Memory(f"host={host} port={port} dbname=x user=y", embedders=(), timeout_s=0.5) as memory:
        assert memory.search(TEXT).degraded
        log.warning("of the application")
    assert [each.message for each in caplog.records if each.name == log.name] == [
        "of the application"
    ]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_forked_while_a_thread_begins_searches_too(stored: StoredEpisodes) -> None:
    with Memory(stored.dsn, tenant="tenant-1", timeout_s=PATIENT_S) as memory:
        with memory._lock:  # as a thread has it that makes the first call
            child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(2 * PATIENT_S)  # ends a child that waits for ever
                code = 0 if memory.search(TEXT).episodes else 1
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert memory.search(TEXT).episodes


def command(*arguments: str) -> tuple[int, str, str]:
    ended = CliRunner().invoke(app, ["memory", *arguments])
    return ended.exit_code, ended.stdout, ended.stderr


def test_the_command_searches(stored: StoredEpisodes) -> None:
    where = ("--postgres", stored.dsn, "--tenant", "tenant-1")
    code, out, _ = command("search", TEXT, *where, "--json", "--k", "3", "--outcome", "success")
    found = json.loads(out.splitlines()[-1])
    assert (code, found["degraded"], len(found["episodes"])) == (0, [], 3)
    assert {each["outcome"] for each in found["episodes"]} == {"success"}
    assert found["episodes"][0]["calls"][0]["tool"] == found["episodes"][0]["tools"][0]
    code, out, _ = command("search", *where, "--mode", "fuzzy", "--context", '{"channel": "mail"}')
    assert (code, out.count("0x")) == (0, 10), "the ids of the rows"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((TEXT, "--tool", "never called"), 1, "no episode matches"),
        (("",), 2, "the query is empty"),
        ((TEXT, "--k", "0"), 2, "from 1 to 500"),
        ((TEXT, "--mode", "psychic"), 2, "it is one of: exact,"),
        ((TEXT, "--event-type", "begun"), 2, "no event type"),
        (("--mode", "fuzzy", "--context", "[1]"), 2, "must be a JSON object"),
        (("--mode", "fuzzy", "--context", "{"), 2, "no JSON"),
        ((TEXT, "--since", "yesterday"), 2, "no age"),
    ],
)
def test_the_command_says_what_is_wrong(
    stored: StoredEpisodes, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ended, out, err = command(
        "search", *arguments, "--postgres", stored.dsn, "--tenant", "tenant-1"
    )
    assert (ended, out) == (code, "")
    assert said in " ".join(err.split())
