"""Resets and seeds: what they do at their offset, and that a repetition does nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from learners.registry import policy
from processing.config import LearningConfig
from processing.state.rows import context_key, decode_context, encode_context, is_deleted
from processing.task import PartitionTask
from tests.processing.building import EPOCH, NOW, Table, context, counts, fetch, judged, reasons
from tests.processing.control_records import EVERY, RETAIL, record, run
from topics.control.messages import (
    Default,
    DefaultEvidence,
    LearnedState,
    Reset,
    Seed,
    Seeded,
    TypeEvidence,
)

ALICE = RETAIL + "/user_id=alice"


def reset(pattern: str = "*", **fields: Any) -> Any:
    return record(Reset(**{"id": "r1", "at": NOW, "pattern": pattern, **fields}))


def seeded(path: str = EVERY, learner: str = "td", **fields: Any) -> Seeded:
    given = {"version": policy(learner).version, "state": (0.81, 0.8, 0.6, 0.5), **fields}
    return Seeded(learner, given.pop("version"), given.pop("state"), 40, path, 30, 20, **given)


def seed(*contexts: Seeded, **fields: Any) -> Any:
    return record(Seed(**{"id": "s1", "at": NOW, "tenant": "acme", "place": 0, "contexts": contexts,
                          **fields}))  # fmt: skip


def there(table: Table, path: str = EVERY, tenant: str = "acme") -> bool:
    return not is_deleted(table.get(context_key(tenant, path), b"\0" * 16))


def test_a_reset_forgets_what_its_pattern_holds_for_and_all_below() -> None:
    events = [judged(user_id="alice"), judged(tenant="globex")]
    table, commit = run(*events, reset("domain=retail", tenant="acme"))
    assert [there(table, path) for path in (EVERY, RETAIL, ALICE)] == [True, False, False]
    assert there(table, RETAIL, "globex")
    assert {each.path for each in commit.moved if each.deleted} == {RETAIL, ALICE}
    assert counts(table).forgotten == 2


def test_an_empty_seed_changes_nothing_and_stops_no_partition() -> None:
    table, commit = run(seed(), judged(), seed(at=NOW + 1, tenant="nobody"))
    assert commit.dead_letters == []
    assert context(table).outcomes == 1
    assert counts(table).seeded == 0


def test_reset_contexts_learn_from_nothing() -> None:
    table, _ = run(judged(correct=False), judged(), reset(), judged())
    alone, _ = run(judged())
    assert context(table).state == context(alone).state
    assert context(table).outcomes == 1


def test_a_reset_that_comes_again_or_late_forgets_nothing_more() -> None:
    table, _ = run(judged(), reset(), judged(), reset(), reset(id="r0"))
    assert there(table)
    table, _ = run(reset(id="r2"), table=table)
    assert not there(table)


def test_a_seeded_context_has_the_given_state_and_goes_on() -> None:
    table, commit = run(judged(), seed(seeded()))
    assert context(table).state == (0.81, 0.8, 0.6, 0.5)
    assert context(table).outcomes == 40
    assert [each.speculate for each in commit.moved] == [0.81]
    assert counts(table).seeded == 1
    table, _ = run(judged(), seed(seeded()), table=table)  # the same once more
    assert context(table).outcomes == 41


def test_one_pass_gives_what_a_pass_with_restarts_gives() -> None:
    records = [judged(user_id="alice"), seed(seeded(), seeded(RETAIL)), judged(), reset(RETAIL)]
    records += [judged(user_id="alice"), seed(seeded(), id="s2"), judged()]
    table, _ = run(*records)
    rows: Table = {}
    core = PartitionTask(0, 1, EPOCH, LearningConfig(policy("td")), rows.get)
    batch = fetch(*(each[0] if isinstance(each, tuple) else each for each in records))
    batch.headers |= {at: each[1] for at, each in enumerate(records) if isinstance(each, tuple)}
    core.apply(batch)
    rows.update(core.commit().rows)
    assert rows == table


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (seeded(learner="ema", state=()), "state: is none of ema"),
        (seeded(learner="fixed", state=()), "is learned by td here, not fixed"),
        (seeded(ALICE), "is not there, which is above"),
        (seeded(version=9), "state: is none of td"),
    ],
)
def test_a_seed_that_cannot_be_followed_is_a_dead_letter(wrong: Seeded, message: str) -> None:
    table, commit = run(seed(seeded(), wrong))
    (reason,) = reasons(commit)
    assert message in reason
    assert not there(table)


def test_a_seed_is_for_its_own_partition() -> None:
    value, headers = seed(seeded())
    refused = []
    for partition in range(4):
        core = PartitionTask(partition, 4, EPOCH, LearningConfig(policy("td")), {}.get)
        batch = fetch(value)
        batch.headers[0] = headers
        core.apply(batch)
        refused += reasons(core.commit())
    assert len(refused) == 3
    assert msgspec.json.decode(value)["kind"] == "seed"


HOPS = policy("hops")
FORGED = (0.0, 1.0, 100.0, 600.0, 0.0, 0.0, -10.0, 0.0, -10.0, 0.0, 0.0, 0.0, 0.0, 1.0,
          0.0, 0.0, 0.0, 0.0)  # fmt: skip
NO_COLD = (*HOPS.initial()[:12], 0.0, *HOPS.initial()[13:])


def applied(*records: Any) -> Any:
    """Return what a partition that learns by HOPS commits after control records and an event."""
    core = PartitionTask(0, 1, EPOCH, LearningConfig(HOPS), {}.get)
    for offset, (value, headers) in enumerate([*records, (judged(), None)]):
        batch = fetch(value, offsets=[offset])
        if headers is not None:
            batch.headers[offset] = headers
        core.apply(batch)
        core.answers()
    return core.commit()


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (FORGED, "slope variance is -10, which must be 1e-12 to 1000"),
        (NO_COLD, "cold variance is 0"),
        ((1e308,) * 18, "depth is 1e+308"),
    ],
)
def test_a_state_that_no_learner_reaches_is_a_dead_letter(state: Any, why: str) -> None:
    known = TypeEvidence("hops", 2, state, 30, EVERY)
    message = [
        seed(seeded(learner="hops", version=2, state=state)),
        record(Default("d", NOW, "acme", EPOCH, 1, LearnedState("hops", 2, state, 30))),
        record(DefaultEvidence("e", NOW, "acme", 0, EPOCH, 1, (known,))),
    ]
    for each in message:
        commit = applied(each)
        (reason,) = reasons(commit)
        assert f"state: is none of hops: {why}" in reason
        assert commit.events == 1
    assert reasons(applied(message[0]))[0].startswith(f"{EVERY}: state")


def test_a_row_with_an_unreachable_state_is_reset() -> None:
    """One that an earlier version took in would end every worker that restores it."""
    commit = applied(seed(seeded(learner="hops", version=2, state=HOPS.initial())))
    rows = dict(commit.rows)
    key = context_key("acme", EVERY)
    row = decode_context(rows[key])
    rows[key] = encode_context(row._replace(state=FORGED))
    core = PartitionTask(0, 1, EPOCH, LearningConfig(HOPS), rows.get)
    core.restore(rows.items())
    core.apply(fetch(judged(), offsets=[core.applied_offset + 1]))
    (answer, *_) = core.answers()
    assert 0.0 < answer.speculate < 1.0
