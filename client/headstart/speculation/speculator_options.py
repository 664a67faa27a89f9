"""The options that both speculators have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, TypedDict

from headstart.emitting.call_spans import CallSpans

WASTED_PER_MINUTE: Final = 60_000.0
LARGEST_MS: Final = 1e15
"""Largest cost accepted, in ms: the service learns from no larger one."""


class Options(TypedDict, total=False):
    """Options of a speculator. A tool is run on a guess only if it is declared safe."""

    allowed: Collection[str]
    """Tools that are safe to run early and to discard."""
    dangerous: Collection[str]
    """Tools that are never run on a guess, whatever else is declared."""
    annotations: Mapping[str, object]
    """By tool name, MCP annotations, a framework's metadata or its tool: mappings or objects.
    A read-only tool is safe; a destructive one is never run on a guess."""
    wasted_per_minute: float
    """Cost of wrong guesses in ms, over all contexts, after which none is started; default 60,000.
    0 starts none; infinity is no limit."""
    exploration: float
    """Share of declined guesses of safe tools that are started anyway; default 0."""
    seed: int
    """Seed of the random draws for exploration."""
    spans: CallSpans | bool
    """Whether guessed calls have OpenTelemetry spans, where the process has a tracer provider;
    default true. A `CallSpans` sets in addition what is recorded."""
    log_arguments: bool | None
    """Whether the arguments of calls are logged, up to 8,192 characters each; default
    HEADSTART_LOG_ARGUMENTS, else true."""
    open_s: float
    """Seconds after which a turn that was left open is closed; default 600."""
    clock: Callable[[], float]
    """Monotonic clock in seconds."""
