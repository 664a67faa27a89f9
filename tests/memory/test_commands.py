"""`headstart memory`: statistics, one episode, export and import, and what backfill makes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer

from cli.memory.backfill import backfill
from cli.memory.export import export
from cli.memory.import_ import import_
from cli.memory.show import show
from cli.memory.stats import stats
from cli.support.options import SettingOptions
from memory.episodes.imported import episode_of_run, exported
from memory.store.outbox import outbox_lag
from sinks.connections import connect_postgres
from tests.memory.stored_runs import event, rows, run, store

pytestmark = pytest.mark.integration

RUN = {
    "source": "test", "domain": "retail", "agent_model": "m", "task_id": "7", "trial": 0,
    "reward": 1.0, "started_at": None,
    "steps": [
        {"tool": "find", "args": {"id": 1}, "error": False, "called_at": None,
         "returned_at": None, "user_before": ["cancel my order"]},
        {"tool": "cancel", "args": {"id": 1}, "error": True, "called_at": None,
         "returned_at": None},
    ],
}  # fmt: skip


def said(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.fixture
def options(migrated: str) -> SettingOptions:
    return SettingOptions(postgres=migrated)


@pytest.fixture
def filled(migrated: str, tmp_path: Path, options: SettingOptions) -> str:
    lines = [RUN | {"task_id": str(n), "reward": n / 2} for n in range(3)]
    file = tmp_path / "filled.jsonl"
    file.write_text("\n".join(json.dumps(each) for each in lines))
    backfill(str(file), "acme", options=options)
    return migrated


def test_recorded_runs_become_episodes(
    filled: str, options: SettingOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    stats("acme", options=options, json=True)
    found = said(capsys)
    assert found["total_episodes"] == 3
    assert found["outcomes"] == {"failure": 1, "partial": 1, "success": 1}
    assert found["success_rate"] == pytest.approx(1 / 3)
    assert found["most_common_tools"] == {"cancel": 3, "find": 3}
    assert (found["total_concepts"], found["most_common_domains"]) == (0, {"retail": 3})
    (model,) = found["models"]
    assert (model["state"], model["missing"], model["of"]) == ("active", 0, 3)
    assert found["outbox_rows"] == 0
    show("test/2/0/3", "acme", options=options, json=True)
    (episode,) = said(capsys)["episodes"]
    assert episode["query"] == "cancel my order"
    assert [call["success"] for call in episode["calls"]] == [True, False]
    assert episode["calls"][0]["arguments"] == '{"id":1}'
    show(episode["id"], "acme", options=options)
    assert "cancel my order" in capsys.readouterr().out
    stats(options=options)
    assert "success rate" in capsys.readouterr().out


def test_an_export_imported_again_gives_the_same_rows(
    filled: str, options: SettingOptions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = rows(filled)
    file = str(tmp_path / "memory.jsonl.zst")
    export(file, options=options, json=True)
    assert said(capsys)["episodes"] == 3
    import_(file, options=options, json=True)
    assert said(capsys)["kept"] == 3  # they would not change
    assert rows(filled) == before
    with psycopg.connect(filled, autocommit=True) as connection:
        connection.execute("TRUNCATE episodes, episode_vectors")
    import_(file, options=options, json=True)
    assert rows(filled) == before
    import_(file, "other", options=options, json=True)
    assert len(rows(filled)) == 6
    assert rows(filled, "SELECT count(*) FROM episode_vectors") == [(6,)]


def test_an_import_leaves_what_is_made_of_more_events(
    filled: str, options: SettingOptions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "memory.jsonl")
    export(file, options=options)
    with psycopg.connect(filled, autocommit=True) as connection:
        connection.execute("UPDATE episodes SET events = 99 WHERE workflow_id = 'test/1/0/2'")
        connection.execute("INSERT INTO memory_purges VALUES ('acme', '', now())")
    before = rows(filled)
    import_(file, options=options, json=True)
    found = said(capsys)
    assert (found["written"], found["kept"]) == (0, 3)
    assert rows(filled) == before


@pytest.mark.parametrize(
    "lines",
    [
        ["{}"],
        ["not JSON", "[1]"],
        ['{"format": "headstart.episodes", "version": 2}'],
        ['{"format": "headstart.episodes", "version": 1}', "{}", "[]", '{"calls": 5}'],
    ],
)
def test_files_that_are_no_export(
    options: SettingOptions, tmp_path: Path, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_text("\n".join(lines))
    with pytest.raises(typer.Exit):
        import_(str(file), options=options)
    assert "is refused" in capsys.readouterr().err


def test_runs_that_are_none_are_named(
    options: SettingOptions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "runs.jsonl"
    bad = [5, {}, RUN | {"steps": [1]}, RUN | {"domain": ""}, RUN | {"source": 3}]
    file.write_text("\n".join(json.dumps(each) for each in [*bad, RUN]))
    with pytest.raises(typer.Exit) as ended:
        backfill(str(file), options=options, json=True)
    assert ended.value.exit_code == 1
    found = capsys.readouterr()
    assert [json.loads(found.out)[name] for name in ("written", "refused")] == [1, 5]
    assert 'an object with "steps"' in found.err


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("query", 5, "query must be a text or null"),
        ("started", "x", "started must be a time in Unix ms"),
        ("ended", 10**15, "ended must be a time in Unix ms"),
        ("ended", 1, "ended must not be before started"),
        ("outcome", "done", "outcome must be success, partial, failure, aborted or null"),
        ("reward", 2, "reward must be a number from 0 to 1"),
        ("context", [], "context must be an object"),
        ("context_hash", 2**63, "context_hash must be an integer of 64 bits"),
        ("calls", [["find", "{", None]], "calls must be a list of [tool, arguments as JSON text"),
        ("concepts", [1], "concepts must be a list of texts"),
        ("events", 0, "events must be a count from 1"),
        ("tenant", "", "texts of 1 to 256 characters"),
    ],
)
def test_an_edited_line_is_named_and_costs_nothing_else(
    options: SettingOptions,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    field: str,
    value: Any,
    said: str,
) -> None:
    made = exported(episode_of_run(RUN, "acme", 2, 1_750_000_000_000))
    other = made | {"workflow_id": "other", "query": "with NUL \0"}
    header = {"format": "headstart.episodes", "version": 1}
    file = tmp_path / "edited.jsonl"
    file.write_text("\n".join(json.dumps(each) for each in (header, made | {field: value}, other)))
    with pytest.raises(typer.Exit) as ended:
        import_(str(file), options=options, json=True)
    assert ended.value.exit_code == 1
    printed = capsys.readouterr()
    assert "line 2 is refused: " in printed.err
    assert said in printed.err
    found = json.loads(printed.out)
    assert (found["written"], found["refused"]) == (1, 1)


def test_a_run_of_no_possible_time_gets_the_time_of_now() -> None:
    late = RUN | {"started_at": 10**15}
    late["steps"] = [RUN["steps"][0] | {"returned_at": 10**16}]  # type: ignore[index]
    episode = episode_of_run(late, "acme", 2, 1_750_000_000_000)
    assert 0 <= episode.started - 1_750_000_000_000 < 10
    assert 0 <= episode.ended - 1_750_000_000_000 < 10


def test_stored_events_are_put_into_the_outbox(
    migrated: str, options: SettingOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(store(migrated, run("a", "1"), [event("b", "1", 1)]))
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute("TRUNCATE episode_outbox")
    backfill(tenant="a", options=options, json=True)
    assert said(capsys)["runs"] == 1

    async def waiting() -> int:
        async with await connect_postgres(migrated) as connection:
            return (await outbox_lag(connection)).rows

    assert asyncio.run(waiting()) == 1
    with pytest.raises(typer.BadParameter, match="--since and --wait"):
        backfill("x.jsonl", wait=True, options=options)


def test_nothing_found(options: SettingOptions, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        show("no such", options=options)
    assert "no episode no such" in capsys.readouterr().err
    stats(options=options)
    with pytest.raises(typer.Exit):
        stats("nobody", options=options)
