"""A predictor that cannot fail or delay its agent: it works in a thread, and within a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from headstart.prediction.interface import PredictedCall, RunPredictor, ToolCall
from headstart.speculation.agent_runs import predictor_thread

_LOG = logging.getLogger(__name__)


class GuardedPredictor:
    """One run's predictor. It is called in order; a failure drops it for the run.

    `lost` is called for each guess that it did not make in time, and when it is dropped.
    """

    def __init__(self, predictor: RunPredictor | None, lost: Callable[[], None]) -> None:
        self._predictor, self._lost = predictor, lost

    @property
    def dropped(self) -> bool:
        """Whether there is no predictor, or it has failed."""
        return self._predictor is None

    def run_begun(self) -> None:
        """Tell a predictor that asks for it that another run of its conversation begins."""
        begun = getattr(self._predictor, "run_begun", None)
        if callable(begun):
            self._submit(lambda _predictor: begun())

    def user(self, text: str) -> None:
        """Add a message of the user."""
        self._submit(lambda predictor: predictor.user(text))

    def said(self, text: str) -> None:
        """Add a message of the agent."""
        self._submit(lambda predictor: predictor.said(text))

    def calls(self, calls: Sequence[ToolCall]) -> None:
        """Learn the requested calls."""
        self._submit(lambda predictor: predictor.calls(calls))

    def result(self, tool: str, result: object, *, error: bool) -> None:
        """Add the result of a call."""
        self._submit(lambda predictor: predictor.result(tool, result, error=error))

    async def guess(self, limit: int, within_s: float) -> Sequence[PredictedCall]:
        """Return guesses; none if the predictor fails or takes longer."""
        if self._predictor is None:
            return ()
        loop = asyncio.get_running_loop()
        guesses: asyncio.Future[Sequence[PredictedCall]] = loop.create_future()

        def work(predictor: RunPredictor) -> None:
            if not guesses.done():  # nothing waits for it any more
                _set_result(loop, guesses, predictor.guess(limit))

        self._submit(work, lambda: _set_result(loop, guesses, ()))
        try:
            async with asyncio.timeout(within_s):
                return await guesses
        except TimeoutError:
            self._late(within_s)
            return ()

    def guess_blocking(self, limit: int, within_s: float) -> Sequence[PredictedCall]:
        """Return guesses as `guess` does, for threads."""
        guesses: Future[Sequence[PredictedCall]] = Future()

        def work(predictor: RunPredictor) -> None:
            if guesses.set_running_or_notify_cancel():
                guesses.set_result(predictor.guess(limit))

        def failed() -> None:
            if not guesses.done():
                guesses.set_result(())

        if self._predictor is None:
            return ()
        self._submit(work, failed)
        try:
            return guesses.result(within_s)
        except TimeoutError:
            guesses.cancel()
            self._late(within_s)
            return ()

    def _late(self, within_s: float) -> None:
        self._lost()
        _LOG.warning("no guess within %g s; the agent goes on without", within_s)

    def _submit(
        self, work: Callable[[RunPredictor], None], failed: Callable[[], None] = lambda: None
    ) -> None:
        predictor = self._predictor
        if predictor is None:
            return

        def drop(reason: str) -> None:
            failed()
            if self._predictor is not None:
                self._predictor = None
                self._lost()
                _LOG.warning("this run goes on without its predictor, which failed: %s", reason)

        job = predictor_thread.Job(lambda: work(predictor), lambda: self.dropped, drop)
        try:
            predictor_thread.shared().submit(job)
        except RuntimeError as error:  # no thread can be started: the interpreter ends
            drop(repr(error))


def _set_result(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], value: Sequence[PredictedCall]
) -> None:
    """Set a future's result from another thread."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(lambda: None if future.done() else future.set_result(value))
