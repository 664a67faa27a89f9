"""Errors of the local stack. Messages are for the user: what failed, where, and the remedy."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class StackError(RuntimeError):
    """The stack failed; the first line of the message contains the reason and the remedy."""


class ServiceRefuses(StackError):
    """A service that runs elsewhere refuses TLS, the login or a right."""


class AlreadyRunning(StackError):
    """Another process holds the data directory; the message names it."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the file name to an `OSError`: that of a write has none."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def unusable(data: Path, error: OSError) -> StackError:
    """Return the error for a file in the data directory that cannot be read or written."""
    where = str(data) if error.filename is None else str(error.filename)
    remedy = "make it writable for this user"
    if error.errno in _FULL:
        remedy = "free space on its disk"
    return StackError(
        f"cannot use {data} as the data directory ({error.strerror}: {where}): {remedy}, or choose "
        "another one (--data)"
    )
