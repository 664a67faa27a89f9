"""The commands for users that need Postgres only; the others run in tests/integration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer
from typer.testing import CliRunner

from cli.main import app
from cli.memory.delete import delete
from cli.memory.export import export
from cli.memory.list_ import list_
from cli.memory.profile import set_profile_, show_profile
from cli.support.options import SettingOptions
from memory.episodes.hashes import id_text
from memory.episodes.imported import from_export
from tests.memory.complaints.purging import everybody, filled, user_run
from tests.memory.stored_runs import rows

pytestmark = pytest.mark.integration


def said(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_commands_of_a_user(
    migrated: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(migrated, *everybody())
    options = SettingOptions(postgres=migrated)
    list_("u1", "acme", options=options, json=True)
    assert len(said(capsys)["memories"]) == 3
    list_("u1", "acme", options=options)
    assert "mine-1" in capsys.readouterr().out
    with pytest.raises(typer.Exit):
        list_("nobody", "acme", options=options)

    set_profile_("u1", "acme", enabled=False, window=50, days=7, options=options, json=True)
    found = said(capsys)["profile"]
    assert (found["enabled"], found["window_size"], found["window_days"]) == (False, 50, 7)
    set_profile_("u1", "acme", days=0, options=options, json=True)
    assert said(capsys)["profile"]["window_days"] is None
    show_profile("u1", "acme", agent="a", options=options)
    assert "off" in capsys.readouterr().out
    with pytest.raises(typer.BadParameter, match="--on, --off"):
        set_profile_("u1", "acme", options=options)

    file = tmp_path / "u1.jsonl"
    export(str(file), "acme", user="u1", options=options, json=True)
    assert said(capsys)["lines"] == {"profile": 1, "event": 6, "episode": 3}
    assert len(file.read_text().splitlines()) == 10
    with pytest.raises(typer.BadParameter, match="give --tenant"):
        export(str(file), user="u1", options=options)
    for name, everything in (("mine-1", True), (None, False)):
        with pytest.raises(typer.BadParameter, match="the ID of one memory, or --all"):
            delete("u1", name, "acme", everything=everything, options=options)


def test_all_commands_name_an_episode_by_one_text(migrated: str, tmp_path: Path) -> None:
    filled(migrated, *everybody())
    stored = rows(
        migrated, "SELECT id, query FROM episodes WHERE tenant = 'acme' AND user_id = 'u1'"
    )
    names = {id_text(id) for id, _ in stored}
    id, query = stored[0]

    def run(*command: str) -> str:
        at = ["--tenant", "acme", "--postgres", migrated]
        return CliRunner().invoke(app, ["memory", *command[:1], *at, *command[1:]]).stdout

    def ids(kind: str, *command: str) -> set[str]:
        return {each["id"] for each in json.loads(run(*command))[kind]}

    assert names <= set(run("list", "--user", "u1").split())
    assert ids("memories", "list", "--user", "u1", "--json") == names
    search = ("search", query, "--mode", "exact")
    assert id_text(id) in set(run(*search).split()) & ids("episodes", *search, "--json")
    assert id_text(id) in run("show", id_text(id)).split()
    for written in (id_text(id), str(id)):
        assert ids("episodes", "show", "--json", "--", written) == {id_text(id)}
    file = tmp_path / "u1.jsonl"
    run("export", str(file), "--user", "u1")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines = [each for each in lines if each.get("kind") == "episode"]
    assert {each["id"] for each in lines} == names
    assert {id_text(from_export(each).id) for each in lines} == names
    referring = from_export(lines[0] | {"reference_ids": [id_text(-5), -6]})
    assert referring.reference_ids == (-5, -6)


@pytest.mark.parametrize(
    ("state", "said_of_it"),
    [
        ("live", None), ("quarantined", "not retrieved"), ("pruned", "packed events are left"),
        ("merged", "counted by an equal run"),
    ],
)  # fmt: skip
def test_an_episode_that_is_not_retrieved_says_why(
    migrated: str, state: str, said_of_it: str | None
) -> None:
    filled(migrated, *(one for name in "ab" for one in user_run("acme", "u1", name, "cancel it")))
    ids = [id for (id,) in rows(migrated, "SELECT id FROM episodes ORDER BY workflow_id")]
    with psycopg.connect(migrated) as connection:
        target = ids[1] if state == "merged" else None
        change = "UPDATE episodes SET state = %s, merged_into = %s WHERE id = %s"
        connection.execute(change, [state, target, ids[0]])
    at = ["memory", "show", id_text(ids[0]), "--tenant", "acme", "--postgres", migrated]
    (episode,) = json.loads(CliRunner().invoke(app, [*at, "--json"]).stdout)["episodes"]
    assert episode["state"] == state
    shown = CliRunner().invoke(app, at).stdout
    if said_of_it is None:
        assert "state" not in shown
    else:
        assert f"{state}: " in shown
        assert said_of_it in shown
