"""Runs of logs, archives and episodes as cases: the same ones, whatever they are read from."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from agents.memory.assembling import StepTarget, assemble_next
from agents.memory.embedding import GuardedEmbedder
from memory.cases.case import Case
from memory.cases.episode_case import case_of_episode
from memory.episodes.assembly import assemble
from memory.episodes.imported import EXPORT, exported
from memory.episodes.record import Episode
from memory.episodes.run_event import run_event
from replay.memories import run_sorter
from replay.memories.case_store import CaseStore
from replay.memories.episode_sources import (
    is_episode_export,
    store_export,
    store_log,
    store_memory,
)
from replay.memories.evaluation import evaluate, sizes_of
from replay.memories.results import ReadCounts
from replay.memories.run_sorter import RunSorter
from replay.predictions.unjoined import Filter
from replay.sources.archive import ArchiveSource
from replay.sources.base import ReadOptions, TimeRange
from replay.sources.files import EventFile
from sinks.connections import connect_postgres
from tests.memory.stored_runs import AT, WordEmbedder, event, run, store

EVERYTHING = ReadOptions()
TENANTS = ("acme", "beta")


def history(runs: int = 5) -> list[dict[str, Any]]:
    """Events of runs of two tenants, mixed; some of them twice."""
    found = [
        each | {"timestamp": each["timestamp"] + 60_000 * number}
        for tenant in TENANTS
        for number in range(runs)
        for each in run(tenant, f"r{number}", f"cancel order {number % 2}", steps=2 + number % 3)
    ]
    found += found[::7]
    random.Random(0).shuffle(found)
    return found


def episodes(events: Iterable[Mapping[str, Any]]) -> list[Episode]:
    by_run: dict[tuple[str, str, str], list[Any]] = {}
    for each in events:
        key = each["tenant"], each["workflow_type"], each["workflow_id"]
        by_run.setdefault(key, []).append(run_event(each))
    return [assemble(*key, found) for key, found in sorted(by_run.items())]


def cases(events: Iterable[Mapping[str, Any]], tenant: str) -> list[Case]:
    """The cases of a tenant, made directly."""
    made = [
        case_of_episode(each, at=each.started)
        for each in episodes(events)
        if each.tenant == tenant and each.calls
    ]
    return sorted(made, key=lambda each: (each.at, each.key))


def lines(file: Path, records: Iterable[Any]) -> Path:
    file.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in records))
    return file


@pytest.fixture
def cases_at(tmp_path: Path) -> CaseStore:
    return CaseStore(tmp_path / "cases", 1_000)


def test_a_log_gives_the_episodes_that_the_worker_makes(
    tmp_path: Path, cases_at: CaseStore
) -> None:
    made = history()
    file = lines(tmp_path / "events.jsonl", made)
    told: list[float] = []
    read = store_log(
        EventFile(file, EVERYTHING), cases_at, lambda reached: told.append(reached.share)
    )
    assert (read.events, read.runs, read.refused) == (len(made), 10, 0)
    assert cases_at.counts() == {"acme": 5, "beta": 5}
    for tenant in TENANTS:
        assert cases_at.cases(tenant) == cases(made, tenant)
    assert told[-1] == 1.0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["cases", "events.jsonl"]


def test_only_what_was_chosen_is_read(tmp_path: Path, cases_at: CaseStore) -> None:
    file = lines(tmp_path / "events.jsonl", history())
    chosen = ReadOptions(chosen=Filter("acme", "refund"))
    store_log(EventFile(file, chosen), cases_at, lambda _: None)
    assert cases_at.counts() == {"acme": 5}
    other = CaseStore(tmp_path / "other", 10)
    read = store_log(
        EventFile(file, ReadOptions(chosen=Filter("acme", "x"))), other, lambda _: None
    )
    assert (read.runs, other.counts()) == (0, {})


def test_what_the_contract_refuses_is_named(tmp_path: Path, cases_at: CaseStore) -> None:
    odd = json.dumps(event("acme", "odd", 0, tool_id="find", data={"query": "\ud800"}))
    sound = json.dumps(event("acme", "r", 0, tool_id="find", data={"query": "\U0001f600 9" * 9}))
    wrong = json.dumps(event("acme", "r", 1) | {"confidence": 7})
    (tmp_path / "events.jsonl").write_text(f"{odd}\n{wrong}\nno json\n{sound}\n")
    read = store_log(EventFile(tmp_path / "events.jsonl", EVERYTHING), cases_at, lambda _: None)
    assert (read.runs, read.refused) == (1, 3)
    assert "confidence" in read.named[1]
    assert cases_at.cases("acme")[0].query == "\U0001f600 9" * 9


def test_events_beyond_the_bounds_come_without_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_sorter, "MAX_EVENTS", 2)
    sorter = RunSorter(tmp_path / "events")
    sorter.add(run("acme", "r", steps=4))
    ((key, found),) = sorter.runs()
    assert key == ("acme", "refund", "r")
    assert [bool(each.content) for each in found] == [True, True, False, False, False]
    sorter.close()


def test_exported_episodes_give_the_same(tmp_path: Path, cases_at: CaseStore) -> None:
    made = history()
    records = [exported(each) for each in episodes(made)]
    wrong = [records[0] | {"calls": [["tool", "[]"]]}, records[1] | {"started": "soon"}, 3]
    head = {"format": EXPORT, "version": 1}
    file = lines(tmp_path / "memory.jsonl", [head, *records, *wrong])
    assert is_episode_export(file)
    read = store_export(file, EVERYTHING, cases_at, lambda _: None)
    assert (read.runs, read.refused) == (10, 3)
    assert read.named[0].startswith(f"{file}:12: calls must be a list of [tool, arguments as JSON")
    assert cases_at.cases("beta") == cases(made, "beta")
    assert not is_episode_export(lines(tmp_path / "events.jsonl", made))


def test_of_many_runs_the_newest_are_read(tmp_path: Path) -> None:
    made = history()
    file = lines(tmp_path / "events.jsonl", made)
    few = CaseStore(tmp_path / "few", 2)
    store_log(EventFile(file, EVERYTHING), few, lambda _: None)
    assert few.counts()["acme"] == 5
    assert few.cases("acme") == cases(made, "acme")[-2:]


def test_no_case_crosses_tenants(tmp_path: Path) -> None:
    """Two tenants with equal runs: each has the figures that it has alone."""
    found: list[Any] = []
    for name, tenants in (("both", None), ("alone", "acme")):
        file = lines(tmp_path / f"{name}.jsonl", history(8))
        own = CaseStore(tmp_path / name, 100)
        chosen = ReadOptions(chosen=Filter(tenants))
        store_log(EventFile(file, chosen), own, lambda _: None)
        sizes = {tenant: sizes_of(own.cases(tenant)) for tenant in own.counts()}
        found.append(dict(evaluate(own, sizes, lambda _: None, 1)))
    both, alone = found
    assert both.keys() == {"acme", "beta"}
    assert both["acme"] == alone["acme"]
    assert both["acme"]["all"] == both["beta"]["all"]


@pytest.mark.integration
def test_the_archive_and_the_stored_episodes_give_the_same(tmp_path: Path, migrated: str) -> None:
    made = history()

    async def steps() -> None:
        once = {each["id"]: each for each in made}
        await store(migrated, list(once.values()))
        async with await connect_postgres(migrated) as connection:
            embedder = GuardedEmbedder(WordEmbedder())
            while (await assemble_next(StepTarget(connection, embedder, None), 500, 0)).rows:
                pass

    asyncio.run(steps())
    archived, stored = CaseStore(tmp_path / "archived", 100), CaseStore(tmp_path / "stored", 100)
    store_log(ArchiveSource(migrated, EVERYTHING), archived, lambda _: None)
    read: ReadCounts = store_memory(migrated, EVERYTHING, stored)
    assert read.runs == 10
    for tenant in TENANTS:
        assert archived.cases(tenant) == stored.cases(tenant) == cases(made, tenant)
    later = CaseStore(tmp_path / "later", 100)
    store_memory(
        migrated,
        ReadOptions(chosen=Filter("acme"), range=TimeRange(since=AT + 3 * 60_000)),
        later,
    )
    assert later.counts() == {"acme": 2}
