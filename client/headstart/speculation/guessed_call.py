"""The guessed call of an attempt: what may be given as one, how it begins, whether it failed."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from headstart.arguments.checks import InvalidArgument

T = TypeVar("T")

_FIX: Final = (
    "pass an async function, or a function that blocks as lambda: asyncio.to_thread(function)"
)


class GuessFailed(RuntimeError):
    """The guessed call returned a result that is marked as an error, such as MCP's `isError`."""


def check_call(call: object) -> None:
    """Raise `InvalidArgument` for what surely is no function that returns an awaitable."""
    if not callable(call):
        if inspect.iscoroutine(call):
            call.close()  # or Python warns that it was never awaited
        raise InvalidArgument(
            f"call: a function that makes the guessed call, not {call!r:.64}: pass run, not run()"
        )
    if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
        raise InvalidArgument(f"call: a generator function cannot be awaited; {_FIX}")


class NoAwaitable(TypeError):
    """The call returned something that cannot be awaited: it ran, and blocked, by itself."""


async def awaited(call: Callable[[], Awaitable[T]], tool: str) -> T:
    """Make the call and return its result. Raises `NoAwaitable`, and what the call raises."""
    made: object = call()
    if inspect.isawaitable(made):
        return await made  # type: ignore[no-any-return]
    raise NoAwaitable(f"call: of {tool} returned {type(made).__name__}, no awaitable; {_FIX}")


def marked_as_error(result: object) -> bool:
    """Return whether a result says of itself that the call failed.

    An exception; `isError` (MCP) or `is_error` that is true; in the answer to a tool call
    (`tool_call_id`) a `status` of "error" (LangChain) or an `outcome` of "failed" or "denied"
    (Pydantic AI). An attribute or a key of a mapping.
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
