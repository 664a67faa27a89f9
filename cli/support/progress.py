"""A progress line on stderr: the share done, the rate and the time left."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cli.support.output import one_line, say

if TYPE_CHECKING:
    from replay.execution.runner import Reached

_WIDTH = 24
_EVERY_S = 10.0
"""Interval between lines if stderr is not a terminal."""


class Bar:
    """Shows the progress of a backtest; on Ctrl-C it says how to resume."""

    def __init__(self, resume: Path | None) -> None:
        self._resume = resume
        self._said = time.monotonic()
        self._first: Reached | None = None

    def __enter__(self) -> Self:
        return self

    def __call__(self, reached: Reached) -> None:
        """Show the progress."""
        self._first = self._first or reached
        line = text(reached, self._first)
        if sys.stderr.isatty():
            print(f"\r\x1b[K{one_line(line)}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self._said > _EVERY_S:
            self._said = time.monotonic()
            say(line)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        if kind is KeyboardInterrupt:
            if self._resume is None:
                say("nothing was saved; --resume FILE lets an interrupted run continue")
            else:
                say(f"run the same command again to continue from {self._resume}")


def text(reached: Reached, first: Reached) -> str:
    """Return the line: a bar, the share, policy-events per second, seconds left."""
    filled = int(_WIDTH * reached.share)
    line = f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {reached.share:4.0%}"
    if reached.seconds > 0.0:
        line += f"  {reached.predictions / reached.seconds:,.0f} policy-events/s"
    gone = reached.share - first.share
    if gone > 0.0:
        left = (reached.seconds - first.seconds) / gone * (1.0 - reached.share)
        line += f"  {left:,.0f} s left"
    return line
