"""Draws a live view on a terminal, as far as the terminal supports it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from cli.support.output import echo, one_line

if TYPE_CHECKING:
    from console.inspection.snapshot import SystemObserver
    from console.inspection.text_view import ScreenLine
    from console.inspection.trends import Trends

_STYLES = {"good": "bold green", "bad": "bold red", "warn": "yellow", "head": "bold"}


def draws(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a view can be drawn: the stream is a terminal, and NO_COLOR is not set."""
    plain = environment.get("NO_COLOR") or environment.get("TERM", "dumb") in {"dumb", "unknown"}
    return stream.isatty() and not plain


def only_ascii(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the locale supports only ASCII.

    Python coerces a C locale to UTF-8, so the stream's encoding does not show it.
    """
    if "utf" not in (stream.encoding or "").lower():
        return True
    names = [environment.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG")]
    if names[1].upper() in {"C.UTF-8", "C.UTF8", "UTF-8"}:
        names[1] = ""  # set by Python, where it was C or empty
    chosen = next((name for name in names if name), "C")
    return "utf" not in chosen.lower()


class LiveView:
    """Shows snapshots of a system, from a thread, for as long as its `with` block runs.

    Redraws a screen on a terminal; elsewhere prints a line per snapshot. `whole`: use the whole
    screen and restore it at the end.
    """

    def __init__(
        self, connect: Callable[[], SystemObserver], every_s: float, *, whole: bool, stream: TextIO
    ) -> None:
        self._connect, self._every_s, self._whole, self._stream = connect, every_s, whole, stream
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="view", daemon=True)
        self._live: Any = None
        self._shown = 0
        self.failed: BaseException | None = None
        """The error that ended it."""
        self.finished = threading.Event()
        """Set when the view has reached `limit` or failed."""
        self.limit: int | None = None
        """Snapshots after which it ends; None: no limit."""

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:  # such as Ctrl-C before the view is drawn
            self._end()
            raise
        return self

    def _begin(self) -> None:
        if draws(self._stream):
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream, highlight=False)
            self._live = Live(
                console=console, screen=self._whole, auto_refresh=False, transient=True
            )
            self._live.start()
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._ended.set()
        if self._live is not None:
            self._live.stop()
        if self._thread.ident is not None:
            self._thread.join(1.0)  # a daemon thread, which may be waiting for a service

    def echo(self, line: str) -> None:
        """Print a line on stderr without breaking the view."""
        if self._live is None or self._whole:
            echo(line)
        else:
            self._live.console.print(one_line(line), markup=False, highlight=False)

    def _run(self) -> None:
        try:
            self._show_all()
        except BaseException as error:
            self.failed = error
        finally:
            self.finished.set()

    def _show_all(self) -> None:
        import asyncio
        import logging

        from console.inspection.trends import Trends

        # asyncio's warnings about a lost broker's open connections would break the view.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        trends = Trends()
        observer: SystemObserver | None = None
        while not self._ended.is_set():
            if self._live is not None:
                self._draw(trends)  # also while waiting for a service
            if observer is None or not (trends.snapshot and trends.snapshot.answered):
                observer = self._connect()  # read the addresses of a stack that has started
            trends.add(asyncio.run(observer.take()))
            self._shown += 1
            if not self._ended.is_set():
                self._draw(trends)
            if self._shown == self.limit:
                return
            self._ended.wait(self._every_s)

    def _draw(self, trends: Trends) -> None:
        from console.inspection.text_view import plain_line, screen

        if self._live is None:
            print(one_line(plain_line(trends)), file=self._stream, flush=True)
            return
        size = self._live.console.size
        height = size.height if self._whole else min(size.height - 2, 24)
        lines = screen(trends, size.width, height, ascii_only=only_ascii(self._stream))
        self._live.update(_text(lines), refresh=True)


def _text(lines: list[ScreenLine]) -> Any:
    from rich.text import Text

    text = Text(no_wrap=True, overflow="crop")
    for place, line in enumerate(lines):
        text.append(("\n" if place else "") + line.text, _STYLES.get(line.style, ""))
    return text
