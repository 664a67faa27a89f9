"""A deterministic event loop: a clock of its own, and callbacks that belong to simulated processes.

Real coroutines of the agents run on it unchanged. Nothing runs on its own: the world runs what
is ready, then decides whether a message arrives or the clock moves to the next timer.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.process import Process

OWNER: ContextVar[Process | None] = ContextVar("OWNER", default=None)
"""The process in whose name the running callback acts."""


class Ended(BaseException):
    """The process that this coroutine belongs to is gone; nothing may catch this for good."""


class _Handle(asyncio.Handle):
    """A callback to come, made and run without what only debugging needs."""

    __slots__ = ()

    def __init__(self, callback: Any, args: Any, loop: Loop, context: Context | None) -> None:
        self._context = copy_context() if context is None else context
        self._loop, self._callback, self._args = loop, callback, args
        self._cancelled, self._repr, self._source_traceback = False, None, None


class Loop(asyncio.AbstractEventLoop):
    """The part of an event loop that coroutines without real I/O need."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self.now = 0.0
        self._on_error = on_error
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._counter = 0

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._counter += 1
        heapq.heappush(self._timers, (when, self._counter, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer is skipped when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Any = None
    ) -> asyncio.Task[Any]:
        owner = OWNER.get() if context is None else context[OWNER]
        if context is None:
            task = asyncio.Task(coro, loop=self, name=name or "task")
        else:
            task = asyncio.Task(coro, loop=self, name=name or "task", context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        if owner is not None:
            owner.tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, Ended):
            self._on_error(error)

    def run_ready(self) -> None:
        """Run callbacks until none is ready; those of dead processes are lost, as they must be."""
        ready = self._ready
        while ready:
            handle = ready.popleft()
            if handle._cancelled:  # type: ignore[attr-defined]
                continue
            owner = handle._context.get(OWNER)  # type: ignore[attr-defined]
            if owner is None or owner.running:
                try:
                    handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
                except KeyboardInterrupt:
                    raise
                except (
                    BaseException
                ) as error:  # `Ended` is not an Exception, so that no code catches it
                    self.call_exception_handler({"exception": error})
            elif owner.paused:
                owner.parked.append(handle)

    def unpark(self, handles: list[asyncio.Handle]) -> None:
        """Make ready what a process would have run while it was stopped."""
        self._ready.extend(handles)

    def next_timer(self) -> float | None:
        """Return when the next timer is due that a task still waits for."""
        timers = self._timers
        while timers:
            timer = timers[0][2]
            owner = timer._context.get(OWNER)  # type: ignore[attr-defined]
            if not timer._cancelled and (owner is None or not owner.dead):  # type: ignore[attr-defined]
                return timers[0][0]
            heapq.heappop(timers)
        return None

    def fire(self) -> None:
        """Move the clock to the next timer, and make it ready."""
        when, _number, timer = heapq.heappop(self._timers)
        self.now = max(self.now, when)
        self._ready.append(timer)
