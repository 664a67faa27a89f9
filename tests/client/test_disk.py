"""A disk that refuses writes: read-only, full, or limited. emit() raises, and loses nothing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headstart import BufferFull, Emitter, NotDelivered, SpoolSettings, SpoolUnavailable
from headstart.shipping.shipper import MAX_AGE_S
from headstart.spool.layout import default_directory
from headstart.spool.reader import SpoolReader
from tests.client.on_disk import numbers, read_all
from tests.patience import until

FIELDS = {"event_type": "task_complete", "workflow_type": "w", "workflow_id": "w"}
NOWHERE = "127.0.0.1:1"


def emitter_in(directory: Path, **settings: object) -> Emitter:
    where = SpoolSettings(directory, **settings)  # type: ignore[arg-type]
    return Emitter(NOWHERE, spool=where, shipper="none")


def give_up(emitter: Emitter) -> None:
    with pytest.raises(NotDelivered):
        emitter.close(0.0)


def fill(emitter: Emitter) -> int:
    """Emit until the spool is full; return how many it took."""
    count = 0
    while True:
        try:
            emitter.emit(FIELDS, n=count)
        except BufferFull:
            return count
        count += 1


def test_a_full_spool_raises_and_keeps_accepted_events(tmp_path: Path) -> None:
    emitter = emitter_in(tmp_path, limit_bytes=20_000)
    count = fill(emitter)
    assert emitter.stats()["waiting"] == emitter.stats()["emitted"] == count > 50
    with pytest.raises(BufferFull, match="has reached its 20000 bytes"):
        emitter.emit(FIELDS)
    give_up(emitter)


def test_a_full_spool_that_blocks_goes_on_when_there_is_room(tmp_path: Path) -> None:
    emitter = emitter_in(tmp_path, limit_bytes=20_000, on_full="block")
    done = threading.Event()

    def run() -> None:
        for n in range(400):
            emitter.emit(FIELDS, n=n)
        done.set()

    caller = threading.Thread(target=run, daemon=True)
    caller.start()
    until(lambda: emitter.stats()["emitted"] > 0)
    (spool,) = {path.parent for path in tmp_path.glob("*/*.log")}
    backlog = SpoolReader(spool, MAX_AGE_S, lambda: time.time_ns() // 1_000_000)
    count, deadline = 0, time.monotonic() + 60
    while count < 400:
        items = read_all(backlog)
        count += len(items)
        for item in items:
            item.chunk.delivered()
        assert time.monotonic() < deadline
    assert done.wait(60)
    backlog.close()
    emitter.close(0.0)
    assert emitter.stats() == {
        "emitted": 400, "acknowledged": 400, "waiting": 0, "lost": 0, "dropped": 0,
        "scrubbed": 0,
    }  # fmt: skip


def test_close_unblocks_a_blocked_caller(tmp_path: Path) -> None:
    emitter = emitter_in(tmp_path, limit_bytes=4_000, on_full="block")
    outcome: list[BaseException] = []

    def run() -> None:
        try:
            for n in range(400):
                emitter.emit(FIELDS, n=n)
        except (BufferFull, RuntimeError) as error:
            outcome.append(error)

    caller = threading.Thread(target=run, daemon=True)
    caller.start()
    until(lambda: emitter.stats()["emitted"] > 0)
    give_up(emitter)
    caller.join(60)
    assert len(outcome) == 1


def test_dropping_the_oldest_is_counted_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    emitter = emitter_in(tmp_path, limit_bytes=20_000, on_full="drop_oldest")
    for n in range(1_000):
        emitter.emit(FIELDS, n=n)
    stats = emitter.stats()
    assert stats["dropped"] > 500
    assert stats["waiting"] == 1_000 - stats["dropped"], "what was dropped does not wait"
    assert caplog.text.count("were dropped") == 1
    pattern = rf"^{stats['waiting']} events .* wait in .*; {stats['dropped']:,} more were dropped"
    with pytest.raises(NotDelivered, match=pattern):
        emitter.close(0.0)


@pytest.mark.integration
@pytest.mark.usefixtures("topics")
def test_after_shipping_all_that_was_emitted_is_acknowledged_or_lost(
    kafka: str, tmp_path: Path
) -> None:
    where = SpoolSettings(tmp_path, limit_bytes=20_000)
    emitter = Emitter(kafka, spool=where, shipper="none", on_full="drop_oldest")
    for n in range(1_000):
        emitter.emit(FIELDS, n=n)
    before = emitter.stats()
    assert before["waiting"] + before["dropped"] == before["emitted"] == 1_000
    with Emitter(kafka, spool=where, shipper="thread") as shipping:
        shipping.emit(FIELDS)
        with pytest.raises(NotDelivered, match=f"^{before['dropped']} events were lost"):
            emitter.flush()
        shipping.flush()
    after = emitter.stats()
    assert (after["acknowledged"], after["waiting"]) == (before["waiting"], 0)
    assert after["acknowledged"] + after["lost"] == after["emitted"] == 1_000
    for n in range(1_000):
        emitter.emit(FIELDS, n=n)
    again = emitter.stats()
    assert again["waiting"] + again["dropped"] + again["acknowledged"] == again["emitted"] == 2_000
    give_up(emitter)


LIMITED = """
import resource, sys
import headstart
resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, 5_000))  # cuts a write short, then EFBIG
settings = headstart.SpoolSettings(sys.argv[1])
emitter = headstart.Emitter("127.0.0.1:1", spool=settings, shipper="none")
count = 0
try:
    while True:
        emitter.emit(event_type="task_complete", workflow_type="w", workflow_id="w", n=count)
        count += 1
