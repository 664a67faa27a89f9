"""Keys and paths: no two contexts ever share one, whatever their names hold."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.keys import (
    DEFAULT_LEVELS,
    context_paths,
    event_key,
    redis_key,
    threshold_key,
    workflow_type_of,
)

HOSTILE = "/=%:\x1f\x7f\n 2Fab{}é\u2028𝄞"
characters = st.sampled_from(HOSTILE) | st.characters(exclude_categories=["Cs"])
anything = st.text(characters, max_size=8)
identifier = st.text(characters.filter(lambda c: c not in "\x00\x1f"), min_size=1, max_size=8)
value = st.none() | anything
contexts = st.tuples(identifier, identifier, st.tuples(value, value))


def paths_of(workflow_type: str, values: tuple[Any, ...]) -> tuple[str, ...]:
    return context_paths(workflow_type, dict(zip(DEFAULT_LEVELS, values, strict=True)).get)


@given(contexts, contexts)
def test_different_contexts_have_different_keys(one: Any, other: Any) -> None:
    (tenant_1, workflow_1, values_1), (tenant_2, workflow_2, values_2) = one, other
    same_owner = (tenant_1, workflow_1) == (tenant_2, workflow_2)
    assert (event_key(tenant_1, workflow_1) == event_key(tenant_2, workflow_2)) == same_owner
    assert (redis_key(tenant_1, workflow_1) == redis_key(tenant_2, workflow_2)) == same_owner
    path_1, path_2 = paths_of(workflow_1, values_1)[-1], paths_of(workflow_2, values_2)[-1]
    assert (path_1 == path_2) == ((workflow_1, values_1) == (workflow_2, values_2))
    assert (threshold_key(tenant_1, path_1) == threshold_key(tenant_2, path_2)) == (one == other)


# The same law where chance would seldom look: contexts that differ by one part moved elsewhere.
ALIKE = ["a", "b", "a/b", "a=b", "/", "=", ":", "%", "%2F", "a:b", "domain=a", "a/domain=b",
         "a%2Fdomain%3Db", "%253A", "user_id=a", "default"]  # fmt: skip
parts = st.sampled_from(ALIKE)
value_parts = st.none() | st.sampled_from([*ALIKE, "", "a\x1fb", "a%1Fb"])
close = st.tuples(parts, parts, st.tuples(value_parts, value_parts))
test_contexts_that_look_alike_have_different_keys = given(close, close)(
    test_different_contexts_have_different_keys.hypothesis.inner_test
)


@given(identifier, st.tuples(value, value))
def test_a_path_grows_by_one_part_per_level(workflow_type: str, values: Any) -> None:
    paths = paths_of(workflow_type, values)
    assert len(paths) == 1 + sum(v is not None for v in values)
    for coarse, fine in pairwise(paths):
        assert fine.startswith(f"{coarse}/")
        assert fine.count("/") == coarse.count("/") + 1


@given(identifier, st.tuples(value, value))
def test_the_workflow_type_can_be_read_from_any_path(workflow_type: str, values: Any) -> None:
    assert {workflow_type_of(path) for path in paths_of(workflow_type, values)} == {workflow_type}


@given(identifier, identifier)
def test_keys_are_printable(tenant: str, workflow_type: str) -> None:
    path = context_paths(workflow_type, {"domain": tenant}.get)[-1]
    for text in (redis_key(tenant, workflow_type), path):
        assert not set(text) & {chr(n) for n in (*range(32), 127)}


def test_the_documented_examples() -> None:
    context = {"domain": "retail", "user_id": "u7"}
    assert context_paths("refund", context.get) == (
        "workflow_type=refund",
        "workflow_type=refund/domain=retail",
        "workflow_type=refund/domain=retail/user_id=u7",
    )
    assert event_key("acme", "refund") == b"acme\x1frefund"
    assert threshold_key("acme", "workflow_type=refund") == b"acme\x1fworkflow_type=refund"
    assert redis_key("acme", "refund") == "headstart:thresholds:acme:refund"
    assert redis_key("a:b", "c/d") == "headstart:thresholds:a%3Ab:c%2Fd"


def test_a_missing_level_is_skipped() -> None:
    assert context_paths("refund", {"user_id": "u7"}.get) == (
        "workflow_type=refund",
        "workflow_type=refund/user_id=u7",
    )


def test_levels_can_be_chosen() -> None:
    context = {"region": "eu", "domain": "retail"}
    assert context_paths("w", context.get, ["region"])[-1] == "workflow_type=w/region=eu"
    assert context_paths("w", context.get, []) == ("workflow_type=w",)
    assert context_paths("w", {"a=b": "c"}.get, ["a=b"])[-1] == "workflow_type=w/a%3Db=c"


@pytest.mark.parametrize(
    ("given_value", "text"),
    [(3, "3"), (0, "0"), (2.5, "2.5"), (True, "true"), (False, "false"), ("", "")],
)
def test_numbers_and_booleans_name_a_context(given_value: object, text: str) -> None:
    assert context_paths("w", {"domain": given_value}.get)[-1] == f"workflow_type=w/domain={text}"


@pytest.mark.parametrize("given_value", [None, ["retail"], {"a": 1}, b"x", object()])
def test_nothing_else_names_a_context(given_value: object) -> None:
    assert context_paths("w", {"domain": given_value}.get) == ("workflow_type=w",)
