"""The folder of a backup: it appears when it is whole, and nothing half written remains."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from headstart.spool.layout import sync_folder
from replay.files.output import CannotWrite

_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder beside it that takes its name when the block ends without an exception.

    What a killed process left there for the same name is deleted: its lock is free. Raises
    `CannotWrite`, also if the disk is full.
    """
    require_new(folder)
    prefix = f".{folder.name}.unfinished-"
    partial = folder.parent / f"{prefix}{secrets.token_hex(4)}"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _delete_abandoned(folder.parent, prefix)
        partial.mkdir(mode=0o700)
        lock = os.open(partial, os.O_RDONLY)
    except OSError as error:
        raise CannotWrite(f"cannot write {folder}: {error.strerror}") from error
    try:
        _try_lock(lock)
        yield partial
        os.fsync(lock)
        partial.rename(folder)
        sync_folder(folder.parent)
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise CannotWrite(f"cannot write {folder}: {error.strerror}: make room") from error
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        os.close(lock)


def require_new(folder: Path) -> None:
    """Raise `CannotWrite` unless a folder is empty or does not exist."""
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise CannotWrite(f"cannot write {folder}: it exists; name a new folder")


def _delete_abandoned(parent: Path, prefix: str) -> None:
    for each in parent.iterdir():
        if not each.name.startswith(prefix) or each.is_symlink():
            continue
        number = os.open(each, os.O_RDONLY)
        try:
            if _try_lock(number):
                shutil.rmtree(each, ignore_errors=True)
        finally:
            os.close(number)


def _try_lock(number: int) -> bool:
    """Return whether a folder is locked for this process now: not where a file system cannot."""
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
