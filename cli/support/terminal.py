"""What the terminal at hand can show, and how a view is drawn on it and taken off again."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from cli.support.output import one_line, say

if TYPE_CHECKING:
    from console.inspection.snapshot import SystemObserver
    from console.inspection.text_view import ScreenLine
    from console.inspection.trends import Trends

_STYLES = {"good": "bold green", "bad": "bold red", "warn": "yellow", "head": "bold"}


def draws(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a view can be drawn on a stream: a terminal, and no wish for plain text."""
    plain = environment.get("NO_COLOR") or environment.get("TERM", "dumb") in {"dumb", "unknown"}
    return stream.isatty() and not plain


def only_ascii(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the locale has nothing but ASCII.

    Python itself turns a C locale into UTF-8, and so does not know what the terminal shows.
    """
    if "utf" not in (stream.encoding or "").lower():
        return True
    names = [environment.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG")]
    if names[1].upper() in {"C.UTF-8", "C.UTF8", "UTF-8"}:
        names[1] = ""  # what Python sets, where it was C or nothing
    chosen = next((name for name in names if name), "C")
    return "utf" not in chosen.lower()


class LiveView:
    """Shows a course of looks, by a thread of its own, from `with` until its end.

    On a terminal a picture that is drawn anew; elsewhere a line per look. `whole`: whether it has
    the screen for itself and gives it back as it was.
    """

    def __init__(
        self, looking: Callable[[], SystemObserver], every_s: float, *, whole: bool, stream: TextIO
    ) -> None:
        self._looking, self._every_s, self._whole, self._stream = looking, every_s, whole, stream
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="view", daemon=True)
        self._live: Any = None
        self._looks = 0
        self.failed: BaseException | None = None
        """What ended it before its time."""
        self.finished = threading.Event()
        """Set when the view has ended by itself."""
        self.limit: int | None = None
        """After how many looks it ends by itself; None: never."""

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:  # Ctrl-C does not wait until the view is complete
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
            self._thread.join(1.0)  # it may be waiting for a service; it is a daemon

    def say(self, line: str) -> None:
        """Print a line for people without breaking the picture."""
        if self._live is None or self._whole:
            say(line)
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

        # What a client leaves open when its broker goes is no news, and would spoil the picture.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        course = Trends()
        looking: SystemObserver | None = None
        while not self._ended.is_set():
            if self._live is not None:
                self._draw(course)  # also while a service makes us wait
            if looking is None or not (course.look and course.look.answered):
                looking = self._looking()  # a stack that has started says where it is
            course.add(asyncio.run(looking.look()))
            self._looks += 1
            if not self._ended.is_set():
                self._draw(course)
            if self._looks == self.limit:
                return
            self._ended.wait(self._every_s)

    def _draw(self, course: Trends) -> None:
        from console.inspection.text_view import plain_line, screen

        if self._live is None:
            print(one_line(plain_line(course)), file=self._stream, flush=True)
            return
        size = self._live.console.size
        height = size.height if self._whole else min(size.height - 2, 24)
        lines = screen(course, size.width, height, ascii_only=only_ascii(self._stream))
        self._live.update(_text(lines), refresh=True)


def _text(lines: list[ScreenLine]) -> Any:
    from rich.text import Text

    text = Text(no_wrap=True, overflow="crop")
    for place, line in enumerate(lines):
        text.append(("\n" if place else "") + line.text, _STYLES.get(line.style, ""))
    return text
