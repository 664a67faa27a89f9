"""What goes into Postgres comes out again: escapes, types, unknown fields, times."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headstart.events.schema import new_id, stamp
from sinks.connections import connect_postgres
from sinks.postgres.batch_writer import RejectedRow
from sinks.postgres.copy_format import encode_columns, encode_json
from sinks.postgres.episodes import EpisodeSink, encode_event, encode_events
from sinks.postgres.queries import events_of_workflow

TORTURE = "\\ \\\\ \\N \\. \t tab \n line \r\n \"'`$ {}[]%s \x7f \x01 é ✓ 𝄞 \u2028 \ufffe \\x41 \\t"

text = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40
) | st.sampled_from([TORTURE, "\\", "\\N", "\t", "\n", "\\.", "\r"])
# beyond 2^53 jsonb, being decimal, gives an integer that is not the float to the bit
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(-(2.0**53), 2.0**53)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)
identifier = text.filter(bool)
optional = st.none() | identifier


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    event = {
        "id": new_id(),
        "event_type": draw(st.sampled_from(["task_complete", "user_feedback"])),
        "workflow_type": draw(identifier),
        "workflow_id": "w1",
        "timestamp": draw(st.integers(0, 253_402_300_799_999)),
        "data": draw(st.dictionaries(text, json_values, max_size=4)),
        "confidence": draw(st.none() | st.integers(0, 1000).map(lambda n: n / 1000)),
        "success": draw(st.none() | st.booleans()),
        **{name: draw(optional) for name in ("task_id", "user_id", "agent_id", "session_id")},
    }
    unknown = draw(st.dictionaries(st.text("xyz", min_size=1), json_values, max_size=3))
    given_fields = {key: value for key, value in event.items() if value is not None}
    return {**given_fields, **unknown}


async def refuse_none(refused: Sequence[RejectedRow]) -> None:
    raise AssertionError(f"refused: {refused}")


async def round_trip(dsn: str, batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
    tenant = uuid4().hex
    sent = [{**event, "tenant": tenant} for event in batch]
    async with await EpisodeSink.open(dsn) as sink:
        with_origin = [{**event, "origin": ["spool", 1]} for event in sent]
        lines = [encode_event(orjson.dumps(event)) for event in with_origin]
        stored = await sink.store(lines, {}, topic="t", epoch=1, on_refused=refuse_none)
        assert stored == len(batch)
    async with await connect_postgres(dsn) as connection:
        back = await events_of_workflow(connection, tenant, "w1")
    assert [event.pop("tenant") for event in back] == [tenant] * len(batch)
    return sorted(back, key=lambda event: str(event["id"]))


@pytest.mark.integration
def test_every_event_comes_back_as_it_went(migrated: str) -> None:
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(events(), min_size=1, max_size=8))
    def law(batch: list[dict[str, Any]]) -> None:
        back = asyncio.run(round_trip(migrated, batch))
        assert back == sorted(batch, key=lambda event: str(event["id"]))

    law()


@pytest.mark.integration
def test_very_long_strings_come_back(migrated: str) -> None:
    event = {
        "id": new_id(),
        "event_type": "task_complete",
        "workflow_type": "refund",
        "workflow_id": "w1",
        "timestamp": 0,
        "data": {"query": TORTURE * 5_000, "context": {TORTURE: TORTURE * 50}},
        "note": "\\" * 100_000,
    }
    assert asyncio.run(round_trip(migrated, [event])) == [event]


@pytest.mark.integration
def test_events_of_one_millisecond_come_back_in_the_order_of_their_emission(migrated: str) -> None:
    fields = {"event_type": "task_complete", "workflow_type": "refund", "workflow_id": "w1",
              "timestamp": 1_760_000_000_000, "tenant": uuid4().hex}  # fmt: skip
    emitted = [stamp({**fields, "task_id": str(number)}) for number in range(80)]

    async def run() -> list[str]:
        async with await EpisodeSink.open(migrated) as sink:
            lines = [encode_event(orjson.dumps(event)) for event in reversed(emitted)]
            await sink.store(lines, {}, topic="t", epoch=1, on_refused=refuse_none)
        async with await connect_postgres(migrated) as connection:
            found = await events_of_workflow(connection, str(fields["tenant"]), "w1")
        return [event["task_id"] for event in found]

    assert asyncio.run(run()) == [str(number) for number in reversed(range(80))]


@given(st.lists(events(), max_size=4))
def test_lines_are_the_same_made_together(batch: list[dict[str, Any]]) -> None:
    raws = [orjson.dumps({**event, "tenant": "t"}) for event in batch]
    assert encode_events(raws) == [encode_event(raw) for raw in raws]


@pytest.mark.integration
def test_a_confidence_too_small_for_real_is_stored_as_zero(migrated: str) -> None:
    event = {
        "id": new_id(),
        "event_type": "task_complete",
        "workflow_type": "refund",
        "workflow_id": "w1",
        "timestamp": 0,
    }
    back = asyncio.run(round_trip(migrated, [{**event, "confidence": 5e-324}]))
    assert back == [{**event, "confidence": 0, "data": {}}]
    assert math.copysign(1, back[0]["confidence"]) == 1


def test_text_columns_are_escaped() -> None:
    assert encode_columns(("a", "", "c")) == b"a\t\tc"
    assert encode_columns(("a\tb", "c\\d", "e\nf\rg")) == b"a\\tb\tc\\\\d\te\\nf\\rg"
    assert encode_json(b'{"a":\r\n\t"\\t\\\\"}') == rb'{"a":   "\\t\\\\"}'


def test_a_column_that_is_no_text_is_an_error() -> None:
    with pytest.raises(TypeError):
        encode_columns(("a", 5))  # type: ignore[arg-type]
