"""The published contract: schema files, derived decoder and golden examples agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec
import orjson
import pytest

from headstart.events.schema import Event, EventType, InvalidEvent
from headstart.events.validation import validate
from processing.records.decode import decode_record
from topics.catalogue import TOPICS
from topics.notices.messages import decode_notice, encode_notice
from topics.schema.event_structs import EVENT, derive
from topics.schema.json_schema import FOLDER, PublishedThreshold, render, schemas

GOLDEN = Path(__file__).parents[2] / "topics" / "schema" / "golden"
FRAMES = sorted(set(GOLDEN.glob("*.json")) - {GOLDEN / "threshold.json", GOLDEN / "notice.json"})
REFUSED = sorted((GOLDEN / "refused").glob("*.json"))
DOCUMENTED = derive(Event, documented=True)
"""The struct that the JSON Schema is made from: it refuses what the schema refuses."""
BEYOND_SCHEMA = {"nul_byte_in_query", "nested_too_deep"}
"""Rules of the check that our JSON Schemas do not have."""


def events_of(path: Path) -> list[dict[str, Any]]:
    loaded = orjson.loads(path.read_bytes())
    return loaded if isinstance(loaded, list) else [loaded]


def named(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("name", sorted(schemas()))
def test_the_schema_files_are_those_that_the_types_give(name: str) -> None:
    assert (FOLDER / name).read_bytes() == render(schemas()[name]), (
        "run python -m topics.schema.json_schema"
    )


def test_there_is_no_other_schema_file() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(schemas())


def test_every_topic_with_a_schema_has_its_file() -> None:
    named_schemas = {f"{topic.schema}.schema.json" for topic in TOPICS if topic.schema}
    assert named_schemas == set(schemas())


def test_the_schema_lists_the_fields_of_the_record() -> None:
    definition = schemas()["event.schema.json"]["$defs"]["Event"]
    assert set(definition["properties"]) == set(Event.__annotations__)
    assert set(definition["required"]) == Event.__required_keys__
    assert definition["properties"]["tenant"]["pattern"] == r"^[^\u0000\u001f]*$"
    assert "additionalProperties" not in definition  # unknown fields are welcome


def test_there_is_a_golden_frame_of_every_event_type() -> None:
    for kind in get_args(EventType):
        events = events_of(GOLDEN / f"{kind}.json")
        assert {event["event_type"] for event in events} == {kind}
        assert len({(event["tenant"], event["workflow_type"]) for event in events}) == 1


def test_the_golden_examples_use_every_field() -> None:
    events = [event for path in FRAMES for event in events_of(path)]
    assert {name for event in events for name in event} >= set(Event.__annotations__)
    data = schemas()["event.schema.json"]["$defs"]["Data"]["properties"]
    assert {name for event in events for name in event.get("data", {})} == set(data)


def test_golden_ids_are_all_different() -> None:
    ids = [event["id"] for path in FRAMES for event in events_of(path)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("path", FRAMES, ids=named)
def test_a_golden_example_passes_every_check(path: Path) -> None:
    value = path.read_bytes()
    events = events_of(path)
    for event in events:
        validate(event, now_ms=event["timestamp"])
        msgspec.convert(event, DOCUMENTED)
    decoded, refused = decode_record(value, events[0]["timestamp"])
    assert refused == ()
    assert [str(event.id) for event in decoded] == [event["id"] for event in events]
    openly = msgspec.json.decode(orjson.dumps(events), type=list[EVENT])
    assert msgspec.to_builtins(list(decoded)) == msgspec.to_builtins(openly)


@pytest.mark.parametrize("path", REFUSED, ids=named)
def test_a_refused_example_names_the_field_that_is_wrong(path: Path) -> None:
    example = orjson.loads(path.read_bytes())
    with pytest.raises(InvalidEvent) as caught:
        validate(example["event"])
    assert caught.value.field == example["field"]
    raw = orjson.dumps(example["event"])
    decoded, (refusal,) = decode_record(raw, 1_760_000_000_000)
    assert not decoded
    assert (refusal.raw, refusal.reason) == (raw, str(caught.value))


@pytest.mark.parametrize("path", REFUSED, ids=named)
def test_the_schema_refuses_what_it_can_express(path: Path) -> None:
    event = orjson.loads(path.read_bytes())["event"]
    if path.stem in BEYOND_SCHEMA:
        msgspec.convert(event, DOCUMENTED)
    else:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(event, DOCUMENTED)


def test_there_are_refused_examples() -> None:
    assert len(REFUSED) > 10
    assert {path.stem for path in REFUSED} > BEYOND_SCHEMA


def test_the_golden_threshold_is_a_threshold_and_nothing_more() -> None:
    value = (GOLDEN / "threshold.json").read_bytes()
    threshold = msgspec.json.decode(value, type=PublishedThreshold)
    assert msgspec.to_builtins(threshold) == orjson.loads(value)
    assert threshold.path.startswith(f"workflow_type={threshold.workflow_type}/")
    assert 0 <= threshold.suggest < threshold.speculate <= 1


def test_the_golden_notice_is_a_notice_and_nothing_more() -> None:
    value = (GOLDEN / "notice.json").read_bytes()
    notice = decode_notice(value)
    assert msgspec.to_builtins(notice) == orjson.loads(value)
    assert orjson.loads(encode_notice(notice)) == orjson.loads(value)


def test_a_threshold_needs_every_field_but_those_that_may_be_unknown() -> None:
    record = orjson.loads((GOLDEN / "threshold.json").read_bytes())
    may_be = {name: record.pop(name) for name in ("deviation", "gain", "cost", "counts")}
    assert msgspec.convert(record, PublishedThreshold).deviation is None
    for name in record:
        rest = {key: value for key, value in record.items() if key != name}
        with pytest.raises(msgspec.ValidationError, match=name):
            msgspec.convert({**rest, **may_be}, PublishedThreshold)
