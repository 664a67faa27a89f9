"""A started process imports Headstart's modules, not those of the user's current directory."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deploy.supervisor import Supervisor
from tests.patience import PATIENCE_S

SHADOWS = ("settings.py", "topics.py", "agents.py", "cli.py", "processing.py")


def test_a_worker_does_not_import_from_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SHADOWS:
        (tmp_path / name).write_text("raise SystemExit(77)")
    supervisor = Supervisor(tmp_path / "data", {}, ["thresholds"])
    commands: list[list[str]] = []

    def spawn(_label: str, command: list[str], _ending: float, **_: Any) -> Any:
        commands.append(command)
        return SimpleNamespace()

    monkeypatch.setattr(supervisor, "_group", SimpleNamespace(
        claim=lambda _label: None, spawn=spawn, launched=lambda: None,
    ))  # fmt: skip
    supervisor.start()
    (command,) = commands
    ended = subprocess.run(
        [*command, "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr


def test_every_started_module_is_imported_safely() -> None:
    root = Path(__file__).parents[2]
    for folder in ("agents", "bench", "cli", "client/headstart", "console",
                   "demo", "deploy", "examples", "kernels",
                   "processing", "replay", "settings", "sinks", "topics"):  # fmt: skip
        for source in (root / folder).rglob("*.py"):
            assert 'sys.executable, "-m"' not in source.read_text(), f"{source}: add -P"
