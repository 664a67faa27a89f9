"""The OpenTelemetry trace that an event is emitted in.

OpenTelemetry is never imported here: a process that has not imported it has no trace.
"""

from __future__ import annotations

import sys


def traceparent() -> str | None:
    """Return the current span in the format of W3C Trace Context; None if there is none.

    https://www.w3.org/TR/trace-context/#traceparent-header
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    try:
        span = trace.get_current_span().get_span_context()
    except AttributeError:  # another thread is importing it
        return None
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