except headstart.BufferFull:
    print(count)
"""


def test_a_write_that_the_disk_cuts_short_leaves_whole_events(tmp_path: Path) -> None:
    count = int(run_alone(LIMITED, tmp_path).stdout)
    assert count > 10
    (spool,) = {path.parent for path in tmp_path.glob("*/*.log")}
    backlog = SpoolReader(spool, MAX_AGE_S, lambda: time.time_ns() // 1_000_000)
    assert len(numbers(read_all(backlog))) == count
    assert backlog.progress.lost == 0
    backlog.close()


SMALL_DISK = """
import subprocess, sys
from pathlib import Path
import orjson
import headstart
from headstart.spool.reader import SpoolReader
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", sys.argv[1]], check=True)
settings = headstart.SpoolSettings(Path(sys.argv[1]), segment_bytes=20_000)
emitter = headstart.Emitter("127.0.0.1:1", spool=settings, shipper="none")
fields = dict(event_type="task_complete", workflow_type="w", workflow_id="w")
def fill(count):
    try:
        while True:
            emitter.emit(fields, n=count)
            count += 1
    except headstart.BufferFull as error:
        assert "its disk is full" in str(error)
        return count
full = fill(0)
assert full > 100
(spool,) = {path.parent for path in Path(sys.argv[1]).glob("*/*.log")}
backlog = SpoolReader(spool, 1e9, lambda: 0)
def ship():
    while (items := backlog.read()):
        for item in items:
            item.chunk.delivered()
            yield orjson.loads(item.event)["n"]
sent = list(ship())
assert fill(full) > full  # what was acknowledged made room
for _ in range(3):
    sent += ship()
    backlog.check_writer()
assert sent == list(range(emitter.stats()["emitted"])), sent[-5:]
assert backlog.progress.lost == 0
print(emitter.stats()["emitted"])
"""
NEW_MOUNTS = ["unshare", "--mount", "--map-root-user"]


def may_mount() -> bool:
    try:
        return (
            subprocess.run([*NEW_MOUNTS, "true"], capture_output=True, check=False).returncode == 0
        )
    except OSError:
        return False


@pytest.mark.skipif(not may_mount(), reason="needs a mount namespace: Linux, and permission")
def test_a_really_full_disk_loses_nothing_and_recovers(tmp_path: Path) -> None:
    assert int(run_alone(SMALL_DISK, tmp_path, NEW_MOUNTS).stdout) > 100


READ_ONLY = """
import contextlib, os, sys
from headstart import Emitter, SpoolUnavailable
with contextlib.suppress(ImportError):  # later the interpreter's own files may be out of reach
    import opentelemetry.trace, prometheus_client
if os.getuid() == 0:
    os.setuid(65534)  # permissions do not bind root
emitter = Emitter("127.0.0.1:1", spool=sys.argv[1], shipper="none")
try:
    emitter.emit(event_type="task_complete", workflow_type="w", workflow_id="w")
except SpoolUnavailable as error:
    print(error)
assert emitter.stats()["emitted"] == 0
emitter.close()
"""


def run_alone(
    program: str, directory: Path, under: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        [*under, sys.executable, "-c", program, str(directory)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )


def test_a_read_only_directory_is_named_with_the_remedy(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    ran = run_alone(READ_ONLY, tmp_path)
    assert str(tmp_path) in ran.stdout
    assert "durable=False" in ran.stdout


def test_the_emitter_recovers_when_the_directory_does(tmp_path: Path) -> None:
    directory = tmp_path / "spool"
    directory.write_text("")  # a file is in its place
    emitter = Emitter(NOWHERE, spool=directory, shipper="none")
    with pytest.raises(SpoolUnavailable):
        emitter.emit(FIELDS)
    directory.unlink()
    emitter.emit(FIELDS)
    assert emitter.stats()["waiting"] == 1
    give_up(emitter)


def test_the_emitter_recovers_when_files_can_be_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emitter = Emitter(NOWHERE, spool=tmp_path, shipper="none")
    opened = os.open

    def fails(path: Any, *args: Any, **more: Any) -> int:
        if str(path).endswith(".json"):
            raise OSError(errno.EMFILE, "Too many open files")
        return opened(path, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fails)
        for _ in range(2):
            with pytest.raises(SpoolUnavailable, match="Too many open files"):
                emitter.emit(FIELDS)
    assert not [*tmp_path.glob(".new-*")]
    emitter.emit(FIELDS)
    assert emitter.stats()["waiting"] == 1
    give_up(emitter)


def test_the_default_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert default_directory() == Path(os.environ["HEADSTART_SPOOL"])
    monkeypatch.delenv("HEADSTART_SPOOL")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "headstart" / "spool"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_directory() == tmp_path / ".local" / "state" / "headstart" / "spool"


def test_an_unknown_shipper_is_refused() -> None:
    with pytest.raises(ValueError, match="process, thread or none"):
        Emitter(NOWHERE, shipper="sidecar")  # type: ignore[arg-type]
