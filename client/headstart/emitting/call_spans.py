"""OpenTelemetry spans of tool calls, with what was guessed: `headstart.*` beside `gen_ai.*`.

One span for each call of a tool, or attempt at one, by the GenAI conventions
(https://github.com/open-telemetry/semantic-conventions-genai); docs/reference/spans.md lists the
attributes. OpenTelemetry is never imported here: a process that has not imported it makes no span.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import orjson

from headstart.emitting.call_span import CallSpan, GuessOutcome
from headstart.events.exact_json import dump_exactly, load_exactly
from headstart.scrubbing.scrubber import Scrubber, Scrubbing

__all__ = ["CallSpan", "CallSpans", "GuessOutcome"]

_LOG: Final = logging.getLogger(__name__)

CONTENT_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable of the GenAI instrumentations that enables the recording of content."""
_WITH_CONTENT: Final = frozenset(("SPAN_ONLY", "SPAN_AND_EVENT", "TRUE"))
LONGEST_CONTENT: Final = 65_536
"""Characters of arguments or a result in a span."""
OF_CONTEXT: Final[Mapping[str, str]] = {
    "tenant": "headstart.tenant",
    "workflow_type": "headstart.workflow_type",
    "workflow_id": "headstart.workflow_id",
    "task_id": "headstart.task_id",
    "session_id": "gen_ai.conversation.id",
    "agent_id": "gen_ai.agent.name",
    "user_id": "user.id",
}
"""The attribute of each key of a context; other keys are not recorded."""


class CallSpans:
    """Makes the spans of a process. Thread-safe.

    Attributes:
        record_content: Whether arguments and results are recorded, scrubbed and up to
            `LONGEST_CONTENT` characters. None: as `CONTENT_VARIABLE` in the environment sets
            (SPAN_ONLY, SPAN_AND_EVENT or true).
        scrub: What to scrub besides the built-in patterns; where does not matter here, but `off`
            records content as it is.
    """

    def __init__(
        self, *, record_content: bool | None = None, scrub: Scrubbing | None = None
    ) -> None:
        if record_content is None:
            record_content = os.environ.get(CONTENT_VARIABLE, "").upper() in _WITH_CONTENT
        self.record_content = record_content
        scrubbing = scrub or Scrubbing()
        scrubs = record_content and scrubbing.where != "off"
        self._scrub = Scrubber(scrubbing) if scrubs else None
        self._scrubbing = threading.Lock()

    def begin(
        self,
        tool: str,
        *,
        call_id: str | None = None,
        arguments: object = None,
        context: Mapping[str, object] | None = None,
        at_ns: int | None = None,
    ) -> CallSpan:
        """Begin the span of a call, now or at `at_ns`, Unix nanoseconds; `CallSpan.end` ends it.

        Its parent is the current span. `call_id`: the model's id of the call, if it is known;
        `context`: as for a threshold (`OF_CONTEXT`).
        """
        tracer = _tracer()
        if tracer is None:
            return CallSpan(None, self.content)
        attributes = self._attributes(tool, call_id, arguments, context)
        span = tracer.start_span(f"execute_tool {tool}", attributes=attributes, start_time=at_ns)
        return CallSpan(span, self.content)

    @contextmanager
    def call(
        self,
        tool: str,
        *,
        call_id: str | None = None,
        arguments: object = None,
        context: Mapping[str, object] | None = None,
    ) -> Iterator[CallSpan]:
        """Open the span of a call that is made inside the block; spans inside are its children.

        Arguments: as for `begin`. An exception that leaves the block is recorded by its type, and
        raised.
        """
        call = self.begin(tool, call_id=call_id, arguments=arguments, context=context)
        try:
            with call.current():
                yield call
        except BaseException as error:
            call.error(error)
            raise
        finally:
            call.end()

    def record(
        self,
        tool: str,
        *,
        times_ns: tuple[int, int],
        outcome: GuessOutcome | None = None,
        call_id: str | None = None,
        arguments: object = None,
        result: object = None,
        error: BaseException | str | None = None,
        context: Mapping[str, object] | None = None,
    ) -> None:
        """Record a call that is over, such as a guess whose outcome is known only now.

        `times_ns`: its begin and end in Unix nanoseconds. The span's parent is the current span.
        """
        call = self.begin(
            tool, call_id=call_id, arguments=arguments, context=context, at_ns=times_ns[0]
        )
        if result is not None:
            call.result(result)
        if outcome is not None:
            call.guess(outcome)
        if error is not None:
            call.error(error)
        call.end(times_ns[1])

    def content(self, value: object) -> str | None:
        """Return content as it is recorded: a text, or JSON; None if it is not recorded.

        None also for what cannot be JSON, such as an object that contains itself.
        """
        if not self.record_content or value is None:
            return None
        try:
            return self._recorded(_json_of({"content": value}))
        except (TypeError, ValueError, RecursionError) as error:
            _LOG.debug("content of a span is left out: %r", error)
            return None

    def _recorded(self, holder: bytes) -> str:
        if self._scrub is not None:
            with self._scrubbing:
                holder = self._scrub(holder)
        scrubbed = load_exactly(holder)["content"]
        text = scrubbed if isinstance(scrubbed, str) else dump_exactly(scrubbed).decode()
        return text[:LONGEST_CONTENT]

    def _attributes(
        self,
        tool: str,
        call_id: str | None,
        arguments: object,
        context: Mapping[str, object] | None,
    ) -> dict[str, Any]:
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.type": "function",
        }
        if call_id is not None:
            attributes["gen_ai.tool.call.id"] = call_id
        for key, attribute in OF_CONTEXT.items():
            if context is not None and (value := context.get(key)) is not None:
                attributes[attribute] = str(value)
        if (text := self.content(arguments)) is not None:
            attributes["gen_ai.tool.call.arguments"] = text
        return attributes


_latest: tuple[Any, Any] = (None, None)
"""The tracer provider that was asked last, and its tracer: an SDK makes a new one at each call."""


def _tracer() -> Any:
    """Return the tracer of the current provider; None without OpenTelemetry, or a provider."""
    global _latest  # noqa: PLW0603 - both are replaced at once
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    try:
        provider = trace.get_tracer_provider()
        known, tracer = _latest
        if known is not provider:
            if isinstance(provider, trace.ProxyTracerProvider):  # until one is set
                return None
            tracer = trace.get_tracer("headstart", tracer_provider=provider)
            _latest = provider, tracer
    except AttributeError:  # another thread is importing it
        return None
    return tracer


def _json_of(value: object) -> bytes:
    """Return any value as JSON; what JSON has no form for as its text."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # an integer beyond 64 bits, half a surrogate pair, or deep nesting
        return json.dumps(value, default=str).encode()
