"""`memory search`: its table names what `memory show` takes."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from cli.main import app
from tests.memory.stored_episodes import StoredEpisodes


@pytest.mark.integration
def test_an_episode_of_the_table_can_be_shown(stored: StoredEpisodes) -> None:
    made = max(stored.of("tenant-2").values(), key=lambda each: (each.query is not None, each.id))
    at = ["--tenant", "tenant-2", "--postgres", stored.dsn]
    found = CliRunner().invoke(
        app, ["memory", "search", made.query or "", "--mode", "lexical", "--k", "1", *at]
    )
    assert found.stdout.split()[0] == "id"
    (id,) = (word for word in found.stdout.split() if word.startswith("0x"))
    shown = CliRunner().invoke(app, ["memory", "show", id, "--json", *at])
    (episode,) = json.loads(shown.stdout.splitlines()[-1])["episodes"]
    assert episode["query"] == made.query
