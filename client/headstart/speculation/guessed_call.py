"""The guessed call of an attempt: checks it, makes it, and recognises results that mean failure."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from headstart.arguments.checks import InvalidArgument

T = TypeVar("T")

_FIX: Final = "pass an async function, or a blocking one as lambda: asyncio.to_thread(function)"


class GuessFailed(RuntimeError):
    """The guessed call returned a result marked as an error, such as MCP's `isError`."""


def check_call(call: object) -> None:
    """Raise `InvalidArgument` for a value that cannot return an awaitable when called."""
    if not callable(call):
        if inspect.iscoroutine(call):
            call.close()  # or Python warns that it was never awaited
        raise InvalidArgument(f"call must be a function, not {call!r:.64}: pass run, not run()")
    if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
        raise InvalidArgument(f"call: a generator function cannot be awaited; {_FIX}")


class NotAwaitable(TypeError):
    """The call returned a value that cannot be awaited: it has run and blocked the loop."""


async def make_call(call: Callable[[], Awaitable[T]], tool: str) -> T:
    """Make the call and return its result. Raises `NotAwaitable`, and what the call raises."""
    made: object = call()
    if inspect.isawaitable(made):
        return await made  # type: ignore[no-any-return]
    raise NotAwaitable(f"call of {tool} returned {type(made).__name__}, not an awaitable; {_FIX}")


def marked_as_error(result: object) -> bool:
    """Return whether a result says that the call failed.

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
