"""A password or key that is given as a value or in a file, which is read again at every use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from headstart.arguments.checks import InvalidArgument
from headstart.scrubbing.masking import remember_secret

log = logging.getLogger("headstart")

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class UnusableSecurity(InvalidArgument):
    """Options of TLS or login that cannot be used; the message names the option, no secret."""


class LastUsable(Generic[K, V]):
    """What files held when they were last usable, which stays in use while they are replaced."""

    def __init__(self) -> None:
        self._found: dict[K, V] = {}
        self._warned: dict[K, str] = {}

    def read(self, key: K, read: Callable[[], V], first: V | None = None) -> V:
        """Return what `read` returns, or, with one warning, what it last returned for `key`.

        `first`: what it was before the first call. Raises `UnusableSecurity` if `read` does and
        there is neither.
        """
        try:
            found = read()
        except UnusableSecurity as error:
            last = self._found.get(key, first)
            if last is None:
                raise
            if self._warned.get(key) != str(error):  # each connection reads
                log.warning("what it held before stays in use: %s", error)
            self._warned[key] = str(error)
            return last
        self._found[key] = found
        self._warned.pop(key, None)
        return found


@dataclass(frozen=True)
class Secret:
    """A secret; its `repr` and `str` do not contain it.

    `file`: read at every use, so that a replaced one takes effect with the next connection.
    `key`: the file is a client.properties, and this is the key of the secret in it.
    """

    value: str = field(default="", repr=False)
    file: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        """Mask it in log lines and messages."""
        if self.value:
            remember_secret(self.value)

    def __bool__(self) -> bool:
        """Return whether there is one."""
        return bool(self.value or self.file)

    def read(self) -> str:
        """Return the secret; log lines and messages mask what was read from a file from then on.

        While its file cannot be used, what this process read there before is returned, with a
        warning; if it never did, that raises `UnusableSecurity`.
        """
        if not self.file:
            return self.value
        found = _last.read(self, self._from_file)
        remember_secret(found)
        return found

    def _from_file(self) -> str:
        if self.key:
            from headstart.connections.properties import secret_in

            return secret_in(Path(self.file), self.key)
        return read_secret_file(Path(self.file))


_last: LastUsable[Secret, str] = LastUsable()


def read_secret_file(path: Path) -> str:
    """Return the content of a file without its last line break. Raises `UnusableSecurity`."""
    try:
        found = path.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UnusableSecurity(f"the secret's file {path} cannot be read: {reason}") from None
    if not found:
        raise UnusableSecurity(f"the secret's file {path} is empty")
    return found
