"""Past answers from Postgres: whose they are, and that no writer displaces those of another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from memory.episodes.record import Episode
from memory.retrieval.answers import SAFE, AnswerRule, PastAnswer
from memory.retrieval.client import Memory
from memory.retrieval.equal_runs import WRITERS
from memory.retrieval.journal import apply_judgements
from memory.store.importing import import_episodes
from sinks.connections import connect_postgres
from tests.memory.finished_runs import finished_run
from tests.memory.stored_runs import WordEmbedder

pytestmark = pytest.mark.integration

QUERY = "what is my balance"
SHARED = AnswerRule(shared=True)


def answered(number: int, user: str | None, response: str, **fields: Any) -> Episode:
    run = finished_run("a", number, QUERY, ("look_up",))
    return run._replace(user_id=user, response=response, **fields)


def keep(dsn: str, episodes: Iterable[Episode]) -> None:
    async def steps() -> None:
        async with await connect_postgres(dsn) as connection:
            await import_episodes(connection, list(episodes))

    asyncio.run(steps())


def ask(
    dsn: str, user: str | None, text: str = QUERY, rule: AnswerRule = SAFE, **fields: Any
) -> PastAnswer:
    given = {"workflow_type": "order", "context": {}, **fields}
    with Memory(dsn, tenant="a", embedders=[WordEmbedder()], timeout_s=60) as memory:
        return memory.answer(text, rule=rule, user_id=user, **given)


def test_an_answer_goes_to_its_own_user_only(migrated: str) -> None:
    keep(migrated, [answered(1, "ann", "10 EUR"), answered(2, "bob", "99 EUR")])
    given = {user: ask(migrated, user, "What is MY balance").response for user in ("ann", "bob")}
    assert given == {"ann": "10 EUR", "bob": "99 EUR"}
    assert ask(migrated, "cid").response is None
    assert ask(migrated, None).response is None
    assert len(ask(migrated, "cid").similar) == 2, "runs of others are shown as context"
    assert ask(migrated, "cid", rule=SHARED).response == "99 EUR"
    assert ask(migrated, "ann", context={"currency": "USD"}).response is None


def test_two_independent_writers_answer_for_all(migrated: str) -> None:
    unnamed = [answered(10 + n, None, "to 6 pm", session_id=f"s{n}") for n in range(3)]
    keep(migrated, unnamed)
    assert ask(migrated, "ann").response is None, "runs that name no user are one writer"
    assert ask(migrated, None).response == "to 6 pm"
    keep(migrated, [answered(1, "bob", "to 6 pm")])
    assert ask(migrated, "ann").response == "to 6 pm"
    keep(migrated, [answered(20, "bob", "to 5 pm")])
    assert ask(migrated, "ann").response is None, "bob says something else now"


def test_runs_of_another_writer_do_not_displace_the_own_one(migrated: str) -> None:
    others = [answered(100 + n, "bob", "99 EUR") for n in range(3 * WRITERS)]
    many = [answered(200 + n, f"user-{n}", "1 EUR") for n in range(2 * WRITERS)]
    keep(migrated, [answered(1, "ann", "10 EUR"), *others, *many])
    assert ask(migrated, "ann").response == "10 EUR"
    assert ask(migrated, "cid").response == "1 EUR"


def test_a_newer_failure_withdraws_answers_also_of_another(migrated: str) -> None:
    keep(migrated, [answered(1, "ann", "10 EUR"), answered(2, "bob", "", outcome="failure")])
    assert ask(migrated, "ann").response is None


def test_chosen_keys_of_the_context_are_enough(migrated: str) -> None:
    stored = {"account": 7, "asked_at": "noon"}
    keep(migrated, [answered(1, "ann", "10 EUR", context=stored)])
    now = {"account": 7, "asked_at": "night"}
    assert ask(migrated, "ann", context=now).response is None
    by_account = AnswerRule(keys=("account",))
    assert ask(migrated, "ann", rule=by_account, context=now).response == "10 EUR"
    assert ask(migrated, "ann", rule=by_account, context={"account": 8}).response is None


def test_an_answer_that_was_rejected_is_not_given_again(migrated: str) -> None:
    keep(migrated, [answered(1, "ann", "10 EUR")])
    given = {"workflow_type": "order", "context": {}, "user_id": "ann"}
    with Memory(migrated, tenant="a", embedders=[WordEmbedder()], timeout_s=60) as memory:
        past = memory.answer(QUERY, **given)
        assert past.retrieval is not None
        assert past.episode is not None
        assert memory.evaluated(past.retrieval, [past.episode.id], accepted=False) == ""

        async def judged() -> int:
            async with await connect_postgres(migrated) as connection:
                return await apply_judgements(connection, "a")

        assert asyncio.run(judged()) == 1
        assert memory.answer(QUERY, **given).response is None
