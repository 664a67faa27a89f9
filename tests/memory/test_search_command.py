"""`memory search`: its table names what `memory show` takes."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from cli.main import app
from memory.episodes.hashes import id_text
from sinks.connections import PostgresUnreachable
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


@pytest.mark.integration
def test_a_query_of_a_megabyte_is_read_from_standard_input(stored: StoredEpisodes) -> None:
    made = next(each for each in stored.of("tenant-2").values() if each.query)
    at = ["--tenant", "tenant-2", "--postgres", stored.dsn, "--json"]
    found = CliRunner().invoke(
        app, ["memory", "search", "-", "--mode", "exact", *at], input=f"{made.query}\n"
    )
    episodes = json.loads(found.stdout.splitlines()[-1])["episodes"]
    assert {each["query"].casefold() for each in episodes} == {made.query.casefold()}
    long = CliRunner().invoke(
        app, ["memory", "search", "-", *at], input=f"{made.query} {'filler ' * 150_000}"
    )
    assert json.loads(long.stdout.splitlines()[-1])["episodes"]
    shown = CliRunner().invoke(app, ["memory", "context", "-", *at], input=made.query)
    assert json.loads(shown.stdout.splitlines()[-1])["degraded"] == []


@pytest.mark.parametrize("command", ["search", "context"])
def test_without_postgres_json_says_why_nothing_was_searched(command: str) -> None:
    at = ["--postgres", "postgresql://127.0.0.1:1/headstart"]
    found = CliRunner().invoke(app, ["memory", command, "cancel", "--json", *at])
    assert isinstance(found.exception, PostgresUnreachable)
    printed = json.loads(found.stdout)
    assert printed.get("episodes", printed.get("cases")) == []
    assert printed["degraded"] == [str(found.exception)]
    plain = CliRunner().invoke(app, ["memory", command, "cancel", *at])
    assert (plain.stdout, isinstance(plain.exception, PostgresUnreachable)) == ("", True)


@pytest.mark.integration
def test_the_keys_of_equal_contexts_are_chosen(stored: StoredEpisodes) -> None:
    made = next(iter(stored.of("tenant-2").values()))
    context = {**made.context, "complexity": "of none"}
    at = ["--tenant", "tenant-2", "--postgres", stored.dsn, "--mode", "exact", "--json"]
    search = [
        "search",
        "--k",
        "500",
        "--workflow-type",
        made.workflow_type,
        "--context",
        json.dumps(context),
    ]

    def found(*keys: str) -> list[str]:
        chosen = [each for key in keys for each in ("--key", key)]
        result = CliRunner().invoke(app, ["memory", *search, *at, *chosen])
        return [each["id"] for each in json.loads(result.stdout.splitlines()[-1])["episodes"]]

    assert found() == found("domain", "complexity") == []
    assert id_text(made.id) in found("domain")
