"""Reads variables that may name a file, and reads that file again where a connection is made.

Addresses are passed on as plain strings. So this module remembers which of them came from a file:
what `current_address` returns has the password that is in the file by now.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from headstart.connections.secret import LastUsable, read_secret_file
from headstart.scrubbing.masking import remember_passwords, remember_secret

_file_of: dict[str, Path] = {}
"""The files of values that were read by this process."""
_last: LastUsable[Path, str] = LastUsable()


def secret_variable(name: str) -> str | None:
    """Return the variable `name`, else the content of the file that `name`_FILE names.

    None if neither is set. It is masked from then on. Raises `UnusableSecurity`, unless this
    process has read the file before: then it returns what the file held when it was last usable.
    """
    if value := os.environ.get(name):
        _mask(value)
        return value
    path = os.environ.get(f"{name}_FILE")
    return _read(Path(path).absolute()) if path else None


def is_from_file(value: str) -> bool:
    """Return whether `secret_variable` has read this value in a file."""
    return value in _file_of


def current_address(address: str) -> str:
    """Return what the file of an address holds now; the address itself if it is from no file.

    While the file cannot be read, what it held before stays in use, with a warning.
    """
    path = _file_of.get(address)
    return address if path is None else _read(path)


def _read(path: Path) -> str:
    """Return the content of a file, which log lines and messages mask from then on."""
    found = _last.read(path, partial(read_secret_file, path))
    if found not in _file_of:
        _mask(found)
    _file_of[found] = path
    return found


def _mask(value: str) -> None:
    remember_passwords(value)
    if "://" not in value:  # of a URL only the password is secret
        remember_secret(value)
