"""What can go wrong with the local stack. Messages are for the user: what, where, what to do."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class StackError(RuntimeError):
    """The stack cannot do what was asked; the first line of the message says why and the remedy."""


class AlreadyRunning(StackError):
    """Another process holds the data directory; the message says which."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the file to an `OSError`: that of a write has none."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def unusable(data: Path, error: OSError) -> StackError:
    """Return the error of a data directory in which a file cannot be read or written."""
    where = str(data) if error.filename is None else str(error.filename)
    remedy = "make it writable for this user"
    if error.errno in _FULL:
        remedy = "free space on its disk"
    return StackError(
        f"cannot use {data} as the data directory ({error.strerror}: {where}): {remedy}, or choose "
        "another one (--data)"
    )
