"""Where an event belongs, whatever the levels are and in whatever order."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from headstart.keys import level_value
from processing.contexts.levels import context_key_getter
from processing.records.decode import decode_record
from tests.processing.building import NOW, event

LEVELS = st.permutations(["domain", "user_id", "region", "tool_id"]).flatmap(
    lambda levels: st.integers(0, len(levels)).map(lambda count: levels[:count])
)
texts = st.sampled_from(["retail", "x" * 300, ""])
value = st.none() | st.booleans() | st.integers(-1000, 1000) | texts


@given(LEVELS, st.dictionaries(st.sampled_from(["domain", "region", "more"]), value) | st.none())
def test_each_level_has_its_value(levels: list[str], context: dict[str, Any] | None) -> None:
    data = {} if context is None else {"data": {"context": context}}
    (found,), refused = decode_record(orjson.dumps(event(user_id="u", tool_id="t", **data)), NOW)
    assert not refused
    levels_given = {**(context or {}), "user_id": "u", "tool_id": "t"}
    expected = [level_value(levels_given.get(level)) for level in levels]
    assert context_key_getter(levels)(found) == ("acme", "refund", *expected)
