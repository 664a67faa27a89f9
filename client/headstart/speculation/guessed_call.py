"""The guessed calls of a turn: checks it, makes it, and recognises results that mean failure."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from headstart.arguments.checks import InvalidArgument

T = TypeVar("T")

_FIX: Final = (
    "pass an async function, or a blocking one as lambda *call: asyncio.to_thread(function, *call)"
)


class GuessFailed(RuntimeError):
    """A guessed call has no usable result: make the call as if nothing had been guessed."""


def check_run(run: object) -> None:
    """Raise `InvalidArgument` for a value that cannot make guessed calls."""
    if not callable(run):
        if inspect.iscoroutine(run):
            run.close()  # or Python warns that it was never awaited
        raise InvalidArgument(
            f"run must be a function of a tool and its arguments, not {run!r:.64}: pass run, not "
            "run()"
        )
    if inspect.isgeneratorfunction(run) or inspect.isasyncgenfunction(run):
        raise InvalidArgument(f"run: a generator function cannot be awaited; {_FIX}")


class NotAwaitable(TypeError):
    """The call returned a value that cannot be awaited: it has run and blocked the loop."""


async def make_call(call: Callable[[], Awaitable[T]], tool: str) -> T:
    """Make the call and return its result. Raises `NotAwaitable`, and what the call raises."""
    made: object = call()
    if inspect.isawaitable(made):
        return await made  # type: ignore[no-any-return]
    raise NotAwaitable(f"call of {tool} returned {type(made).__name__}, not an awaitable; {_FIX}")


def value_of(future: asyncio.Future[Any] | Future[Any]) -> object:
    """Return what a call returned or raised; None if it has not ended, or was cancelled."""
    if not future.done() or future.cancelled():
        return None
    error = future.exception()
    return future.result() if error is None else error


def marked_as_error(result: object) -> bool:
    """Return whether a result is marked as a failure of the call.

    That is an exception; a true `isError` (MCP) or `is_error`; with a `tool_call_id`, a `status` of
    "error" (LangChain) or an `outcome` of "failed" or "denied" (Pydantic AI). Each as an attribute,
    or a key of a mapping.
    """
    if isinstance(result, BaseException):
        return True
    if _field(result, "isError") is True or _field(result, "is_error") is True:
        return True
    if _field(result, "tool_call_id") is None:
        return False
    status, outcome = _field(result, "status"), _field(result, "outcome")
    return _is(status, "error") or _is(outcome, "failed", "denied")


def _field(result: object, name: str) -> object:
    if isinstance(result, Mapping):
        return result.get(name)
    try:
        return getattr(result, name, None)
    except Exception:  # a property that fails marks nothing
        return None


def _is(value: object, *words: str) -> bool:
    return isinstance(value, str) and value in words
