"""A watched worker that hangs is ended with its parent, so that a container engine restarts it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from processing.worker_report import REPORT_FILE, decode_report
from tests.patience import PATIENCE_S, until
from tests.processes import command_line, wait_gone


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """One that waits for its services, which is enough to report."""
    command = command_line("worker", "history", "--watched", "--stuck-after-s", "1")
    nowhere = {"HEADSTART_KAFKA": "127.0.0.1:1", "HEADSTART_DATA": str(tmp_path)}
    process = subprocess.Popen(
        command, env=os.environ | nowhere, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=tmp_path,
    )  # fmt: skip
    yield process
    process.kill()
    process.communicate()


def child(folder: Path) -> int:
    """Return the worker's process id, 0 before it has reported."""
    try:
        report = decode_report((folder / "workers" / "history-0" / REPORT_FILE).read_bytes())
    except OSError:
        return 0
    return 0 if report is None else report.pid


def test_one_that_hangs_is_ended_with_its_parent(
    watched: subprocess.Popen[str], tmp_path: Path
) -> None:
    until(lambda: child(tmp_path))
    worker = child(tmp_path)
    assert worker != watched.pid
    os.kill(worker, signal.SIGSTOP)
    output, _ = watched.communicate(timeout=PATIENCE_S)
    assert watched.returncode == 70, output
    assert "worker.stuck" in output
    assert "it has not reported for" in output
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def test_a_signal_is_passed_on(watched: subprocess.Popen[str], tmp_path: Path) -> None:
    until(lambda: child(tmp_path))
    watched.send_signal(signal.SIGTERM)
    output, _ = watched.communicate(timeout=PATIENCE_S)
    assert "worker.stuck" not in output
    with pytest.raises(ProcessLookupError):
        os.kill(child(tmp_path), 0)
    assert watched.returncode == 128 + signal.SIGTERM, output  # it waited for a broker


def test_a_worker_ends_with_a_parent_that_is_killed(
    watched: subprocess.Popen[str], tmp_path: Path
) -> None:
    until(lambda: child(tmp_path))
    worker = child(tmp_path)
    watched.kill()
    wait_gone({"worker": worker})


@pytest.mark.parametrize("words", [("all",), ("thresholds", "--spare")])
def test_only_one_worker_that_is_not_a_spare_is_watched(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        command_line("worker", *words, "--watched"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--watched is for one worker that is not a spare" in done.stderr.replace("\n", " ")
