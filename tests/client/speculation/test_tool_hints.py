"""Hints of tools are found under every name and in every place where frameworks keep them."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from headstart.speculation.tool_allowlist import SAFE, ToolAllowlist
from headstart.speculation.tool_hints import ALSO_NESTED, APPROVAL, NESTED, read_hints


class Kind(Enum):
    UNAPPROVED = "unapproved"


class AdkTool:
    """Keeps the option as Google ADK's FunctionTool does."""

    def __init__(self, require_confirmation: bool | Callable[..., bool]) -> None:
        self._require_confirmation = require_confirmation


class Computed:
    """Has attributes that `dir` does not list, as a Pydantic model with extra fields."""

    def __init__(self, **fields: object) -> None:
        self.__pydantic_extra__ = fields

    def __getattr__(self, name: str) -> object:
        try:
            return self.__pydantic_extra__[name]
        except KeyError:
            raise AttributeError(name) from None


class Annotated:
    """Has class annotations named as hints, which are no hints about the tool."""

    read_only: bool = True
    needs_approval: bool = False


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


FORBIDDEN: list[object] = [
    AdkTool(True), AdkTool(lambda account: account == "shared"),
    SimpleNamespace(needsApproval=True), SimpleNamespace(NEEDS_APPROVAL=True),
    SimpleNamespace(_destructiveHint=True), Computed(needsApproval=True),
    Computed(_require_confirmation=True), {"_meta": {"destructiveHint": True}},
    {"meta": {"needs_approval": True}}, {"extras": {"needs_approval": True}},
    SimpleNamespace(extras={"needs_approval": True}), {"Annotations": {"destructiveHint": True}},
    SimpleNamespace(_mcp_tool=SimpleNamespace(annotations={"destructive_hint": True})),
    SimpleNamespace(_mcp_tool=SimpleNamespace(meta={"x-openai-isConsequential": True})),
    {"a": 1, "tool_config": {"require_approval": "always"}}, {"metadata": {"human_input": True}},
    {"kind": "Unapproved"}, {"kind": Kind.UNAPPROVED}, SimpleNamespace(kind=Kind.UNAPPROVED),
    {"metadata": [{"cost": 1}, {"needs_approval": True}]}, {"annotations": ([{"destructive": 1}],)},
    SimpleNamespace(metadata=[SimpleNamespace(kind="unapproved")]),
    {"requires_user_input": True}, {"function": {"external_execution": True}},
]  # fmt: skip


@pytest.mark.parametrize("declared", FORBIDDEN)
def test_a_forbidding_hint_is_found(declared: Any) -> None:
    tools = ToolAllowlist(annotations={"pay": declared}, allowed={"pay"})
    assert tools.refusal_reason("pay") != SAFE
    if isinstance(declared, dict):
        declared["readOnlyHint"] = True
    else:
        declared.readOnlyHint = True
    assert ToolAllowlist(annotations={"pay": declared}).refusal_reason("pay") != SAFE


@pytest.mark.parametrize("name", APPROVAL)
@pytest.mark.parametrize("place", [None, *NESTED, *ALSO_NESTED])
def test_every_name_is_found_in_every_place_and_spelling(name: str, place: str | None) -> None:
    for spelt in (name, camel(name), f"_{name}", name.upper(), f"_{camel(name)}"):
        for hints in ({spelt: True}, SimpleNamespace(**{spelt: True})):
            assert read_hints("pay", hints if place is None else {f"_{place}": hints}).approval
            if place is not None:
                assert read_hints("pay", SimpleNamespace(**{camel(place): hints})).approval


@pytest.mark.parametrize("place", ALSO_NESTED)
def test_a_place_that_no_framework_keeps_hints_in_allows_nothing(place: str) -> None:
    assert not read_hints("search", {place: {"readOnlyHint": True}}).read_only
    assert not read_hints("search", {"readOnlyHint": True, place: {"readOnly": False}}).read_only
    assert read_hints("search", {"readOnlyHint": True, place: {"readOnly": True}}).read_only
    assert not read_hints("search", SimpleNamespace(_read_only=True)).read_only
    for holder in NESTED:
        assert not read_hints("search", {holder: [{"readOnlyHint": True}]}).read_only


def test_what_says_nothing_forbids_nothing() -> None:
    assert read_hints("search", {"metadata": ["safe"] * 99, "kind": 5}) == (False,) * 3
    assert read_hints("search", Annotated()) == (True, False, False)
    assert read_hints("search", AdkTool(False)) == (False, False, False)
    assert read_hints("search", {"meta": "text", "extras": None, "tool": 5}) == (False,) * 3
    assert not read_hints("search", {"meta": {"approval_mode": "never_require"}}).approval


def test_a_cycle_ends_and_a_deep_hint_is_found() -> None:
    tool: dict[str, Any] = {"readOnlyHint": True}
    tool["metadata"] = {"tool": tool}
    assert read_hints("search", tool) == (True, False, False)
    deep: dict[str, Any] = {"needs_approval": True}
    for _ in range(20):
        deep = {"metadata": deep}
    assert read_hints("pay", deep).approval


def test_what_has_no_end_or_cannot_be_read_needs_approval() -> None:
    class Broken:
        @property
        def annotations(self) -> object:
            raise RuntimeError

    class Endless:
        def __getattr__(self, name: str) -> object:
            if name in NESTED:
                return Endless()
            raise AttributeError(name)

    for declared in (Broken(), Endless(), MagicMock()):
        assert read_hints("pay", declared).approval
