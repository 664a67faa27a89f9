"""Whether the calls of a past run can be made with the tools that are offered now."""

from __future__ import annotations

from typing import Any

import pytest

from memory.cases.offered_tools import OfferedTools
from memory.episodes.canonical import canonical_json
from memory.episodes.record import MadeCall

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["number", "null"]},
        "state": {"enum": ["open", "done"]},
        "kind": {"const": "order"},
        "more": {"$ref": "#/$defs/More"},
        "any": True,
    },
    "required": ["id"],
}
OPEN = {**SCHEMA, "additionalProperties": True}


def misfit(arguments: Any, schema: Any = SCHEMA) -> str:
    return OfferedTools({"find": schema}).misfit([MadeCall("find", canonical_json(arguments))])


@pytest.mark.parametrize(
    "arguments",
    [
        {"id": 1},
        {"id": 1, "price": 2.5, "state": "open", "kind": "order", "more": [1], "any": "x"},
        {"id": 1, "price": None},
        {"$cut": "00ff"},
        {"$text": "order 7"},
    ],
)
def test_what_fits_is_kept(arguments: Any) -> None:
    assert misfit(arguments) == ""


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"order": 1}, "find: argument 'id' is required"),
        ({"id": 1, "order": 1}, "find: argument 'order' is not known"),
        ({"id": "1"}, "find: argument 'id' has another type or value"),
        ({"id": True}, "find: argument 'id' has another type or value"),
        ({"id": 1.5}, "find: argument 'id' has another type or value"),
        ({"id": 1, "price": "2"}, "find: argument 'price' has another type or value"),
        ({"id": 1, "state": "new"}, "find: argument 'state' has another type or value"),
        ({"id": 1, "kind": 3}, "find: argument 'kind' has another type or value"),
    ],
)
def test_what_does_not_fit_is_named(arguments: Any, why: str) -> None:
    assert misfit(arguments) == why


def test_more_arguments_pass_where_the_schema_takes_them() -> None:
    assert misfit({"id": 1, "order": 1}, OPEN) == ""
    assert misfit({"id": 1, "order": 1}, {**SCHEMA, "anyOf": [{}]}) == ""
    assert misfit({"order": 1}, {}) == "find: argument 'order' is not known"
    assert misfit({"order": 1}, None) == ""


def test_a_tool_that_is_gone_makes_the_run_stale_and_names_alone_are_enough() -> None:
    calls = [MadeCall("find", '{"id":1}'), MadeCall("pay", "{}")]
    assert OfferedTools(["find"]).misfit(calls) == "pay is not offered"
    assert OfferedTools(["find", "pay", "other"]).misfit(calls) == ""
    assert OfferedTools([]).misfit([]) == ""


def test_runs_that_were_logged_without_arguments_are_compared_by_their_tools() -> None:
    tools = OfferedTools({"find": SCHEMA, "pay": SCHEMA})
    unlogged = [MadeCall("find", "{}"), MadeCall("pay", "{}")]
    assert tools.misfit(unlogged) == ""
    logged = [MadeCall("find", '{"id":1}'), MadeCall("pay", "{}")]
    assert tools.misfit(logged) == "pay: argument 'id' is required"


@pytest.mark.parametrize("tools", [{"find": "text"}, [7]])
def test_tools_that_are_none_are_refused(tools: Any) -> None:
    with pytest.raises(ValueError, match="needs a JSON schema or None"):
        OfferedTools(tools)
