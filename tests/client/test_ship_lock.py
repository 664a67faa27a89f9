"""One shipper per directory, also where its lock file is deleted; and as many files as it may have.

With real processes, as the kernel's locks are what is looked at.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.client.spooling import Host, runs
from tests.patience import PATIENCE_S, until

pytestmark = pytest.mark.integration


def test_a_shipper_ends_if_the_lock_file_was_deleted(host: Host) -> None:
    first = host.start(100_000, pause=0.002)
    first.until(200)
    until(lambda: host.shipper() != 0)
    before = host.shipper()
    (host.spool / "ship.lock").unlink()
    second = host.start(500, pause=0.002)  # finds the lock free, and so no shipper
    until(lambda: host.shipper() not in {0, before})
    until(lambda: not runs(before))
    after = host.shipper()
    second.end()
    first.kill()
    until(lambda: not host.spools())
    assert runs(after)
    host.check()


def test_without_a_newcomer_a_successor_is_found_too(host: Host) -> None:
    executor = host.start(6_000, pause=0.001)
    executor.until(200)
    until(lambda: host.shipper() != 0)
    before = host.shipper()
    for name in ("ship.lock", "bell"):
        (host.spool / name).unlink()
    until(lambda: not runs(before))
    until(lambda: host.shipper() not in {0, before})
    executor.end()
    until(lambda: not host.spools())
    host.check()


def ship(host: Host, files: int | None = None) -> subprocess.Popen[bytes]:
    """The command of an operator, that may at first have so many files open."""
    argv = [sys.executable, "-m", "headstart", "ship"]
    if files is not None:
        argv = ["sh", "-c", f'ulimit -S -n {files}; exec "$@"', "sh", *argv]
    return subprocess.Popen(argv, env=host.environment())


def test_the_command_locks_again_and_continues(host: Host) -> None:
    host.mode = "none"
    executor = host.start(2_000, pause=0.001)
    executor.until(100)
    with ship(host) as command:
        until(lambda: host.shipper() == command.pid)
        (host.spool / "ship.lock").unlink()
        until(lambda: host.shipper() == command.pid)  # it was written to the new file
        executor.end()
        command.send_signal(signal.SIGTERM)
        assert command.wait(PATIENCE_S) == 0
    host.check()


MANY = """
import os, sys
import headstart
kafka, tenant = sys.argv[1:3]
fields = dict(event_type="task_complete", workflow_type="w", workflow_id="w", tenant=tenant)
emitters = [headstart.Emitter(kafka) for _ in range(40)]
for n, emitter in enumerate(emitters):
    os.write(1, (emitter.emit(fields, n=n) + "\\n").encode())
for emitter in emitters:
    emitter.flush(90)
"""


def test_more_spools_than_files_that_it_may_have_open_at_first(host: Host) -> None:
    host.mode = "none"
    many = host.start(0, program=MANY)
    with ship(host, files=64) as command:
        many.end()
        command.send_signal(signal.SIGTERM)
        assert command.wait(PATIENCE_S) == 0
    assert len(host.emitted()) == 40
    assert host.check() == 0
