"""`headstart memory quarantine`, what doctor says, and that a release is for good."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.memory.group import app
from console.inspection.doctor.findings import WARNING, Finding
from console.inspection.doctor.memory import check_memory
from tests.memory.quarantine.writing import (
    QUARANTINED,
    STATES,
    assembled,
    limited,
    rebuilt,
    swept,
    written,
)
from tests.memory.stored_runs import rows

pytestmark = pytest.mark.integration

LIMITS = limited(user=2, session=4)


def command(dsn: str, *words: str) -> tuple[int, Any]:
    result = CliRunner().invoke(app, ["quarantine", *words, "--postgres", dsn, "--json"])
    lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
    return result.exit_code, json.loads(lines[-1]) if lines else result.output


def findings(dsn: str) -> list[Finding]:
    found = asyncio.run(check_memory(dsn))
    return [each for each in found if each.level == WARNING and "quarantine" in each.what]


def test_list_and_release(migrated: str) -> None:
    assert findings(migrated) == []
    assert command(migrated, "list") == (0, {"quarantined": []})
    assembled(
        migrated, LIMITS, *written("a", 5), *written("b", 3, user="u2"),
        *written("c", 6, user=None, session_id="s1"), *written("d", 3, tenant="rival"),
    )  # fmt: skip
    (said,) = findings(migrated)
    assert said.what.startswith("7 episodes of 4 writers are quarantined (user rate: 5, session")
    code, found = command(migrated, "list", "--tenant", "acme")
    batches = {
        (each["user_id"], each["session_id"], each["reason"], each["episodes"], each["reward"])
        for each in found["quarantined"]
    }
    assert code == 0
    assert batches == {
        ("u1", None, "user rate", 3, 1.0),
        ("u2", None, "user rate", 1, 1.0),
        (None, "s1", "session rate", 2, 1.0),
    }
    assert len(command(migrated, "list")[1]["quarantined"]) == 4
    assert command(migrated, "list", "--user", "nobody")[0] == 1

    assert command(migrated, "release", "--tenant", "acme", "--user", "nobody")[0] == 1
    code, found = command(migrated, "release", "--tenant", "acme", "--user", "u1")
    assert (code, found["released"]) == (0, 3)
    code, found = command(migrated, "release", "--tenant", "acme", "--session", "s1")
    assert (code, found["released"]) == (0, 2)
    assert {name for name, _ in rows(migrated, QUARANTINED)} == {"b-002", "d-002"}
    assert command(migrated, "release", "--tenant", "rival", "--yes")[1]["released"] == 1
    audited = (
        "SELECT tenant, user_id, counts ->> 'session', counts ->> 'episodes' FROM memory_audit"
    )
    assert rows(migrated, f"{audited} ORDER BY id") == [
        ("acme", "u1", None, "3"), ("acme", None, "s1", "2"), ("rival", None, None, "1"),
    ]  # fmt: skip


def test_what_names_neither_is_released_alone_and_for_good(migrated: str) -> None:
    limits = limited(user=2, unnamed=2)
    assembled(migrated, limits, *written("a", 5, user=None), *written("b", 3))
    (said,) = findings(migrated)
    assert "(unnamed rate: 3, user rate: 1)" in said.what
    batches = command(migrated, "list")[1]["quarantined"]
    assert {(each["user_id"], each["session_id"], each["reason"]) for each in batches} == {
        (None, None, "unnamed rate"), ("u1", None, "user rate"),
    }  # fmt: skip
    release = ("release", "--tenant", "acme", "--unnamed")
    assert command(migrated, *release, "--user", "u1")[0] == 2
    assert command(migrated, *release)[1]["released"] == 3
    assert rows(migrated, QUARANTINED) == [("b-002", "user rate")]
    assert rebuilt(migrated, limits) == rows(migrated, STATES)


def test_a_release_holds_for_what_was_written_before_it(migrated: str) -> None:
    assembled(migrated, LIMITS, *written("a", 4))
    command(migrated, "release", "--tenant", "acme", "--user", "u1")
    assert swept(migrated, LIMITS).quarantined == 0
    before = rows(migrated, STATES)
    assert {state for _, state, _ in before} == {"live"}
    assert rebuilt(migrated, LIMITS) == before
    later = 24 * 365 * 20  # hours: after the release by event time, too
    assembled(migrated, LIMITS, *written("b", 3, hour=later))
    assert rows(migrated, QUARANTINED) == [("b-002", "user rate")]


def test_only_a_confirmed_release_is_of_a_whole_tenant(migrated: str) -> None:
    assembled(migrated, LIMITS, *written("a", 3))
    code, said = command(migrated, "release", "--tenant", "acme")
    assert code == 1, said
    assert len(rows(migrated, QUARANTINED)) == 1
