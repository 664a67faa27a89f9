"""An interrupted backtest goes on with what it has, and with nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from replay.execution.resume_file import AnotherBacktest, begun
from replay.execution.runner import Backtest, named, run_backtest
from replay.sources.base import ReadOptions
from replay.sources.files import OutcomeFile


@pytest.fixture
def work(tmp_path: Path) -> Backtest:
    file = tmp_path / "o.jsonl"
    line = {"context": {"workflow_type": "a"}, "confidence": 0.8, "gain": 4, "cost": 6}
    file.write_text(
        "".join(json.dumps({**line, "correct": n % 3 > 0, "at": n}) + "\n" for n in range(200))
    )
    return Backtest(OutcomeFile(file, ReadOptions()), named(("fixed", "td", "hops")), begun=5)


def test_on_fewer_cores_no_policy_is_lost(work: Backtest, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    run_backtest(work, lambda _: None, processes=3, resume=kept)
    stored = msgspec.msgpack.decode(kept.read_bytes())
    assert len(stored["found"]) == 3
    del stored["found"]["0/1"]  # as if it had been interrupted before
    kept.write_bytes(msgspec.msgpack.encode(stored))
    (unit,) = run_backtest(work, lambda _: None, processes=1, resume=kept)
    assert set(unit.parts[0].arms) == {"fixed", "td", "hops"}
    assert len(msgspec.msgpack.decode(kept.read_bytes())["found"]) == 3
    assert begun(kept) == 5


def test_a_file_that_has_changed_is_another(work: Backtest, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    run_backtest(work, lambda _: None, processes=1, resume=kept)
    with (tmp_path / "o.jsonl").open("a") as file:
        file.write('{"confidence": 0.5, "correct": true}\n')
    with pytest.raises(AnotherBacktest, match="a file has changed"):
        run_backtest(work, lambda _: None, processes=1, resume=kept)


def test_a_foreign_file(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a letter")
    assert begun(tmp_path / "missing") is None
    with pytest.raises(AnotherBacktest, match="not written by --resume; name another file"):
        begun(tmp_path / "kept")
