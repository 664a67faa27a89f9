"""The settings of a spool."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final, Literal, get_args

from headstart.arguments.checks import InvalidArgument, choice, named_settings, number

OnFull = Literal["raise", "block", "drop_oldest"]
ON_FULL: Final[tuple[str, ...]] = get_args(OnFull)


class BufferFull(RuntimeError):
    """The buffer or spool is full; the event was not accepted, and none before it was dropped."""


@named_settings
@dataclass(frozen=True)
class SpoolSettings:
    """How an emitter stores events on disk.

    Attributes:
        directory: Shared by any number of processes.
        limit_bytes: Limit of the whole directory, checked whenever a segment is full.
        segment_bytes: Size at which a segment is full.
        segment_s: Seconds after which a segment is full.
        on_full: `raise` BufferFull, `block` the caller, or `drop_oldest` segments and count them.
        fsync: `never` (events survive kill -9), `every` event, or at an `interval` of `fsync_s`
            seconds (they survive power loss).
        fsync_s: See `fsync`.

    Raises:
        InvalidArgument: Names the setting that cannot be used.
    """

    directory: Path
    limit_bytes: int = 1 << 30
    segment_bytes: int = 8 << 20
    segment_s: float = 3600.0
    on_full: OnFull = "raise"
    fsync: Literal["never", "interval", "every"] = "never"
    fsync_s: float = 1.0

    def __post_init__(self) -> None:
        """Raise `InvalidArgument` naming a setting that cannot be used."""
        if not self.directory or not isinstance(self.directory, str | PathLike):
            raise InvalidArgument(f"directory must be a path, not {self.directory!r:.100}")
        choice("on_full", self.on_full, ON_FULL)
        choice("fsync", self.fsync, ("never", "interval", "every"))
        for name in ("limit_bytes", "segment_bytes"):
            number(name, getattr(self, name), 1, whole=True)
        number("segment_s", self.segment_s, 0.0, float("inf"))
        number("fsync_s", self.fsync_s, 0.0)
