"""Records of an `otlp_spans` topic: what the Kafka exporter of an OpenTelemetry Collector writes.

A record holds spans of any traces, as OTLP JSON (`otlp_json`) or protobuf (`otlp_proto`); the first
byte shows which. Protobuf needs the extra `otlp`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

from topics.spans.attributes import attribute_pairs

_HEX: Final = re.compile(r"[0-9a-fA-F]+")
_ERROR: Final = frozenset((2, "2", "STATUS_CODE_ERROR"))
_NS_PER_MS: Final = 1_000_000
_END_NS: Final = 1 << 64
"""Times are 64-bit integers."""
UNEXPECTED: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError,
                     RecursionError)  # fmt: skip
"""Errors by which an odd span may end its conversion: it is refused, and the others are not."""


class SpansUnreadable(ValueError):
    """A record holds no OTLP spans; the message describes what it holds instead."""


class ProtobufMissing(RuntimeError):
    """A record is protobuf, and the packages that read it are not installed."""

    def __init__(self) -> None:
        super().__init__(
            "the topic of spans holds protobuf (encoding otlp_proto): install "
            "headstart-service[otlp], or set the exporter's encoding to otlp_json"
        )


class ReadSpan(NamedTuple):
    """One span. `begin`, `end`: Unix ms, None where there is none; ids in hex, "" for none.

    `resource`: attributes of its resource; `attributes`: its own; `events`: as in OTLP JSON, with
    their attributes by name; `status`: the message of its status.
    """

    trace: str
    id: str
    parent: str
    name: str
    begin: int | None
    end: int | None
    failed: bool
    status: str
    is_server: bool
    resource: Mapping[str, Any]
    attributes: Mapping[str, Any]
    events: list[dict[str, Any]]


def read_spans(value: bytes | None) -> list[ReadSpan]:
    """Return the spans of a record. Raises `SpansUnreadable` and `ProtobufMissing`."""
    if not value:
        raise SpansUnreadable("the record is empty; expected OTLP spans")
    document = _from_json(value) if value[:1] == b"{" else _from_protobuf(value)
    try:
        return [*_spans_of(document)]
    except UNEXPECTED as error:
        raise SpansUnreadable(f"its spans cannot be read ({described(error)})") from error


def described(error: Exception) -> str:
    """Return the type and the message of an error."""
    return f"{type(error).__name__}: {error}"


def _from_json(value: bytes) -> Mapping[str, Any]:
    try:
        document = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise SpansUnreadable(f"not JSON ({error})") from None
    if not isinstance(document, dict) or not isinstance(document.get("resourceSpans"), list):
        keys = ", ".join(sorted(document)[:5])
        raise SpansUnreadable(f"JSON without a list resourceSpans; it has: {keys or 'no key'}")
    found: Mapping[str, Any] = document
    return found


def _from_protobuf(value: bytes) -> Mapping[str, Any]:
    try:
        from google.protobuf.json_format import MessageToDict
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
    except ImportError:
        raise ProtobufMissing from None
    try:
        traces = TracesData.FromString(value)
        if traces.ByteSize() and not traces.resource_spans:
            raise SpansUnreadable("protobuf without resource_spans; is it a topic of spans?")
        document: Mapping[str, Any] = MessageToDict(traces, use_integers_for_enums=True)
    except DecodeError:
        begin = value[:20]
        raise SpansUnreadable(f"neither OTLP JSON nor protobuf; it begins with {begin!r}") from None
    except (ValueError, RecursionError) as error:  # text that is not UTF-8, nesting without end
        if isinstance(error, SpansUnreadable):
            raise
        raise SpansUnreadable(f"protobuf that cannot be read ({error})") from None
    return document


def _spans_of(document: Mapping[str, Any]) -> Iterator[ReadSpan]:
    for group in _objects(document.get("resourceSpans")):
        own = group.get("resource")
        resource = _pairs(own.get("attributes")) if isinstance(own, Mapping) else {}
        for scope in _objects(group.get("scopeSpans")):
            for span in _objects(scope.get("spans")):
                yield _span(span, resource)


def _span(span: Mapping[str, Any], resource: Mapping[str, Any]) -> ReadSpan:
    own = span.get("status")
    status = own if isinstance(own, Mapping) else {}
    attributes = _pairs(span.get("attributes"))
    message = status.get("message")
    return ReadSpan(
        id_in_hex(span.get("traceId"), 16), id_in_hex(span.get("spanId"), 8),
        id_in_hex(span.get("parentSpanId"), 8), _text(span.get("name")),
        _ms(span.get("startTimeUnixNano")), _ms(span.get("endTimeUnixNano")),
        _is_error(status.get("code")) or bool(attributes.get("error.type")),
        message.strip() if isinstance(message, str) else "",
        span.get("kind") in (2, "SPAN_KIND_SERVER"), resource, attributes,
        [
            {"name": _text(each.get("name")), "attributes": _pairs(each.get("attributes"))}
            for each in _objects(span.get("events"))
        ],
    )  # fmt: skip


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _is_error(code: Any) -> bool:
    return isinstance(code, str | int) and code in _ERROR


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    for each in value if isinstance(value, list) else ():
        if isinstance(each, Mapping):
            yield each


def _pairs(value: Any) -> dict[str, Any]:
    return attribute_pairs(value) if isinstance(value, list) else {}


def _ms(nanoseconds: Any) -> int | None:
    """Return Unix ms; OTLP JSON has 64-bit integers as texts, and 0 means unknown."""
    try:
        found = int(nanoseconds)
    except (TypeError, ValueError, OverflowError):
        return None
    return found // _NS_PER_MS or None if 0 < found < _END_NS else None


def id_in_hex(value: Any, size: int) -> str:
    """Return an id in lower-case hex, from hex or base64; `size`: its bytes. "" for none."""
    if not isinstance(value, str) or not value:
        return ""
    if len(value) == 2 * size and _HEX.fullmatch(value):
        return value.lower()
    try:
        return base64.b64decode(value, validate=True).hex()
    except ValueError:  # binascii.Error, and that of a text that is not ASCII
        return value
