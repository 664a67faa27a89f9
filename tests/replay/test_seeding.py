"""What is exported and imported again stands as before, in all that is kept of a context."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

from learners.registry import policy
from processing.config import LearningConfig
from processing.contexts.thresholds import threshold_from_row
from processing.state.rows import CONTEXT, is_deleted
from replay.log.live_table import TablePartition
from replay.rebuild.learned_state_file import learned_lines, read_learned
from replay.rebuild.newer_learning import NewerLearning, newer_learning
from replay.rebuild.seed_rehearsal import rehearse, seeds_of
from tests.processing.building import EPOCH, NOW, Table, context, judged, reasons
from tests.processing.control_records import EVERY, record, run
from topics.control.messages import Reset, Seed, Seeded
from topics.epoch import Epoch
from topics.schema.json_schema import PublishedThreshold

RESULT = {"gain_ms": 400.0, "cost_ms": 600.0, "execution_time_ms": 30.0}


def learned(begin: int = NOW - 1_000) -> Table:
    """Return a table of contexts that were counted in every way."""
    events = []
    for n in range(60):
        prediction = {"was_correct": n % 3 > 0, "speculated": n % 2 == 0,
                      "mode": ("speculative", "suggestion", "explicit")[n % 3]}  # fmt: skip
        data = {"context": {"domain": "retail"}, "prediction": prediction, "result": RESULT}
        events.append(
            judged(timestamp=begin + n, confidence=0.5 + n / 200, data=data, user_id="alice")
        )
    table, _ = run(*events)
    return table


def exported(table: Table, folder: Path) -> Path:
    lines = learned_lines(
        {0: TablePartition(dict(table))}, Epoch(EPOCH, 1), policy("td"), ["domain", "user_id"],
        lambda _tenant, _path: True,
    )  # fmt: skip
    file = folder / "learned.jsonl"
    file.write_bytes(b"".join(lines))
    return file


def imported(file: Path, table: Table | None = None, at: int = NOW + 5) -> tuple[Table, Any]:
    _, lines = read_learned(file)
    seeds = [record(seed) for _, seed in seeds_of(lines, 1, "i1", at)]
    return run(*seeds, table=table)


def answers(table: Table) -> dict[str, PublishedThreshold]:
    """Return what is published of each context, but for its version."""
    return {
        threshold.path: msgspec.structs.replace(threshold, epoch=0, offset=0)
        for key, row in table.items()
        if key.startswith(CONTEXT) and not is_deleted(row)
        for threshold in [threshold_from_row(key, row)]
    }


def test_a_round_trip_over_the_same_table_changes_nothing(tmp_path: Path) -> None:
    table = learned()
    before = answers(table)
    after, commit = imported(exported(table, tmp_path), table)
    assert reasons(commit) == []
    assert answers(after) == before
    counts = before[EVERY].counts
    assert counts is not None
    assert min(counts.saved, counts.wasted, counts.suggestion, counts.explicit_right) > 0
    assert counts.confidence > 0
    assert counts.execution > 0


def test_a_round_trip_into_an_empty_table(tmp_path: Path) -> None:
    table = learned()
    after, commit = imported(exported(table, tmp_path))
    assert reasons(commit) == []
    assert answers(after) == answers(table)


def test_a_round_trip_after_a_reset(tmp_path: Path) -> None:
    table = learned()
    before, file = answers(table), exported(table, tmp_path)
    gone, _ = run(record(Reset("r1", NOW + 2, "*")), table=table)
    assert answers(gone) == {}
    assert answers(imported(file, gone)[0]) == before


def newer(file: Path, table: Table) -> NewerLearning:
    return newer_learning({0: TablePartition(dict(table))}, read_learned(file)[1])


def test_an_import_reports_newer_learning_that_it_discards(tmp_path: Path) -> None:
    """An outcome counts once, though the contexts of type, domain and user learn from it."""
    table = learned()
    file = exported(table, tmp_path)
    contexts = len(read_learned(file)[1])
    assert newer(file, table) == (0, 0)
    assert newer(file, {}) == (0, 0)
    restored, _ = imported(file)
    assert newer(file, restored) == (0, 0)

    data = {"context": {"domain": "retail"}, "prediction": {"was_correct": True}, "result": RESULT}
    later = [
        judged(timestamp=NOW + n, confidence=0.8, data=data, user_id="alice") for n in range(7)
    ]
    continued, _ = run(*later, table=dict(restored))
    found = newer(file, continued)
    assert found == (contexts, 7)
    assert str(found) == (
        f"overwrites newer learning of {contexts} contexts: from 7 outcomes that the file lacks"
    )
    another_log, _ = run(*later)
    assert newer(file, another_log) == (contexts, 7)


def test_an_export_of_old_is_imported_as_before(tmp_path: Path) -> None:
    file = exported(learned(), tmp_path)
    header, *lines = map(orjson.loads, file.read_bytes().splitlines())
    old = [{k: v for k, v in line.items() if k not in {"gain", "cost", "counts"}} for line in lines]
    file.write_bytes(b"\n".join(map(orjson.dumps, [header, *old])))
    _, read = read_learned(file)
    (_, seed), *_ = seeds_of(read, 1, "i1", NOW + 5)
    value, _headers = record(seed)
    assert not any(
        {"at", "counts", "gain"} & each.keys() for each in orjson.loads(value)["contexts"]
    )
    after, _ = imported(file)
    row = context(after)
    assert (row.outcomes, row.at, row.gain, sum(row.counts)) == (60, NOW + 5, 0.0, 0)


def test_contexts_idle_too_long_begin_with_the_import(tmp_path: Path) -> None:
    month = 30 * 86_400_000
    after, _ = imported(exported(learned(NOW - month - 1_000), tmp_path))
    assert {each.at for each in answers(after).values()} == {NOW + 5}
    after, _ = imported(exported(learned(NOW - month + 1_000), tmp_path))
    assert {each.at for each in answers(after).values()} == {NOW - month + 1_059}


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((1, 2), "there are 13 of a context, not 2"),
        ((4, 0, 0, 0, 30, 20, *[0] * 7), "do not add up"),
        ((10, 11, 0, 0, 30, 20, *[0] * 7), "more were right than there were"),
    ],
)
def test_counts_that_cannot_be_are_a_dead_letter(counts: tuple[int, ...], message: str) -> None:
    td = policy("td")
    seeded = Seeded("td", td.version, td.initial(), 40, EVERY, 30, 20, NOW, counts=counts)
    _, commit = run(record(Seed("s1", NOW, "acme", 0, (seeded,))))
    (reason,) = reasons(commit)
    assert message in reason


def test_a_file_with_a_state_that_cannot_be_names_the_context_and_the_reason(
    tmp_path: Path,
) -> None:
    file = exported(learned(), tmp_path)
    header, *lines = file.read_bytes().splitlines()
    changed = [{**orjson.loads(line), "state": [0.8, 7.0, 0.6, 0.5]} for line in lines]
    file.write_bytes(b"\n".join([header, *map(orjson.dumps, changed)]))
    _, read = read_learned(file)
    rules = LearningConfig(policy("td"))
    tables = {0: TablePartition({})}
    found = rehearse(tables, Epoch(EPOCH, 1), rules, seeds_of(read, 1, "i1", NOW), NOW)
    (reason,) = found.refused
    wanted = f"acme: {EVERY}: state: is none of td: share is 7, which must be 0 to 1"
    assert reason == wanted
