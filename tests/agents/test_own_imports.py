"""A worker imports its own module, not those of the others, and a spare does so before it waits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agents import worker
from agents.config import WorkerConfig

MODULES = {
    "episodes": "agents.storage.agent",
    "history": "agents.storage.agent",
    "memory": "agents.memory.main",
    "predictions": "agents.predictions.agent",
    "spans": "agents.spans.agent",
    "thresholds": "agents.thresholds.agent",
}
IMPORT_EACH = """
import json, os, sys
from agents import worker
modules = json.loads(sys.argv[1])
for name in modules:
    if not (child := os.fork()):
        worker._imported(name)
        print(json.dumps([name, sorted({*modules.values()} & {*sys.modules})]), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_each_imports_its_own_module() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH, json.dumps(MODULES)],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    found = dict(json.loads(line) for line in ended.stdout.splitlines())
    assert found == {name: [module] for name, module in MODULES.items()}


def test_a_spare_imports_before_it_waits(
    monkeypatch: pytest.MonkeyPatch, worker_config: WorkerConfig
) -> None:
    steps: list[str] = []

    def wait(path: Path, **_options: Any) -> Any:
        steps.append(f"wait for {path.name}")
        raise InterruptedError

    monkeypatch.setitem(worker.APPS, "thresholds", lambda: steps.append("import") or _never)
    monkeypatch.setattr(worker, "_lock", wait)
    with pytest.raises(InterruptedError):
        worker.run_worker("thresholds", worker_config, spare=True)
    assert steps == ["import", "wait for worker.lock"]


def _never(*_: Any) -> Any:
    raise AssertionError
