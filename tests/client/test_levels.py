"""Levels: names with which nothing would be learned, or twice, are refused; content is not."""

from __future__ import annotations

import pytest

from headstart import AsyncThresholds, Thresholds
from headstart.arguments.checks import InvalidArgument
from headstart.arguments.levels import split_levels, wrong_level

NOWHERE = "redis://127.0.0.1:1"


@pytest.mark.parametrize(
    ("levels", "why"),
    [
        (("domain", "domain"), "'domain' is there twice"),
        (("workflow_type",), "part of every context already"),
        (("domain", "tenant"), "part of every context already"),
        (("workflow_id",), "is no level; give user_id"),
        (("taskId",), "is no level"),
        (("success",), "is no level"),
        (("data",), "is no level"),
        (("context",), "is no level"),
        (("user",), "did you mean 'user_id'"),
        (("users",), "did you mean 'user_id'"),
        (("userId",), "did you mean 'user_id'"),
        (("usr_id",), "did you mean 'user_id'"),
        (("sesion_id",), "did you mean 'session_id'"),
        (("tool",), "did you mean 'tool_id'"),
        (("Domain",), "did you mean 'domain'"),
        (("tennant",), "nearly 'tenant'"),
        (("tenant_id",), "nearly 'tenant'"),
        (("workflowType",), "nearly 'workflow_type'"),
        (("domain", " region"), "is no name"),
        (("a,b",), "is no name"),
    ],
)
def test_an_invalid_level_is_refused(levels: tuple[str, ...], why: str) -> None:
    assert why in (wrong_level(levels) or "")
    for reader in (Thresholds, AsyncThresholds):
        with pytest.raises(InvalidArgument, match="levels"):
            reader(NOWHERE, levels=levels)


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_part_is_refused(name: str) -> None:
    assert wrong_level(("domain", name)) is not None


@pytest.mark.parametrize(
    "name",
    [
        "user_id", "agent_id", "session_id", "tool_id", "domain", "customer_id", "region",
        "user_tier", "tenant_tier", "pool_id", "order_id", "account_id", "version_id", "team_id",
        "subdomain", "complexity", "plan", "country", "agent_type", "priority", "project",
    ],
)  # fmt: skip
def test_content_of_ones_own_is_a_level(name: str) -> None:
    assert wrong_level((name,)) is None
    Thresholds(NOWHERE, levels=[name])


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("", ()), (" ", ()), ("domain", ("domain",)), ("domain, user_id", ("domain", "user_id")),
        ("domain,,user_id", ("domain", "", "user_id")), (",", ("", "")),
    ],
)  # fmt: skip
def test_empty_parts_are_kept_to_be_refused(text: str, levels: tuple[str, ...]) -> None:
    assert split_levels(text) == levels
