"""A process that ends, however it does: what it emitted is shipped without anybody's help."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headstart.shipping import process as shipping
from headstart.shipping import supervisor
from headstart.shipping.shipper import Shipper
from headstart.shipping.supervisor import ShipperSupervisor
from headstart.spool.layout import spool_names
from headstart.spool.locks import open_lock, try_lock
from tests.client.on_disk import open_spool
from tests.client.spooling import Host
from tests.patience import until

CHILD = """
import multiprocessing, os, sys
import headstart
kafka, tenant = sys.argv[1:3]
emitter = headstart.Emitter(kafka)
def work():
    fields = dict(event_type="task_complete", workflow_type="w", workflow_id="w", tenant=tenant)
    os.write(1, (emitter.emit(fields, n=0) + "\\n").encode())
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
assert child.exitcode == 0
"""

NO_PROCESSES = """
import os, sys
import headstart, headstart.emitting.disk_buffer
headstart.emitting.disk_buffer.EXIT_S = 60.0  # on a busy machine it takes long to load what ships
sys.executable = "/no/such/python"
emitter = headstart.Emitter(sys.argv[1])
fields = dict(event_type="task_complete", workflow_type="w", workflow_id="w", tenant=sys.argv[2])
os.write(1, emitter.emit(fields, n=0).encode())
"""


@pytest.mark.integration
def test_a_multiprocessing_child_waits_for_a_shipper_before_it_exits(host: Host) -> None:
    host.start(0, program=CHILD).end()
    until(lambda: not host.spools())
    assert host.check() == 0
    assert len(host.emitted()) == 1


@pytest.mark.integration
def test_a_fallback_shipping_thread_sends_before_the_process_exits(host: Host) -> None:
    host.start(0, program=NO_PROCESSES).end()
    assert len(host.log()) == len(host.emitted()) == 1


CLOSING = """
import os, signal, sys
import headstart
from headstart.spool import writer as spool
emitter = headstart.Emitter("127.0.0.1:1", spool=sys.argv[1], shipper="none")
fields = dict(event_type="task_complete", workflow_type="w", workflow_id="w")
emitter.emit(fields)
def close(*_):
    try:
        emitter.close(0)
    except headstart.NotDelivered:
        pass
signal.signal(signal.SIGTERM, close)
go_on = spool.SpoolWriter.append
def append(self, *arguments):
    os.kill(os.getpid(), signal.SIGTERM)
    return go_on(self, *arguments)
spool.SpoolWriter.append = append
try:
    emitter.emit(fields)
except RuntimeError:
    print("refused")
"""


def test_an_emitter_closed_by_a_handler_during_emit_accepts_no_more(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CLOSING, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        check=True,
        timeout=300,
    )
    assert ran.stdout == b"refused\n"
    assert len(list(tmp_path.glob("*/*.log"))) == 1


def test_events_emitted_as_the_shared_process_ends_are_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[set[str]] = []

    async def run(self: Shipper, should_stop: Callable[[], bool]) -> None:
        self._remove_finished()
        assert should_stop()
        found.append(self.known)
        if len(found) == 1:  # by one that finds the lock held, and ends
            open_spool(tmp_path, "late").close()
        self.close()

    monkeypatch.setattr(Shipper, "run", run)
    monkeypatch.setattr(shipping, "IDLE_S", -1.0)
    open_spool(tmp_path, "early").close()
    (tmp_path / "unreadable").mkdir()
    lock = open_lock(tmp_path)
    assert try_lock(lock)
    shipping.ship_while_used(tmp_path, lock)
    assert found == [{"unreadable"}, {"unreadable"}]
    assert spool_names(tmp_path) == {"unreadable"}


def test_a_fork_while_a_lock_is_opened_does_not_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, forked = threading.Event(), threading.Event()

    def slow(directory: Path) -> int:
        lock = open_lock(directory)
        opened.set()
        forked.wait(0.5)  # where it may fork meanwhile it does
        return lock

    monkeypatch.setattr(supervisor, "open_lock", slow)
    monkeypatch.setattr(ShipperSupervisor, "_ship", lambda *_: None)
    shipper_supervisor = supervisor.shipper_supervisor(tmp_path, "thread")
    shipper_supervisor.join()
    assert opened.wait(60)
    child = os.fork()
    if not child:
        there = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
        os._exit(sum(name.endswith("ship.lock") for name in there))
    forked.set()
    shipper_supervisor.leave(0)
    assert os.waitpid(child, 0)[1] == 0
