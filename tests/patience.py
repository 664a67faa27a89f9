"""How long tests wait for what is to come: on a busy machine slow is no failure."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

PATIENCE_S: Final = 480.0
STALLED: Final = 70
"""The exit code of a worker that got no CPU for a session; its supervisor restarts it."""


def until(
    condition: Callable[[], Any],
    seconds: float = PATIENCE_S,
    pause_s: float = 0.05,
    *,
    meanwhile: Callable[[], Any] | None = None,
    seen: Callable[[], object] | None = None,
) -> None:
    """Wait until a condition holds; fail where it does not within `seconds`.

    `meanwhile`: called before each pause, for instance `system.check`, which restarts workers.
    `seen`: returns what a failure shows.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {seconds:.0f} s", seen() if seen else None)
        if meanwhile is not None:
            meanwhile()
        time.sleep(pause_s)


async def until_in_loop(condition: Callable[[], Any]) -> None:
    """Let the event loop turn until a condition holds; the caller bounds the time."""
    while not condition():  # noqa: ASYNC110 - a change of it sets no event
        await asyncio.sleep(0)


@contextmanager
def no_end_in_sight(seconds: float = 60.0) -> Iterator[None]:
    """Fail where a computation of milliseconds takes this long: quadratic in what it is given."""

    def on_alarm(*_: object) -> None:
        raise AssertionError(f"no end in sight after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
