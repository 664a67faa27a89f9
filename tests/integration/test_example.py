"""The example that people copy: it is short, and it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.system import System
from headstart import Thresholds
from tests.patience import PATIENCE_S
from tests.secured import reading

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

EXAMPLE = Path(__file__).parents[2] / "examples" / "executor.py"


def test_it_is_under_40_lines() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 40


def test_it_runs(system: System, tmp_path: Path) -> None:
    at = system.addresses
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE), at.kafka, reading(at)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "HEADSTART_SPOOL": str(tmp_path)},
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "140 events acknowledged\n"
    assert system.drain(PATIENCE_S)
    with Thresholds(reading(at), timeout_s=30.0) as thresholds:
        answer = thresholds.get(workflow_type="refund", domain="retail", user_id="u7")
    assert answer.level == "workflow_type=refund/domain=retail/user_id=u7"
    assert answer.outcomes >= 60
