"""Notes on names that are given to a command and that may be misspelled."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from cli.config.apply import set_and_show
from cli.support.unknown_names import notes_on_names, unknown_names, workflow_type_in
from topics.commands.messages import ModeCommand

KNOWN = {("acme", "refund"), ("acme", ""), ("blue", "claims")}


@pytest.mark.parametrize(
    ("tenant", "workflow_type", "note"),
    [
        ("acme", None, None),
        ("acme", "refund", None),
        (None, "claims", None),
        (None, None, None),
        ("acmee", None, "nothing is learned yet for the tenant 'acmee' (did you mean 'acme'?)"),
        ("acmee", "refund", "for the tenant 'acmee' (did you mean 'acme'?)"),
        ("zzz", None, "nothing is learned yet for the tenant 'zzz'"),
        ("acme", "refnd", "for the workflow type 'refnd' of 'acme' (did you mean 'refund'?)"),
        ("acme", "claims", "for the workflow type 'claims' of 'acme'"),
        (None, "claim", "for the workflow type 'claim' (did you mean 'claims'?)"),
    ],
)
def test_an_unknown_name_is_noted(
    tenant: str | None, workflow_type: str | None, note: str | None
) -> None:
    notes = unknown_names(KNOWN, tenant, workflow_type)
    assert [each[-len(note or "") :] for each in notes] == ([] if note is None else [note])


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*", None), ("workflow_type=*", None), ("domain=retail", None),
        ("domain=retail/workflow_type=refund", "refund"), ("workflow_type=a%2Fb", "a/b"),
    ],
)  # fmt: skip
def test_the_workflow_type_of_a_pattern(pattern: str, name: str | None) -> None:
    assert workflow_type_in(pattern) == name


def test_an_agent_is_compared_with_those_that_have_a_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    async def known(_redis: str) -> set[tuple[str, str]]:
        return KNOWN

    async def agents(_redis: str, _tenant: str) -> set[str]:
        return {"planner", "planer"}

    monkeypatch.setattr("sinks.redis.known_names.known_names", known)
    monkeypatch.setattr("sinks.redis.served_modes.served_agents", agents)
    settings: Any = SimpleNamespace(redis="")
    (note,) = notes_on_names(settings, "acme", agent="planer")
    assert "to check 'planer' against (did you mean 'planner'?)" in note

    async def away(_redis: str) -> set[tuple[str, str]]:
        raise ConnectionError

    monkeypatch.setattr("sinks.redis.known_names.known_names", away)
    assert notes_on_names(settings, "acme", agent="planer") == []
    assert notes_on_names(settings, None) == []


def test_a_note_does_not_change_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def served(*_: object) -> None:
        return None

    monkeypatch.setattr("cli.config.apply.set_and_serve", served)
    settings: Any = None
    set_and_show(
        settings, ModeCommand(mode="off", tenant="acmee", at=1), lambda: ["odd"], json=True
    )
    found = capsys.readouterr()
    assert json.loads(found.out)["notes"] == ["odd"]
    assert found.err == "note: odd\n"
