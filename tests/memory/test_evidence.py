"""Contexts show what runs say together: clusters, ranked by the active policy, or nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb
from typer.testing import CliRunner

from cli.main import app
from memory.episodes.record import Episode
from memory.ranking.policy import CasePolicy
from memory.ranking.pool import FEATURES
from memory.ranking.standing import JudgedRankings, Standing
from memory.retrieval.client import CaseContext, Memory
from memory.store.importing import embed_imported, import_episodes
from sinks.connections import connect_postgres
from sinks.postgres.migrate import migrate
from tests.memory.finished_runs import AT, COURSES, finished_run, finished_runs
from tests.memory.stored_runs import WordEmbedder

pytestmark = pytest.mark.integration

TENANT = "a"
TEXT = "cancel filler1 filler2 filler3 filler4"


@pytest.fixture(scope="module")
def owner(postgres_dsn: str) -> Iterator[str]:
    name = f"test_{uuid4().hex}"
    which = sql.Identifier(name)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(which))
        dsn = make_conninfo(postgres_dsn, dbname=name)
        asyncio.run(migrate(dsn))
        asyncio.run(store(dsn, finished_runs(TENANT, 160)))
        yield dsn
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(which))


async def store(dsn: str, episodes: list[Episode]) -> None:
    async with await connect_postgres(dsn) as connection:
        await import_episodes(connection, episodes)
        await embed_imported(connection, episodes, WordEmbedder())


def memory_of(owner: str, tenant: str = TENANT) -> Memory:
    reader = make_conninfo(owner, user="headstart_reader")
    return Memory(reader, tenant=tenant, embedders=[WordEmbedder()], timeout_s=60)


def add_version(owner: str, version: int, status: str, standing: Standing) -> None:
    """Store a version whose weights know that only telling words count."""
    policy = CasePolicy()
    weights = [4.0 if name == "telling" else 0.0 for name in FEATURES]
    state = {"after": "0", "chance": policy.chance, "learned": 64, "standing": standing.to_json()}
    with psycopg.connect(owner) as connection:
        connection.execute("UPDATE memory_policies SET status = 'old' WHERE status = 'active'")
        connection.execute(
            "INSERT INTO memory_policies (tenant, version, features, weights, metrics, status, "
            "state) VALUES (%s, %s, %s, %s, %s, %s, %s)",
            [TENANT, version, list(FEATURES), weights, Jsonb(standing.metrics()), status,
             Jsonb(state)],
        )  # fmt: skip


def firsts(found: CaseContext) -> tuple[str, ...]:
    return found.evidence[0].cluster.sequence


def standing(policy: float, similarity: float, usual: float) -> Standing:
    found = Standing()
    for _ in range(64):
        found.add("order", JudgedRankings(policy, similarity, usual, policy - similarity))
    return found


def test_similarity_ranks_until_a_policy_is_active_and_nothing_where_none_helps(
    owner: str,
) -> None:
    with memory_of(owner) as memory:
        plain = memory.context(TEXT, tokens=2_000)
        assert plain.policy is None
        assert plain.shown == len(plain.evidence) >= 1
        assert memory.stages(plain.retrieval)[0].data["policy"] is None
        add_version(owner, 1, "active", standing(0.9, 0.3, 0.2))
        by_policy = memory.context(TEXT, tokens=2_000)
        assert (by_policy.policy, firsts(by_policy)) == (1, COURSES["cancel"])
        stage = memory.stages(by_policy.retrieval)[0].data
        ids = [str(each.id) for each in by_policy.retrieval.episodes]
        assert (stage["policy"], stage["episodes"]) == (1, ids)
        assert memory.reused(by_policy.retrieval) == ""
        right = sum(firsts(memory.context(f"{word} filler9 filler8 filler7")) == course
                    for word, course in COURSES.items())  # fmt: skip
        assert right == len(COURSES)
        add_version(owner, 2, "refused", standing(0.2, 0.3, 0.2))
        assert memory.context(TEXT).policy is None
        add_version(owner, 3, "refused", standing(0.2, 0.2, 0.9))
        nothing = memory.context(TEXT)
        assert (nothing.text, nothing.evidence, nothing.shown) == ("", (), 0)
        assert "foresaw no more than the usual course" in nothing.reason
        assert memory.stages(nothing.retrieval)[0].data["episodes"] == []
        assert memory.search(TEXT).episodes  # a search is no advice
        add_version(owner, 4, "active", standing(0.9, 0.2, 0.3))
        assert memory.context(TEXT).policy == 4


def test_a_case_says_how_many_runs_of_how_many_writers_and_how_sure_it_is(owner: str) -> None:
    runs = [
        finished_run("counts", n, "book a table", ("find", "book"), user=f"u{n % 3}")
        for n in range(12)
    ]
    bad = finished_run("counts", 12, "book a table", ("find", "ask"), outcome="failure")
    asyncio.run(store(owner, [*runs, bad]))
    with memory_of(owner, "counts") as memory:
        found = memory.context("book a table", tokens=2_000)
        own = memory.context("book a table", writer="user:u1")
        small = memory.context("book a table", tokens=10)
    best = found.evidence[0].cluster
    assert (best.support, best.writers, best.confirmed, best.success_rate) == (12, 3, True, 1.0)
    assert "Case 1 (12 runs of 3 writers)" in found.text
    assert "Success: 1.00 (0.76 to 1.00)" in found.text
    assert 'Contrast: "failure" after "find"' in found.text
    assert own.evidence[0].cluster.confirmed
    assert (small.text, small.reason) == ("", "no case fits into 10 tokens")


def test_one_other_writer_is_marked_and_comes_last(owner: str) -> None:
    text = "reset my password"
    poison = [
        finished_run("poisoned", n, text, ("export_all", "send"), user="mallory") for n in range(50)
    ]
    honest = [
        finished_run("poisoned", 50 + n, f"{text} please {n}", ("find", "reset"), user=f"u{n}")
        for n in range(3)
    ]
    asyncio.run(store(owner, [*poison, *honest]))
    with memory_of(owner, "poisoned") as memory:
        found = memory.context(text, tokens=2_000)
        by_mallory = memory.context(text, writer="user:mallory")
    assert firsts(found) == ("find", "reset")
    assert [each.cluster.confirmed for each in found.evidence] == [True, False]
    assert "Case 2 (50 runs of 1 writer, unconfirmed)" in found.text
    assert {each.cluster.confirmed for each in by_mallory.evidence} == {True}


def test_a_new_run_is_shown_by_the_next_request(owner: str) -> None:
    with memory_of(owner, "fresh") as memory:
        assert memory.context("water the plants").reason.startswith("no finished run")
        run = finished_run("fresh", 1, "water the plants", ("find_can", "water"))
        open_run = run._replace(workflow_id="open", id=7, outcome=None, ended=AT)
        asyncio.run(store(owner, [run, open_run]))
        found = memory.context("water the plants")
    assert [each.id for each in found.retrieval.episodes] == [run.id]


def test_the_commands_show_cases_and_versions(owner: str) -> None:
    def command(*words: str) -> tuple[int, str, str]:
        found = CliRunner().invoke(app, ["memory", *words, "--postgres", owner])
        return found.exit_code, found.stdout, found.stderr

    code, out, err = command("policy", "--tenant", TENANT, "--json")
    assert (code, json.loads(out)["active"]) == (0, 4), err
    newest = json.loads(out)["versions"][0]
    assert (newest["weights"]["telling"], newest["metrics"]["policy"]) == (4.0, pytest.approx(0.9))
    code, out, err = command("policy", "--tenant", TENANT)
    assert (code, "version 4 ranks the cases of a" in err) == (0, True)
    code, out, err = command("policy", "--tenant", "nobody")
    assert (code, "version of the policy" in err) == (1, True)
    words = ("context", "reset my password", "--tenant", "poisoned")
    code, out, err = command(*words, "--json")
    cases = json.loads(out)["cases"]
    assert (code, [each["confirmed"] for each in cases]) == (0, [True, False]), err
    code, out, _ = command(*words)
    assert (code, "</memory" in out.splitlines()[-1]) == (0, True)
    code, out, err = command("context", "reset", "--tenant", "nobody")
    assert (code, out, "no case: no finished run" in err) == (1, "", True)
    assert command("context", "", "--tenant", "x")[0] == 2
