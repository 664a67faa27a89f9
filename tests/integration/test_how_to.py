"""docs/how-to.md from top to bottom, as a reader would run it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.system import System

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[2] / "docs" / "how-to.md"


def test_every_recipe_runs(
    system: System,
    judged: Callable[..., dict[str, Any]],
    write_events: Callable[[Sequence[dict[str, Any]]], Path],
    tmp_path: Path,
) -> None:
    at = system.addresses
    write_events([judged("acme")]).rename(tmp_path / "events.jsonl")
    blocks = re.findall(r"(?ms)^```(\w*)\n(.*?)^```", PAGE.read_text())
    assert len(blocks) >= 7
    clean = {name: value for name, value in os.environ.items() if "HEADSTART" not in name}
    environment = clean | {"HEADSTART_DATA": str(system.data), "HEADSTART_SPOOL": str(tmp_path)}
    for language, text in blocks:
        if language == "python":
            code = text.replace("127.0.0.1:9092", at.kafka)
            code = code.replace("redis://127.0.0.1:6379/0", at.redis)
            commands = [[sys.executable, "-c", code]]
        else:
            lines = [shlex.split(line) for line in text.splitlines()]
            assert all(line[0] == "headstart" for line in lines)
            commands = [[sys.executable, "-m", "cli", *line[1:]] for line in lines]
        for command in commands:
            ended = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True,
                timeout=120, check=False,
            )  # fmt: skip
            assert ended.returncode == 0, (command[-4:], ended.stdout, ended.stderr)
            assert system.drain(30)
    assert "Backtest" in (tmp_path / "report.html").read_text()
