"""The lock of a worker's data directory: one holder, and a standby gets it at once."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.worker import DataDirectoryNotWritable, DataDirectoryTaken, _lock

_HOLDER = """
import sys, time
from pathlib import Path
from agents.worker import _lock
lock = _lock(Path(sys.argv[1]), wait=sys.argv[2] == "wait")
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def start(path: Path, how: str, started: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _HOLDER, str(path), how]
    started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    return started[-1]


def held(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return process.stdout.readline() == "held\n"


def test_the_second_holder_is_refused_and_the_first_is_named(
    tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    path = tmp_path / "thresholds-0" / "worker.lock"
    holder = start(path, "at once", started)
    assert held(holder)
    with pytest.raises(DataDirectoryTaken, match=rf"process {holder.pid}\) runs on .*--instance"):
        _lock(path, wait=False)


def test_a_probe_of_another_worker_is_no_holder(tmp_path: Path) -> None:
    path = tmp_path / "thresholds-0" / "worker.lock"
    _lock(path, wait=False).close()
    probe = path.open("rb")
    fcntl.flock(probe, fcntl.LOCK_SH)
    threading.Timer(0.1, probe.close).start()
    _lock(path, wait=False).close()


@pytest.mark.parametrize("wiped", [False, True])
def test_a_standby_takes_over_on_kill(
    tmp_path: Path, started: list[subprocess.Popen[str]], wiped: bool
) -> None:
    path = tmp_path / "thresholds-0" / "worker.lock"
    holder = start(path, "at once", started)
    assert held(holder)
    spare = start(path, "wait", started)
    with pytest.raises(subprocess.TimeoutExpired):
        spare.wait(2.0)
    if wiped:
        shutil.rmtree(path.parent)
    os.kill(holder.pid, signal.SIGKILL)
    assert held(spare)
    assert path.read_text() == f"{spare.pid}\n"
    with pytest.raises(DataDirectoryTaken):
        _lock(path, wait=False)


def test_a_folder_of_another_user_is_named_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, **_: object) -> None:  # the user of the tests may write anywhere
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refused)
    owner = f"{os.getuid()}:{os.getgid()}"
    with pytest.raises(
        DataDirectoryNotWritable,
        match=rf"cannot write to {tmp_path}/a: {tmp_path} belongs to user .*chown -R {owner}\)",
    ):
        _lock(tmp_path / "a" / "worker.lock", wait=False)
