"""Laws of an output: whole or not at all, whatever stands at its name, and never the input."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from replay.files.output import (
    CannotWrite,
    OutputIsInput,
    check_folder,
    check_output,
    is_stdout,
    output_file,
    write_file,
)
from tests.patience import PATIENCE_S


@pytest.fixture
def read_pipe(tmp_path: Path) -> Callable[[Callable[[Path], None]], bytes]:
    """Make a pipe, read it while something writes, and return what came."""

    def read(write: Callable[[Path], None]) -> bytes:
        pipe, found = tmp_path / "pipe", list[bytes]()
        os.mkfifo(pipe)
        reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
        reader.start()
        write(pipe)
        reader.join(PATIENCE_S)
        assert stat.S_ISFIFO(pipe.lstat().st_mode)
        return found[0]

    return read


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o640])
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "x"
    file.write_text("before")
    file.chmod(mode)
    about = file.stat()
    write_file(file, "after")
    assert file.read_text() == "after"
    assert stat.S_IMODE(file.stat().st_mode) == mode
    assert (file.stat().st_uid, file.stat().st_gid) == (about.st_uid, about.st_gid)
    assert list(tmp_path.iterdir()) == [file]


def test_a_new_file_has_the_mode_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "x", b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_its_target_is_written(tmp_path: Path, there: bool) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "x", tmp_path / "link"
    if there:
        target.write_text("before")
    (tmp_path / "second").symlink_to("real/x")
    link.symlink_to("second")
    write_file(link, "after")
    assert link.is_symlink()
    assert (tmp_path / "second").is_symlink()
    assert target.read_text() == "after"


def test_a_pipe_is_written_in_place(read_pipe: Callable[..., bytes]) -> None:
    assert read_pipe(lambda pipe: write_file(pipe, b"\0\xff" * 70_000)) == b"\0\xff" * 70_000


def fail(target: Path, raised: type[BaseException]) -> None:
    """Write half of an output, and raise."""
    with output_file(target) as written:
        written.write(b"half")
        raise raised


def test_a_pipe_gets_nothing_of_what_failed(read_pipe: Callable[..., bytes]) -> None:
    def write(pipe: Path) -> None:
        with pytest.raises(LookupError):
            fail(pipe, LookupError)

    assert read_pipe(write) == b""


def test_devices_stay_devices() -> None:
    about = os.stat("/dev/null")
    write_file("/dev/null", b"x")
    assert os.stat("/dev/null").st_rdev == about.st_rdev
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(CannotWrite, match="/dev/full: No space left"):
        write_file("/dev/full", b"x")


@pytest.mark.parametrize("name", ["/dev/fd/{}", "/proc/self/fd/{}", "link"])
def test_a_descriptor_is_written_where_it_is(tmp_path: Path, name: str) -> None:
    log = tmp_path / "log"
    log.write_text("first\n")
    number = os.open(log, os.O_WRONLY | os.O_APPEND)
    link = tmp_path / "link"
    link.symlink_to(f"/dev/fd/{number}")
    try:
        write_file(link if name == "link" else name.format(number), "second\n")
        os.write(number, b"third\n")
    finally:
        os.close(number)
    assert log.read_text() == "first\nsecond\nthird\n"
    assert link.is_symlink()


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/proc/self/fd/1", "/dev/fd/1"])
def test_standard_output_by_any_name(name: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert is_stdout(name)
    write_file(name, b"\xff\0")
    assert capfdbinary.readouterr().out == b"\xff\0"


@pytest.mark.parametrize("name", ["/dev/null", "/dev/stderr", "x", "/dev/fd/x", "/dev/fd"])
def test_what_is_not_standard_output(name: str) -> None:
    assert not is_stdout(name)


@pytest.mark.parametrize("how", ["itself", "link", "hardlink", "spelling", "relative"])
def test_an_output_is_no_input(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    source, other = tmp_path / "x", tmp_path / "other"
    source.write_text("input")
    names: dict[str, Path | str] = {
        "itself": source, "link": other, "hardlink": other,
        "spelling": tmp_path / "folder" / ".." / "x", "relative": "x",
    }  # fmt: skip
    if how == "link":
        other.symlink_to(source)
    elif how == "hardlink":
        other.hardlink_to(source)
    monkeypatch.chdir(tmp_path)
    for check in (check_output, lambda *given: output_file(*given).__enter__()):
        with pytest.raises(OutputIsInput, match="is also the input"):
            check(names[how], [tmp_path / "none", source])
    assert source.read_text() == "input"


def test_inputs_and_outputs_that_are_no_files_may_be_one() -> None:
    check_output("/dev/null", ["/dev/null"])


@pytest.mark.parametrize("raised", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_after_an_exception_all_is_as_it_was(tmp_path: Path, raised: type[BaseException]) -> None:
    file = tmp_path / "x"
    file.write_text("before")
    with pytest.raises(raised):
        fail(file, raised)
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_after_a_signal_all_is_as_it_was(tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "x"
    file.write_text("before")
    code = (
        "import sys, time; from replay.files.output import output_file\n"
        "with output_file(sys.argv[1]) as written:\n"
        "    written.write(b'half'); print('written', flush=True); time.sleep(600)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"written\n"
        child.send_signal(number)
        assert child.wait(PATIENCE_S) != 0
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_a_pipe_without_a_reader_is_one_clear_line() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        with pytest.raises(CannotWrite, match="its reader has exited"):
            write_file(f"/dev/fd/{writing}", b"x")
    finally:
        os.close(writing)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("folder", "it is a folder; name a file in it"),
        ("none/x", ".*none does not exist; create that folder"),
        ("file/x", "does not exist|Not a directory"),
        ("loop", "Too many levels"),
        ("/dev/fd/987", "Bad file descriptor"),
        ("x" * 300, "File name too long"),
    ],
)
def test_an_output_that_cannot_be_written_is_reported(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(CannotWrite, match=f"^cannot write .*: {why}"):
        write_file(tmp_path / name, b"x")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_output_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("before")
    file.chmod(0o444)
    with pytest.raises(CannotWrite, match="read-only"):
        write_file(file, b"x")
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(CannotWrite, match="read-only"):
            check_output(tmp_path / "y")
    finally:
        tmp_path.chmod(0o755)


def test_a_folder_for_outputs_is_checked_before_the_work(tmp_path: Path) -> None:
    check_folder(tmp_path / "a" / "b")
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="is not a folder"):
        check_folder(tmp_path / "file" / "b")
    with pytest.raises(CannotWrite, match="is not a folder"):
        check_folder(tmp_path / "file")
