"""Texts of events: sealed and opened again they are the same bytes; nothing else is touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.postgres.copy_format import encode_json
from sinks.postgres.encryption.event_texts import FIELDS, NESTED, open_data, seal_data, seal_lines
from sinks.postgres.encryption.master_keys import (
    VARIABLE,
    EncryptionKeyMissing,
    UnusableEncryptionKey,
    master_keys,
    new_master_key,
    parse_master_keys,
)
from sinks.postgres.encryption.sealing import PREFIX, DataKey
from sinks.postgres.encryption.tenant_keys import TenantKeys
from sinks.postgres.episodes import encode_event
from tests.sinks.encryption.keys import KEY, NEW, OLD

KEYS = TenantKeys({("acme", 1): KEY})
ID = "019a0000-0000-7000-8000-000000000001"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=6,
)  # fmt: skip


@given(
    st.dictionaries(st.sampled_from([*FIELDS, "context", "insights"]), VALUES),
    st.dictionaries(st.sampled_from(["output", "cost_ms"]), VALUES),
    st.booleans(),
)
def test_what_is_sealed_is_opened_to_the_same_bytes(
    fields: dict[str, Any], result: dict[str, Any], ascii_only: bool
) -> None:
    data = json.dumps({**fields, "result": result}, ensure_ascii=ascii_only).encode()
    sealed = seal_data(data, KEY, ID)
    assert json.loads(open_data(sealed, KEYS, "acme", ID)) == json.loads(data)
    inside = json.loads(sealed)
    for name, value in inside.items():
        if name in FIELDS and fields[name] not in (None, ""):
            assert value.startswith(PREFIX)
        elif name != "result":
            assert value == fields[name]
    if result.get("output") not in (None, ""):
        assert inside["result"]["output"].startswith(PREFIX)
    assert inside["result"].get("cost_ms") == result.get("cost_ms")


@pytest.mark.parametrize(("parent", "name"), NESTED)
def test_fields_of_objects_are_sealed(parent: str, name: str) -> None:
    data = orjson.dumps({parent: {name: "secret", "other": 1.5}})
    sealed = seal_data(data, KEY, ID)
    assert b"secret" not in sealed
    assert open_data(sealed, KEYS, "acme", ID) == data


def test_a_sealed_text_belongs_to_its_event_field_and_tenant() -> None:
    sealed = json.loads(seal_data(b'{"query":"secret","response":"other"}', KEY, ID))
    swapped = {"query": sealed["response"], "response": sealed["query"]}
    both = TenantKeys({("acme", 1): KEY, ("rival", 1): KEY._replace(tenant="rival")})
    other = ID[:-1] + "2"
    for content, tenant, event in ((swapped, "acme", ID), (sealed, "acme", other),
                                   (sealed, "rival", ID)):  # fmt: skip
        raw = orjson.dumps(content)
        assert open_data(raw, both, tenant, event) == raw


@pytest.mark.parametrize(
    "fake", [PREFIX, f"{PREFIX}1:", f"{PREFIX}1:AAAA", f"{PREFIX}9:{'A' * 80}", f"{PREFIX}x:y",
             f"{PREFIX}1:{'A' * 80}", f"{PREFIX}{'9' * 99}:AAAA"]
)  # fmt: skip
def test_a_text_that_looks_sealed_stays_a_text(fake: str) -> None:
    raw = orjson.dumps({"query": fake})
    assert open_data(raw, KEYS, "acme", ID) == raw
    assert open_data(seal_data(raw, KEY, ID), KEYS, "acme", ID) == raw


def test_of_a_shredded_key_the_texts_are_gone_and_the_rest_stays() -> None:
    sealed = seal_data(b'{"query":"secret","outcome":"success"}', KEY, ID)
    shredded = TenantKeys({("acme", 1): KEY._replace(key=None)})
    assert open_data(sealed, shredded, "acme", ID) == b'{"outcome":"success"}'


@pytest.mark.parametrize(
    "data",
    [
        {"query": 'a tab\t, a \\ and "quotes"\n', "context": {"path": "C:\\new"}},
        {"query": "é 中 \U0001f600", "arguments": {"of": ["\U0001f600"]}},
        {"response": "x" * 70_000},
    ],
)
def test_lines_of_copy_are_sealed(data: dict[str, Any]) -> None:
    event = {"id": ID.replace("-", "").upper(), "event_type": "task_complete", "tenant": "acme",
             "workflow_type": "w", "workflow_id": "r", "timestamp": 1_750_000_000_000,
             "data": data}  # fmt: skip
    for raw in (orjson.dumps(event), json.dumps(event).encode()):
        line = encode_event(raw)
        (sealed,) = seal_lines([line], KEYS)
        before, after = line.split(b"\t"), sealed.split(b"\t")
        assert before[:13] + before[14:] == after[:13] + after[14:]
        column = after[13].replace(b"\\\\", b"\\")
        assert encode_json(column) == after[13]
        assert json.loads(open_data(column, KEYS, "acme", ID)) == data
        assert not any(str(value)[:9].encode() in sealed for value in data.values()
                       if isinstance(value, str))  # fmt: skip


def test_a_name_that_is_written_with_escapes_is_sealed() -> None:
    raw = b'{"id":"%b","event_type":"task_complete","tenant":"acme",' % ID.encode()
    raw += b'"workflow_type":"w","workflow_id":"r","timestamp":1750000000000,'
    raw += b'"data":{"qu\\u0065ry":"secret"}}'
    assert b"secret" not in seal_lines([encode_event(raw)], KEYS)[0]


@pytest.mark.parametrize("text", [rb'"a\u0000b"', rb'"\ud800"', rb'{"a":["\udc00"]}'])
def test_what_postgres_refuses_is_left_for_it_to_refuse(text: bytes) -> None:
    data = b'{"query":%b}' % text
    assert seal_data(data, KEY, ID) == data


def test_two_seals_of_one_text_differ() -> None:
    assert seal_data(b'{"query":"a"}', KEY, ID) != seal_data(b'{"query":"a"}', KEY, ID)


def test_keyed_hashes_are_equal_for_one_key_only() -> None:
    other = DataKey("acme", 2, b"\x08" * 32)
    assert KEY.keyed_hash(-5) == KEY.keyed_hash(-5)
    assert len({KEY.keyed_hash(-5), KEY.keyed_hash(5), other.keyed_hash(-5), -5}) == 4


def test_the_newest_master_key_wraps_and_all_unwrap() -> None:
    before, both = parse_master_keys(OLD), parse_master_keys(f"{NEW}\n{OLD}\n")
    wrapped = before.wrap(b"x" * 32, "acme", 1)
    assert both.newest == "k2"
    assert both.unwrap("k1", wrapped, "acme", 1) == b"x" * 32
    with pytest.raises(EncryptionKeyMissing, match="'k1', which is not among the given ones"):
        parse_master_keys(NEW).unwrap("k1", wrapped, "acme", 1)
    for tenant, number in (("rival", 1), ("acme", 2)):
        with pytest.raises(EncryptionKeyMissing, match="'k1' is not the one"):
            both.unwrap("k1", wrapped, tenant, number)


@pytest.mark.parametrize(
    ("text", "message"),
    [("k1", "not the base64 of 32 bytes"), ("k1:AAAA", "not the base64"), (":", "give ID:BASE64"),
     ("k 1:AAAA", "give ID:BASE64"), (f"{OLD},{OLD}", "two keys have the id 'k1'")],
)  # fmt: skip
def test_unusable_keys_are_refused_and_not_repeated(text: str, message: str) -> None:
    with pytest.raises(UnusableEncryptionKey, match=message) as refused:
        parse_master_keys(text)
    assert "AAAA" not in str(refused.value)


def test_a_new_key_can_be_used() -> None:
    assert parse_master_keys(f"{new_master_key('a')},{new_master_key('b')}").newest == "a"
    assert "k1" not in repr(parse_master_keys(OLD))


def test_the_file_of_keys_is_read_at_every_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    monkeypatch.setenv(f"{VARIABLE}_FILE", str(file))
    with pytest.raises(UnusableEncryptionKey, match="cannot be read"):
        master_keys()
    for text, newest in ((OLD, "k1"), (f"{NEW}\n{OLD}", "k2")):
        file.write_text(text + "\n")
        assert master_keys().newest == newest
