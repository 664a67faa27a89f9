"""What users see of their encrypted memories: lists, corrections and exports have the texts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memory.users.client import UserMemory
from memory.users.corrections import correction_event
from sinks.connections import connect_postgres
from sinks.postgres.encryption.administration import shred
from sinks.postgres.encryption.master_keys import EncryptionKeyMissing
from tests.memory.complaints.purging import found_in
from tests.memory.consolidation.repeating import stored, task
from tests.sinks.encryption.keys import NEW, OLD, give

pytestmark = pytest.mark.integration

CANARY, FIXED = "canary-09ad", "mended-41fe"


def user(dsn: str) -> UserMemory:
    return UserMemory(dsn, "127.0.0.1:1", tenant="acme", user_id="u1")


async def exported(dsn: str) -> list[dict[str, Any]]:
    return [line async for line in user(dsn).export()]


def listed(dsn: str) -> dict[str, str | None]:
    return {each.workflow_id: each.query for each in asyncio.run(user(dsn).memories())}


async def shredded(dsn: str) -> None:
    async with await connect_postgres(dsn) as connection:
        assert await shred(connection, "acme") == 1


@pytest.fixture
def sealed(migrated: str, monkeypatch: pytest.MonkeyPatch) -> str:
    give(monkeypatch, OLD)
    stored(migrated, *task("packed", query=CANARY, argument=CANARY))
    return migrated


def test_a_correction_is_encrypted_and_seen(sealed: str) -> None:
    shown = asyncio.run(user(sealed).show("packed"))
    assert (shown.query, shown.response) == (CANARY, "packed is done")
    fix = correction_event(shown, {"query": FIXED, "response": f"{FIXED}!", "outcome": "partial"})
    stored(sealed, fix)
    for text in (CANARY, FIXED):
        assert found_in(sealed, text) == found_in(sealed, text.encode().hex()) == []
    again = asyncio.run(user(sealed).show("packed"))
    assert (again.query, again.response, again.outcome) == (FIXED, f"{FIXED}!", "partial")
    assert listed(sealed) == {"packed": FIXED}
    lines = asyncio.run(exported(sealed))
    (episode,) = [line for line in lines if line["kind"] == "episode"]
    assert episode["query"] == FIXED
    assert CANARY in str(episode["calls"])
    events = [line for line in lines if line["kind"] == "event"]
    assert [e["data"]["correction"]["query"] for e in events if "correction" in e["data"]] == [
        FIXED
    ]
    assert CANARY in {line["data"].get("query") for line in events}


def test_stored_events_are_exported_opened(migrated: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.memory.stored_runs import store

    give(monkeypatch, OLD)
    sent = task("loose", query=CANARY)
    asyncio.run(store(migrated, sent))
    lines = asyncio.run(exported(migrated))
    assert {str(line["data"].get("query")) for line in lines} == {CANARY, "None"}
    assert [line["data"] for line in lines] == [each["data"] for each in sorted(
        sent, key=lambda each: each["timestamp"])]  # fmt: skip


def test_with_a_wrong_key_nothing_is_shown_and_the_key_is_named(
    sealed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, NEW)
    memory = user(sealed)
    for reading in (memory.memories(), memory.show("packed"), exported(sealed)):
        with pytest.raises(EncryptionKeyMissing, match="'k1', which is not among"):
            asyncio.run(reading)


def test_after_shredding_lists_and_exports_have_no_text(sealed: str) -> None:
    shown = asyncio.run(user(sealed).show("packed"))
    stored(sealed, correction_event(shown, {"query": FIXED, "insights": ["late"]}))
    asyncio.run(shredded(sealed))
    assert listed(sealed) == {"packed": None}
    lines = asyncio.run(exported(sealed))
    assert len(lines) == 4
    assert CANARY not in str(lines)
    assert FIXED not in str(lines)
    assert asyncio.run(user(sealed).show("packed")).insights == ("late",)
