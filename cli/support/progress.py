"""A progress line on stderr: the share done, the rate and the time left."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from cli.support.output import echo, one_line

_WIDTH = 24
_EVERY_S = 10.0
"""Interval between lines if stderr is not a terminal."""


class ReachedShare(Protocol):
    """How far work is: the share done, what was worked through, and the seconds since it began."""

    @property
    def share(self) -> float: ...  # noqa: D102

    @property
    def predictions(self) -> int: ...  # noqa: D102

    @property
    def seconds(self) -> float: ...  # noqa: D102


class Bar:
    """Shows the progress of a backtest; on Ctrl-C it prints how to resume, where that is possible.

    `unit`: what `predictions` counts.
    """

    def __init__(
        self, resume: Path | None, *, unit: str = "policy-events", resumable: bool = True
    ) -> None:
        self._resume, self._unit, self._resumable = resume, unit, resumable
        self._printed_at = time.monotonic()
        self._first: ReachedShare | None = None

    def __enter__(self) -> Self:
        return self

    def __call__(self, reached: ReachedShare) -> None:
        """Show the progress."""
        self._first = self._first or reached
        line = text(reached, self._first, self._unit)
        if sys.stderr.isatty():
            print(f"\r\x1b[K{one_line(line)}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self._printed_at > _EVERY_S:
            self._printed_at = time.monotonic()
            echo(line)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        if kind is KeyboardInterrupt and self._resumable:
            if self._resume is None:
                echo("nothing was saved; --resume FILE lets an interrupted run continue")
            else:
                echo(f"run the same command again to continue from {self._resume}")


def text(reached: ReachedShare, first: ReachedShare, unit: str = "policy-events") -> str:
    """Return the line: a bar, the share, units per second, seconds left."""
    filled = int(_WIDTH * reached.share)
    line = f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {reached.share:4.0%}"
    if reached.seconds > 0.0:
        line += f"  {reached.predictions / reached.seconds:,.0f} {unit}/s"
    gone = reached.share - first.share
    if gone > 0.0:
        left = (reached.seconds - first.seconds) / gone * (1.0 - reached.share)
        line += f"  {left:,.0f} s left"
    return line
