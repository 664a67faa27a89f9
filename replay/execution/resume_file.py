"""The finished tasks of a backtest, in a file to resume it from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from replay.files.output import write_file
from replay.results.unit_results import UnitSums


class AnotherBacktest(ValueError):
    """The file to go on from is of another backtest."""


class _Stored(msgspec.Struct):
    fingerprint: str
    shares: int
    begun: int
    found: dict[str, UnitSums]


@dataclass
class ResumeFile:
    """The finished tasks, in a file if there is one. Raises `AnotherBacktest`.

    `shares`: how many share the policies of a unit; `begun`: Unix ms. A resumed run keeps
    both: else its tasks and its relative times would differ.
    """

    file: Path | None
    fingerprint: str
    shares: int
    begun: int
    found: dict[str, UnitSums] = field(default_factory=dict)

    def __post_init__(self) -> None:
        stored = None if self.file is None else _stored(self.file)
        if stored is None:
            return
        if stored.fingerprint != self.fingerprint:
            raise AnotherBacktest(
                f"{self.file} is of another backtest (source, range, policies or settings differ, "
                "or a file has changed); delete it, or name another file"
            )
        self.shares, self.begun, self.found = stored.shares, stored.begun, stored.found

    def add(self, name: str, sums: UnitSums) -> None:
        """Store the sums of a task."""
        self.found[name] = sums
        if self.file is not None:
            stored = _Stored(self.fingerprint, self.shares, self.begun, self.found)
            write_file(self.file, msgspec.msgpack.encode(stored), format="msgpack")


def begun(file: Path) -> int | None:
    """Return when the run that a file keeps began, Unix ms; None where there is no such file.

    Raises `AnotherBacktest` where it keeps none.
    """
    stored = _stored(file)
    return None if stored is None else stored.begun


def _stored(file: Path) -> _Stored | None:
    try:
        return msgspec.msgpack.decode(file.read_bytes(), type=_Stored)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise AnotherBacktest(f"{file}: not written by --resume; name another file") from error
