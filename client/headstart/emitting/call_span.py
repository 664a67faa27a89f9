"""One OpenTelemetry span of a tool call, with the outcome of its guess; see `call_spans`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

OF_GUESS: Final[Mapping[str, str]] = {
    "confidence": "headstart.speculation.confidence",
    "threshold": "headstart.speculation.threshold",
    "hit": "headstart.speculation.hit",
    "started": "headstart.speculation.started",
    "failed": "headstart.speculation.failed",
    "saved_ms": "headstart.speculation.saved_ms",
    "wasted_ms": "headstart.speculation.wasted_ms",
    "action": "headstart.speculation.action",
    "mode": "headstart.speculation.mode",
    "explored": "headstart.speculation.explored",
    "not_startable": "headstart.speculation.not_startable",
}
"""The attribute of each field of a `GuessOutcome`."""


class GuessOutcome(NamedTuple):
    """The outcome of a guess; None: not known, and not recorded.

    `hit`: whether the model made the guessed call, and its result could be used. `started`: whether
    the guess was started early. `failed`: right, but without a usable result. `saved_ms`: waiting
    time that a hit saved, `wasted_ms`: time that a miss spent; both in milliseconds. `threshold`:
    the confidence that was needed. `action`, `mode`, `explored`, `not_startable`: as in
    `SpeculationDecision`.
    """

    confidence: float | None = None
    threshold: float | None = None
    hit: bool | None = None
    started: bool | None = None
    failed: bool | None = None
    saved_ms: float | None = None
    wasted_ms: float | None = None
    action: str | None = None
    mode: str | None = None
    explored: bool | None = None
    not_startable: str | None = None

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of a span."""
        fields = self._asdict().items()
        return {OF_GUESS[name]: value for name, value in fields if value is not None}


class CallSpan:
    """The span of a call that is under way; without OpenTelemetry it does nothing."""

    def __init__(self, span: Any, content: Callable[[object], str | None]) -> None:
        """`content`: returns content as it is recorded; None if it is not."""
        self._span, self._content = span, content

    @property
    def exists(self) -> bool:
        """Whether there is a span; false without OpenTelemetry, or a tracer provider."""
        return self._span is not None

    @property
    def is_recording(self) -> bool:
        """Whether what is recorded is kept; false if the span is not sampled."""
        return self._span is not None and bool(self._span.is_recording())

    @contextmanager
    def current(self) -> Iterator[CallSpan]:
        """Make the span the current one: those begun in the block are its children."""
        if self._span is None:
            yield self
            return
        use = sys.modules["opentelemetry.trace"].use_span
        with use(self._span, record_exception=False, set_status_on_exception=False):
            yield self

    def requested(self, call_id: str) -> None:
        """Record the model's id of the call."""
        self._set("gen_ai.tool.call.id", call_id)

    def task(self, task_id: str) -> None:
        """Record the call's id in the client's events."""
        self._set("headstart.task_id", task_id)

    def result(self, value: object) -> None:
        """Record the result, if content is recorded."""
        if self._span is not None and (text := self._content(value)) is not None:
            self._set("gen_ai.tool.call.result", text)

    def guess(self, outcome: GuessOutcome) -> None:
        """Record the outcome of the guess."""
        if self._span is not None:
            self._span.set_attributes(outcome.attributes())

    def error(self, error: BaseException | str) -> None:
        """Record that the call failed: the type of an exception, or a name for the failure."""
        if self._span is None:
            return
        self._set("error.type", error if isinstance(error, str) else type(error).__qualname__)
        trace = sys.modules["opentelemetry.trace"]
        self._span.set_status(trace.Status(trace.StatusCode.ERROR))

    def end(self, at_ns: int | None = None) -> None:
        """End the span, at a time in Unix nanoseconds; default now. Nothing is recorded later."""
        if self._span is not None:
            self._span.end(end_time=at_ns)

    def _set(self, attribute: str, value: str) -> None:
        if self._span is not None:
            self._span.set_attribute(attribute, value)
