"""Control records: signatures, when they take effect, and which choice holds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from learners.registry import policy
from processing.control.learner_assignments import parts
from tests.processing.building import EPOCH, NOW, Table, context, judged, reasons
from tests.processing.control_records import EVERY, RETAIL, record, run
from topics.control.messages import (
    CONTROL_HEADER,
    SIGNATURE_HEADER,
    Default,
    Downweight,
    LearnerChoice,
    Reset,
    Seed,
    Seeded,
)

KEY = b"secret"


def choice(learner: str | None = "ema", pattern: str = "*", **fields: Any) -> LearnerChoice:
    given = {"id": "c1", "at": NOW, **fields}
    return LearnerChoice(pattern=pattern, learner=learner, **given)


def learner(table: Table, path: str = EVERY) -> str:
    return context(table, path).learner


def test_a_choice_takes_effect_with_the_next_outcome_from_an_empty_state() -> None:
    table, _ = run(judged(), judged(), record(choice()))
    assert learner(table) == "td"
    table, commit = run(judged(correct=False), table=table)
    assert learner(table) == "ema"
    assert context(table).outcomes == 3
    restarted, _ = run(record(choice()), judged(correct=False))
    assert context(table).state == context(restarted).state
    assert {each.learner for each in commit.thresholds} == {"ema"}


def test_another_parameter_of_the_same_policy_goes_on() -> None:
    table, _ = run(judged(), judged())
    table, _ = run(record(choice("td:alpha=0.5")), judged(), table=table)
    fresh, _ = run(record(choice("td:alpha=0.5")), judged())
    assert learner(table) == "td:alpha=0.5"
    assert context(table).state != context(fresh).state


def test_below_a_chosen_level_the_levels_above_go_on_by_their_own_policy() -> None:
    table, commit = run(record(choice("hops", "domain=retail")), judged(), judged())
    assert (learner(table), learner(table, RETAIL)) == ("td", "hops")
    assert [each.deviation is not None for each in commit.thresholds] == [False, True]


def test_the_most_special_choice_holds() -> None:
    choices = [
        choice("ema", "*", id="1"),
        choice("pid", EVERY, id="2"),
        choice("gradient", "domain=retail/workflow_type=*", id="3"),
        choice("aci", RETAIL + "/user_id=*", id="4"),
        choice("sliding", "*", id="5", tenant="globex"),
    ]
    events = [judged(user_id="u1"), judged(tenant="globex")]
    table, _ = run(*map(record, choices), *events)
    assert learner(table) == "pid"
    assert learner(table, RETAIL) == "gradient"
    assert learner(table, RETAIL + "/user_id=u1") == "aci"
    assert context(table, EVERY, "globex").learner == "sliding"


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 1, 0), (1, 0, 1, 1)])
def test_the_later_choice_holds_in_whatever_order_and_however_often_they_come(
    order: tuple[int, ...],
) -> None:
    choices = [choice("ema", id="1"), choice("pid", id="2", at=NOW + 1)]
    table, _ = run(*(record(choices[place]) for place in order), judged())
    assert learner(table) == "pid"


def test_a_choice_can_be_taken_back() -> None:
    table, _ = run(record(choice()), record(choice(None, id="c2")), judged())
    assert learner(table) == "td"


def test_a_choice_survives_a_new_epoch_and_is_no_duplicate_of_itself() -> None:
    table, _ = run(record(choice()))
    row = next(row for key, row in table.items() if key.startswith(b"k"))
    table, _ = run(record(choice()), table=table)
    assert row in table.values()  # at the offset of its first coming


@pytest.mark.parametrize(
    ("control", "choices"),
    [
        (record(choice()), "is not signed"),
        (record(choice(), b"another"), "signature is not of"),
        ((record(choice(), KEY)[0] + b" ", record(choice(), KEY)[1]), "signature is not of"),
        (record(choice("nonsense"), KEY), "there is no policy 'nonsense'"),
        (record(choice(pattern="retail"), KEY), "give * or key=value parts"),
        (record(choice(at=NOW + 4_000_000), KEY), "hours ahead of the record's Kafka timestamp"),
    ],
)
def test_invalid_or_unsigned_records_are_dead_letters(control: Any, choices: str) -> None:
    table, commit = run(control, key=KEY)
    (reason,) = reasons(commit)
    assert choices in reason
    table, _ = run(judged(), table=table, key=KEY)
    assert learner(table) == "td"


def test_a_signed_choice_holds() -> None:
    table, _ = run(record(choice(), KEY), judged(), key=KEY)
    assert learner(table) == "ema"


def test_invalid_control_records_are_named() -> None:
    for value in (b"", b"{}", b'{"kind":"learner"}', b'{"kind":"purge"}', b"\xff"):
        _, commit = run((value, [(CONTROL_HEADER, b"1")]))
        assert reasons(commit)[0].startswith("not a control record")


def test_a_control_record_is_for_the_threshold_agent_only() -> None:
    headers = dict(record(choice(), KEY)[1])
    assert headers["headstart.group"] == b"headstart-thresholds"
    assert len(headers[SIGNATURE_HEADER]) == 64
    assert msgspec.json.decode(record(choice())[0])["kind"] == "learner"


@pytest.mark.parametrize("wrong", ["", "a", "=b", "a=b/", "a=b=c", "a=b\x1f"])
def test_invalid_patterns(wrong: str) -> None:
    with pytest.raises(ValueError, match="key=value"):
        parts(wrong)


@pytest.mark.parametrize("tenant", ["a\x1fb", "\x1f", "a\x00", "a\x1f\n"])
def test_a_tenant_that_no_event_has_is_refused(tenant: str) -> None:
    """Its rows would be another tenant's, once they are read back."""
    state = policy("td").initial()
    seeded = Seeded("td", policy("td").version, state, 1, EVERY, 0, 0)
    for choices in (
        choice(tenant=tenant),
        Reset("r", NOW, "*", tenant),
        Seed("s", NOW, tenant, 0, (seeded,)),
        Downweight("w", NOW, tenant, RETAIL, 2, NOW),
        Default("d", NOW, tenant, EPOCH, 1),
    ):
        table, commit = run(record(choices))
        (reason,) = reasons(commit)
        assert "tenant" in reason
        assert len(table) == 1
