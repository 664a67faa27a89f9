"""Writes the files of commands: each is replaced as a whole or stays unchanged.

A regular file is replaced by a rename after the result was written to a temporary file beside it;
it keeps its mode and owner, and a symbolic link to it is followed. A pipe, a device or a descriptor
(`/dev/stdout`, `/dev/fd/N`) is written in place, after the result is complete. `-` is standard
output. A name that ends in `.gz` or `.zst` selects compression.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import secrets
import shutil
import signal
import stat
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from errno import EBUSY, ENOENT
from pathlib import Path
from typing import IO, Any, Final, Literal, NoReturn

import cramjam

from headstart.spool.layout import sync_folder

STDOUT: Final = "-"
_OWN_DESCRIPTORS: Final = re.compile(r"/proc/(?:self|thread-self|(\d+))(?:/task/\d+)?/fd")
_IN_MEMORY: Final = 1 << 24
"""Bytes of a result for a pipe that are held in memory; a larger one is put into a file."""
_MOST_LINKS: Final = 40

_FRAME_BYTES: Final = 1 << 22
"""Bytes of a zstd frame before compression; a reader holds one frame in memory."""
_PACKED: Final[dict[str, Literal["gzip", "zstd"]]] = {
    ".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd"
}  # fmt: skip
_UNKNOWN: Final = frozenset({".7z", ".br", ".bz2", ".lz4", ".lzma", ".xz", ".zip"})

Target = str | Path


class CannotWrite(OSError):
    """An output cannot be written; the message names it, the reason and the fix."""


class OutputIsInput(ValueError):
    """An output is also an input of the command."""


@contextmanager
def output_file(
    target: Target, inputs: Iterable[Target] = (), *, format: str | None = None
) -> Iterator[IO[bytes]]:
    """Open an output for bytes; it is replaced when the block ends without an exception.

    After an exception, SIGINT or SIGTERM it is unchanged, and no temporary file remains. The bytes
    are compressed by the ending of the output's name, unless they are of a `format` of their own:
    gzip, zstd, or another. Raises `CannotWrite`, also if the ending is of another compression and
    at the end, and `OutputIsInput` where `inputs` has the same file.
    """
    packing = check_ending(target, format)
    with _opened(target, inputs) as written:
        if format is not None or packing is None:
            yield written
        elif packing == "gzip":
            with gzip.GzipFile("", "wb", fileobj=written, mtime=0) as packed:
                yield packed  # type: ignore[misc]
        else:
            with io.BufferedWriter(_Frames(written), _FRAME_BYTES) as packed:
                yield packed


def check_ending(target: Target, format: str | None = None) -> Literal["gzip", "zstd"] | None:
    """Return the compression that the suffix of an output selects.

    Raises `CannotWrite` if the output cannot have it. `format`: as for `output_file`.
    """
    if descriptor_of(target) is not None:
        return None
    ending = Path(target).suffix.lower()
    if ending in _UNKNOWN:
        raise CannotWrite(f"cannot write {target}: {ending} is not supported; use .gz or .zst")
    packing = _PACKED.get(ending)
    if format in ("gzip", "zstd") and packing not in (None, format):
        fix = ".zst" if format == "zstd" else ".gz"
        raise CannotWrite(
            f"cannot write {target}: the file is {format}; its name must end in {fix}"
        )
    return packing


class _Frames(io.RawIOBase):
    """Writes each part as a zstd frame of its own."""

    def __init__(self, written: IO[bytes]) -> None:
        self._written = written

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data[:_FRAME_BYTES])
        self._written.write(bytes(cramjam.zstd.compress(part)))
        return len(part)


@contextmanager
def _opened(target: Target, inputs: Iterable[Target]) -> Iterator[IO[bytes]]:
    refuse_input(target, inputs)
    descriptor = descriptor_of(target)
    if descriptor is not None:
        with _described(target):
            special = os.dup(descriptor)
    else:
        real = _checked(Path(target))
        try:
            mode = os.stat(real).st_mode
        except FileNotFoundError:
            mode = stat.S_IFREG
        if stat.S_ISREG(mode):
            with _replaced(target, real) as written:
                yield written
            return
        with _described(target):
            special = os.open(real, os.O_WRONLY | os.O_NOCTTY)
    with _in_place(target, special) as written:
        yield written


def write_file(
    target: Target,
    content: bytes | str,
    inputs: Iterable[Target] = (),
    *,
    format: str | None = None,
) -> None:
    """Write a whole output, text as UTF-8. `format` and exceptions: as for `output_file`."""
    with output_file(target, inputs, format=format) as written:
        written.write(content.encode() if isinstance(content, str) else content)


def is_stdout(target: Target) -> bool:
    """Return whether an output is standard output, under any name."""
    return descriptor_of(target) == 1


def refuse_input(target: Target, inputs: Iterable[Target]) -> None:
    """Raise `OutputIsInput` if an output is the same regular file as one of the inputs."""
    own = _identity(target)
    for each in inputs:
        if own is not None and own == _identity(each, reads=True):
            raise OutputIsInput(
                f"{target} is also the input ({each}), which would be lost: name another output"
            )


def same_output(one: Target, other: Target) -> bool:
    """Return whether two outputs are the same regular file, which need not exist yet."""
    place = _place(one)
    return place is not None and place == _place(other)


def _place(target: Target) -> tuple[int, int, str] | None:
    """Return the identity of a regular file, which need not exist yet; None for others."""
    if (found := _identity(target)) is not None:
        return (*found, "")
    real = os.path.realpath(target)
    if descriptor_of(target) is not None or os.path.lexists(real):
        return None
    folder, name = os.path.split(real)
    try:
        above = os.stat(folder)
    except OSError:
        return None
    return above.st_dev, above.st_ino, name


def check_output(target: Target, inputs: Iterable[Target] = ()) -> None:
    """Raise what `output_file` would raise on entry, without writing."""
    check_ending(target)
    refuse_input(target, inputs)
    if descriptor_of(target) is None:
        real = _checked(Path(target))
        if not os.path.lexists(real) or stat.S_ISREG(os.stat(real).st_mode):
            check_folder(real.parent)


def check_folder(folder: Path) -> None:
    """Raise `CannotWrite` if a folder or files in it cannot be created."""
    place = folder
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise CannotWrite(f"cannot write {folder}: {place} is not a folder")
    if not os.access(place, os.W_OK | os.X_OK):
        raise CannotWrite(f"cannot write {folder}: {place} is read-only for you")


def _identity(target: Target, *, reads: bool = False) -> tuple[int, int] | None:
    """Return device and inode of a regular file; None for others."""
    number = (0 if reads else 1) if str(target) == STDOUT else descriptor_of(target)
    try:
        found = os.stat(target) if number is None else os.fstat(number)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def descriptor_of(target: Target) -> int | None:
    """Return the descriptor of this process that a name means (`-`, /dev/stdout, /dev/fd/N)."""
    name = str(target)
    if name == STDOUT:
        return 1
    for _ in range(_MOST_LINKS):
        folder, last = os.path.split(os.path.abspath(name))
        held = _OWN_DESCRIPTORS.fullmatch(os.path.realpath(folder))
        if held and held[1] in (None, str(os.getpid())):
            return int(last) if last.isdecimal() else None
        try:
            name = os.path.join(folder, os.readlink(name))
        except OSError:
            return None
    return None


def _checked(target: Path) -> Path:
    """Return the path with all links resolved. Raises `CannotWrite` if it cannot be a file."""
    real = Path(os.path.realpath(target))
    with _described(target):
        try:
            found = os.stat(real)
        except FileNotFoundError:
            if not real.parent.is_dir():
                raise CannotWrite(
                    f"cannot write {target}: {real.parent} does not exist; create that folder first"
                ) from None
        else:
            if stat.S_ISDIR(found.st_mode):
                raise CannotWrite(f"cannot write {target}: it is a folder; name a file in it")
            if stat.S_ISSOCK(found.st_mode):
                raise CannotWrite(f"cannot write {target}: it is a socket")
            if not os.access(real, os.W_OK):
                raise CannotWrite(f"cannot write {target}: it is read-only for you")
    return real


@contextmanager
def _replaced(target: Target, real: Path) -> Iterator[IO[bytes]]:
    unfinished = real.parent / f".headstart-{secrets.token_hex(6)}.unfinished"
    with _terminated_in_order():
        try:
            # The umask applies, as for any new file.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with _described(target):
                opened = os.open(unfinished, flags, 0o666 if not real.exists() else 0o600)
            with io.BufferedWriter(_Named(opened, target)) as written:
                yield written
                written.flush()
                with _described(target):
                    _keep_mode(opened, real)
                    os.fsync(opened)
            with _described(target):
                _rename(unfinished, real)
        finally:
            with suppress(OSError):
                unfinished.unlink()


def _keep_mode(opened: int, real: Path) -> None:
    """Copy owner and mode of the file that will be replaced."""
    try:
        old = os.stat(real)
    except FileNotFoundError:
        return
    with suppress(OSError):  # only root may change the owner
        os.fchown(opened, old.st_uid, old.st_gid)
    with suppress(OSError):
        os.fchmod(opened, stat.S_IMODE(old.st_mode))


def _rename(unfinished: Path, real: Path) -> None:
    try:
        os.replace(unfinished, real)
    except OSError as error:
        if error.errno != EBUSY:
            raise
        # A single file that is a mount point, as in a container, cannot be replaced.
        with unfinished.open("rb") as whole, real.open("r+b") as written:
            shutil.copyfileobj(whole, written)
            written.truncate()
            os.fsync(written.fileno())
        return
    with suppress(OSError):  # not supported by every file system
        sync_folder(real.parent)


@contextmanager
def _in_place(target: Target, special: int) -> Iterator[IO[bytes]]:
    try:
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as whole:
            yield whole
            whole.seek(0)
            with io.BufferedWriter(_Named(os.dup(special), target)) as written:
                shutil.copyfileobj(whole, written)
    finally:
        os.close(special)


class _Named(io.FileIO):
    """A descriptor whose write errors name the output."""

    def __init__(self, descriptor: int, target: Target) -> None:
        super().__init__(descriptor, "wb")
        self._target = target

    def write(self, data: Any) -> int:
        with _described(self._target):
            return super().write(data)


@contextmanager
def _described(target: Target) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        _explain(target, error)


def _explain(target: Target, error: OSError) -> NoReturn:
    """Raise `CannotWrite` with one line that names the output and the reason."""
    if isinstance(error, CannotWrite):
        raise error
    name = "standard output" if str(target) == STDOUT else target
    why = error.strerror or type(error).__name__
    if isinstance(error, BrokenPipeError):
        why = "its reader has exited (broken pipe)"
    elif error.errno == ENOENT:
        why = "its folder no longer exists"
    raise CannotWrite(f"cannot write {name}: {why}") from error


@contextmanager
def _terminated_in_order() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise, so that the temporary file is removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    ours = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) == signal.SIG_DFL]
    for each in ours:
        signal.signal(each, end)
    try:
        yield
    finally:
        for each in ours:
            signal.signal(each, signal.SIG_DFL)
