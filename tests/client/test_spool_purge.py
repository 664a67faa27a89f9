"""A user's events leave the files of a spool; all others stay, whatever is killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from cli.main import app
from headstart import cli as client_cli
from headstart.shipping.shipper import MAX_AGE_S
from headstart.spool import purged_positions, purging, replacing
from headstart.spool.layout import NEW, QUARANTINE, segments
from headstart.spool.locks import open_lock, try_lock
from headstart.spool.purged_events import SpoolSubject
from headstart.spool.purged_positions import read_purged
from headstart.spool.purging import SpoolPurge, purge_spools
from headstart.spool.quarantine import keep_event, keep_segment
from headstart.spool.reader import SpoolReader
from headstart.spool.writer import SpoolWriter
from tests.client.on_disk import Clock, crash, open_backlog, open_spool, read_all

SEGMENT_BYTES = 600
MINE = SpoolSubject("acme", "u7")
CANARY = b"u7"


def event(number: int, **fields: Any) -> bytes:
    base = {"tenant": "acme", "workflow_type": "refund", "workflow_id": f"w{number}", "n": number}
    return orjson.dumps(base | fields)


def events() -> list[bytes]:
    """Return events of which those with a number that is a multiple of three go."""
    found = []
    for n in range(30):
        mine = n % 3 == 0
        others: dict[str, Any] = [
            {"user_id": "u8"}, {"user_id": "u7", "tenant": "rival"}, {"note": "u7 said"}, {},
        ][n % 4]  # fmt: skip
        if mine:
            # Of a run of the user every second event names none.
            others = {"user_id": "u7"} if n % 2 else {"user_id": None, "workflow_id": f"w{n + 3}"}
        found.append(event(n, **others))
    return [*found, event(30, user_id="u7", workflow_id="w33"), event(31)]


GONE = {n for n in range(30) if n % 3 == 0} | {30}


def filled(directory: Path, *, end: bool = True, name: str = "s") -> SpoolWriter:
    spool = open_spool(directory, name, segment_bytes=SEGMENT_BYTES)
    for each in events():
        assert spool.append(b"k", each)
    if end:
        crash(spool)
    return spool


def kept() -> list[bytes]:
    return [each for n, each in enumerate(events()) if n not in GONE]


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "ship.lock"
    }


def test_exactly_the_users_events_go_and_none_counts_as_lost(tmp_path: Path) -> None:
    spool = filled(tmp_path)
    assert len(segments(spool.folder)) > 3
    there = len(segments(spool.folder))
    dry = purge_spools(tmp_path, MINE, dry_run=True)
    assert (dry.removed, read_purged(spool.folder)) == (len(GONE), [])
    found = purge_spools(tmp_path, MINE)
    assert found == dry
    assert found.complete
    assert len(segments(spool.folder)) == there
    backlog = open_backlog(spool)
    items = read_all(backlog)
    assert [item.event for item in items] == kept()
    for item in items:
        item.chunk.delivered()
    read_all(backlog)
    assert (backlog.progress.settled, backlog.progress.lost) == (len(events()), 0)
    assert backlog.removable
    backlog.remove()
    assert files(tmp_path) == {}
    assert purge_spools(tmp_path, MINE) == SpoolPurge(tmp_path, MINE, 0, 0)


def test_another_user_or_tenant_changes_nothing(tmp_path: Path) -> None:
    filled(tmp_path)
    before = files(tmp_path)
    for tenant, user in (("acme", "u"), ("acme", "u70"), ("rivals", "u7"), ("default", "u7")):
        assert purge_spools(tmp_path, SpoolSubject(tenant, user)).removed == 0
    assert files(tmp_path) == before
    assert purge_spools(tmp_path, SpoolSubject("rival", "u7")).removed == sum(
        b"rival" in e for e in events()
    )


SUBJECTS = [
    (SpoolSubject("acme", session_id="s1"), [b"a", b"b"]),
    (SpoolSubject("acme", workflow_id="w1"), [b"a", b"c"]),
    (SpoolSubject("acme", whole_tenant=True), [b"a", b"b", b"c", b"d"]),
    (SpoolSubject("default", whole_tenant=True), [b"f"]),
]


@pytest.mark.parametrize(("subject", "gone"), SUBJECTS)
def test_of_a_session_a_workflow_and_a_tenant_their_own_events_go(
    tmp_path: Path, subject: SpoolSubject, gone: list[bytes]
) -> None:
    spool = open_spool(tmp_path, "s", segment_bytes=SEGMENT_BYTES)
    made: dict[str, dict[str, Any]] = {
        "a": {"workflow_id": "w1", "session_id": "s1", "user_id": "u7"},
        "b": {"workflow_id": "w2", "session_id": "s1"},
        "c": {"workflow_id": "w1", "user_id": "u7"},
        "d": {"workflow_id": "s1", "session_id": "w1"},
        "e": {"workflow_id": "w1", "session_id": "s1", "tenant": "rival"},
        "f": {"workflow_id": "w1", "tenant": None},
    }
    events = {name.encode(): event(0, **fields) for name, fields in made.items()}
    for each in events.values():
        assert spool.append(b"k", each)
    crash(spool)
    assert purge_spools(tmp_path, subject).removed == len(gone)
    backlog = open_backlog(spool)
    left = [item.event for item in read_all(backlog)]
    backlog.close()
    expected = [each for name, each in events.items() if name not in gone]
    assert left == expected


def test_what_is_no_subject_erases_nothing(tmp_path: Path) -> None:
    filled(tmp_path)
    before = files(tmp_path)
    for subject in (
        SpoolSubject("acme"), SpoolSubject("acme", ""), SpoolSubject("", whole_tenant=True),
        SpoolSubject("acme", "u7", "s1"), SpoolSubject("acme", "u7", whole_tenant=True),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"give one of|is empty"):
            purge_spools(tmp_path, subject)
    assert files(tmp_path) == before


def test_events_that_a_shipper_has_sent_go_too_and_it_continues_behind(tmp_path: Path) -> None:
    spool = filled(tmp_path)
    first = open_backlog(spool)
    for item in read_all(first)[:8]:
        item.chunk.delivered()
    settled = first.progress.settled
    first.close()
    purge_spools(tmp_path, MINE)
    second = open_backlog(spool)
    left = [each for n, each in enumerate(events()) if n not in GONE and n >= settled]
    assert [item.event for item in read_all(second)] == left
    assert second.progress.lost == 0
    second.close()


def test_quarantined_events_go_too(tmp_path: Path) -> None:
    spool = filled(tmp_path)
    for each in events():
        keep_event(spool.folder, each, "refused")
    keep_segment(segments(spool.folder)[0][1], "is old")
    found = purge_spools(tmp_path, MINE)
    assert found.complete
    lines = (tmp_path / QUARANTINE / "s.jsonl").read_bytes().splitlines()
    assert lines == kept()
    ((copy, data),) = (
        (name, data) for name, data in files(tmp_path).items() if name.startswith("quarantine/s-")
    )
    assert copy.endswith(".log")
    assert data == segments(spool.folder)[0][1].read_bytes()


@pytest.mark.parametrize("named", [False, True])
def test_a_torn_end_goes_if_it_names_the_user_and_other_damage_is_reported(
    tmp_path: Path, named: bool
) -> None:
    spool = filled(tmp_path)
    first, *_, last = [path for _, path in segments(spool.folder)]
    part = event(99, user_id="u7" if named else "u8")
    with last.open("ab") as file:
        file.write(b"\xe7\x1d\x01" + part)
    with first.open("r+b") as file:
        data = file.read()
        at = data.index(b'"u7"' if named else b'"u8"')
        file.seek(at - 40)
        file.write(b"\xff")
    found = purge_spools(tmp_path, MINE)
    assert found.unreadable == ((f"s/{first.name}",) if named else ())
    assert found.complete is not named
    assert last.read_bytes().endswith(part) is not named
    assert b"\xff" in first.read_bytes()


@pytest.mark.parametrize(
    ("part", "tenant", "reported", "left"),
    [
        (b'{"workflow_type":"refund","user_id":"u', "default", True, True),
        (b'{"workflow_type":"refund","tenant":"defau', "default", True, True),
        (b'{"tenant":"default","user_id":"u', "default", False, False),
        (b'{"tenant":"acme","user_id":"u', "default", True, True),
        (b'{"workflow_type":"refund","user_id":"u', "rival", False, True),
        (b"\x00\x01", "default", False, True),
    ],
    ids=str,
)
def test_a_torn_end_may_be_of_the_default_tenant_without_its_name(
    tmp_path: Path, part: bytes, tenant: str, reported: bool, left: bool
) -> None:
    """It goes only if it names the tenant; else it stays, and is reported."""
    spool = filled(tmp_path)
    last = segments(spool.folder)[-1][1]
    with last.open("ab") as file:
        file.write(b"\xe7\x1d\x01" + part)
    found = purge_spools(tmp_path, SpoolSubject(tenant, whole_tenant=True))
    assert found.unreadable == ((f"s/{last.name}",) if reported else ())
    assert last.read_bytes().endswith(part) is left


def test_spools_and_directories_in_use_are_left_as_they_are(tmp_path: Path) -> None:
    writing = filled(tmp_path, end=False)
    filled(tmp_path, name="dead")
    before = files(tmp_path)
    found = purge_spools(tmp_path, MINE)
    assert (found.in_use, found.complete, found.removed) == (("s",), False, len(GONE))
    after = files(tmp_path)
    assert {n: d for n, d in after.items() if n.startswith("s/")} == {
        n: d for n, d in before.items() if n.startswith("s/")
    }
    writing.close()
    lock = open_lock(tmp_path)
    assert try_lock(lock)
    with pytest.raises(TimeoutError, match="stop the executors there"):
        purge_spools(tmp_path, MINE, timeout_s=0.1)
    os.close(lock)
    assert files(tmp_path)["s/spool.json"] == before["s/spool.json"]
    assert purge_spools(tmp_path, MINE).removed == len(GONE)


def killed_at(line: int, directory: Path) -> bool:
    """Purge in a child that is killed at its n-th line of the purge; return whether it was."""
    child = os.fork()
    if child == 0:
        left = line
        modules = {purging.__file__, purged_positions.__file__, replacing.__file__}

        def trace(frame: FrameType, what: str, _argument: object) -> Any:
            nonlocal left
            if frame.f_code.co_filename not in modules:
                return None
            left -= what == "line"
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        with contextlib.suppress(BaseException):
            purge_spools(directory, MINE)
        os._exit(0)
    return os.waitpid(child, 0)[1] == signal.SIGKILL


def sent_from(directory: Path, copy: Path) -> list[bytes]:
    """Return what a shipper would send, from a copy; none is lost."""
    shutil.copytree(directory, copy)
    backlog = SpoolReader(copy / "s", MAX_AGE_S, Clock())
    found = [item.event for item in read_all(backlog)]
    assert backlog.progress.lost == 0
    backlog.close()
    return found


def test_killed_at_any_line_each_file_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    def made(name: str) -> Path:
        directory = tmp_path / name
        keep_event(filled(directory).folder, events()[0], "refused")
        return directory

    purge_spools(made("new"), MINE)
    new = files(tmp_path / "new")
    line, step = 1, 19
    while killed_at(line, directory := made(f"at-{line}")):
        sent = sent_from(directory, tmp_path / f"copy-{line}")
        assert sent == [each for each in events() if each in set(sent)], line
        assert set(kept()) <= set(sent), line
        assert {n for a, b in read_purged(directory / "s") for n in range(a, b)} <= GONE
        purge_spools(directory, MINE)
        left = {n: d for n, d in files(directory).items() if not Path(n).name.startswith(NEW)}
        assert left == new, line
        line += step
    assert line > 10 * step


@pytest.fixture
def client_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_cli, "entry_points", lambda **_: ())


def test_the_command_says_what_it_did(tmp_path: Path) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        given = ("--tenant", "acme", "--user", "u7", "--spool", str(tmp_path), *words)
        found = CliRunner().invoke(app, ["spool", "purge", *given])
        return found.exit_code, found.stdout, found.stderr

    writing = filled(tmp_path, end=False)
    code, out, err = run("--json", "--yes")
    told = orjson.loads(out)
    assert (code, told["in_use"]) == (1, ["s"])
    assert told["subject"] == {"tenant": "acme", "user_id": "u7"}
    assert "processes still write 1 spool" in err
    writing.close()
    assert run()[0] == 1, "not confirmed"
    code, out, err = run("--dry-run")
    assert (code, out) == (0, "")
    assert f"would be removed: {len(GONE)} events" in err
    code, _, err = run("--yes")
    assert (code, f"removed: {len(GONE)} events" in err) == (0, True)
    assert "removed: 0 events" in run("--yes")[2]


@pytest.mark.usefixtures("client_alone")
def test_the_client_alone_has_the_command_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path)
    words = ["spool", "purge", "--tenant", "acme", "--user", "u7", "--spool", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["headstart", *words])
    with pytest.raises(SystemExit) as ended:
        client_cli.main()
    assert ended.value.code == 0
    assert f"user 'u7' of tenant 'acme' in {tmp_path}: {len(GONE)}, in " in capsys.readouterr().err
    monkeypatch.setattr(
        "sys.argv", ["headstart", *words[:4], "--session", "", "--spool", str(tmp_path)]
    )
    with pytest.raises(SystemExit, match="give --whole-tenant"):
        client_cli.main()
