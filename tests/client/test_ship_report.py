"""What a run of `ship` reports about events that it could not send."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from cli.main import app
from headstart.shipping.process import ship
from headstart.spool.layout import QUARANTINE, segments
from headstart.spool.locks import note_shipper, open_lock, try_lock
from tests.client.on_disk import crash, fill, open_spool
from tests.client.spooling import Host
from tests.patience import PATIENCE_S


def leave_old_events(directory: Path, name: str, count: int) -> None:
    """Leave a dead spool whose events are too old to be sent: no broker is needed."""
    spool = open_spool(directory, name, now_ms=lambda: 1_000_000_000_000)
    fill(spool, count)
    crash(spool)


def drain(directory: Path, *options: str) -> tuple[int, str]:
    ended = CliRunner().invoke(app, ["ship", "--spool", str(directory), "--drain", *options])
    return ended.exit_code, ended.output.splitlines()[-1]


def test_a_drain_that_lost_events_fails_and_names_the_quarantine(tmp_path: Path) -> None:
    kept = tmp_path / QUARANTINE
    leave_old_events(tmp_path, "a", 3)
    code, printed = drain(tmp_path)
    assert code == 1
    assert printed == f"0 spools are left in {tmp_path}; events lost: 3, files added to {kept}: 1"
    leave_old_events(tmp_path, "b", 2)
    code, printed = drain(tmp_path, "--json")
    assert code == 1
    assert orjson.loads(printed) == {
        "spool": str(tmp_path), "spools_left": 0, "lost": 2, "quarantined": 1,
        "quarantined_before": 1,
    }  # fmt: skip


def test_files_quarantined_by_an_earlier_run_are_a_note(tmp_path: Path) -> None:
    leave_old_events(tmp_path, "a", 3)
    drain(tmp_path)
    code, printed = drain(tmp_path)
    assert code == 0
    assert printed.endswith(f"; note: files from before in {tmp_path / QUARANTINE}: 1")


def test_the_process_that_ships_already_is_named_with_the_remedy(tmp_path: Path) -> None:
    lock = open_lock(tmp_path)
    try:
        assert try_lock(lock)
        with pytest.raises(TimeoutError, match=f"^another process ships {tmp_path}$"):
            ship(tmp_path, timeout_s=0.0)
        note_shipper(lock)
        with pytest.raises(TimeoutError, match=rf"^process {os.getpid()} ships .*\(kill [0-9]+\)"):
            ship(tmp_path, timeout_s=0.0)
    finally:
        os.close(lock)


@pytest.mark.integration
def test_a_drain_of_a_damaged_spool_fails(host: Host) -> None:
    host.mode = "none"
    executor = host.start(100_000)
    executor.until(200)
    executor.kill()
    (name,) = host.spools()
    ((_, segment),) = segments(host.spool / name)
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    code, printed = drain(host.spool, "--json", "--timeout", str(PATIENCE_S))
    found = orjson.loads(printed)
    assert code == 1
    assert (found["spools_left"], found["lost"], found["quarantined"]) == (0, 1, 1)
    assert len({event["id"] for event in host.log()}) >= len(host.emitted()) - 1
