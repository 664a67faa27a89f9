"""The processes that benchmarks start find the package, which is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.capture import _timed


def test_an_executor_of_a_benchmark_runs_in_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(_timed(tmp_path, ["bare"], "not connected", 20, pace="busy")) == 20
