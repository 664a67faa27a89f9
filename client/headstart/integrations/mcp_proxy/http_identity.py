"""Which run an HTTP request belongs to, and which of its headers a guessed call copies."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

SESSION_ID: Final = "mcp-session-id"
"""Of protocols before 2026-07-28, which has no sessions."""
HOP_BY_HOP: Final = {
    "connection", "content-length", "host", "keep-alive", "proxy-authenticate",
    "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade", "accept-encoding",
}  # fmt: skip
"""Headers of one connection (RFC 9110, section 7.6.1); responses are asked for uncompressed."""
_PER_CALL: Final = {
    "baggage", "last-event-id", "mcp-name", "traceparent", "tracestate", "x-request-id",
}  # fmt: skip
_PARAMETER: Final = "mcp-param-"
_TRACE: Final = 32
"""Hexadecimal digits of a trace id (W3C Trace Context)."""


def principal(headers: Mapping[str, str]) -> bytes:
    """Return a digest of the credentials of a request: runs and listings of two never mix."""
    credentials = [headers.get("authorization", ""), headers.get("cookie", "")]
    return hashlib.sha256("\0".join(credentials).encode()).digest()


_NO_CREDENTIALS: Final = principal({})


def user_of(credentials: bytes, user_id: object = None) -> str:
    """Return the user of a run's predictor: values of one principal are not guessed for another.

    `credentials`: a digest by `principal`. `user_id`: of all runs, as the operator has set it;
    without credentials it is the user.
    """
    configured = "" if user_id is None else str(user_id)
    if credentials == _NO_CREDENTIALS:
        return configured
    return f"{configured} {credentials.hex()}"


def run_key(
    headers: Mapping[str, str],
    meta: Mapping[str, Any],
    *,
    session_header: str | None = None,
    single_client: bool = False,
) -> tuple[bytes, str] | None:
    """Return what identifies the run that a call belongs to; None if nothing does.

    That is the header that the operator has named, else the id of a session, else the trace id of
    `_meta.traceparent`; in addition to the credentials.
    """
    credentials = principal(headers)
    if single_client:
        return credentials, ""
    if session_header is not None:
        named = headers.get(session_header.lower())
        return (credentials, f"header {named}") if named else None
    session = headers.get(SESSION_ID)
    if session:
        return credentials, f"session {session}"
    parent = meta.get("traceparent")
    parts = parent.split("-") if isinstance(parent, str) else []
    if len(parts) < 4 or len(parts[1]) != _TRACE or not parts[1].strip("0"):
        return None
    return credentials, f"trace {parts[1]}"


def steady_headers(headers: Mapping[str, str], ignored: Collection[str] = ()) -> dict[str, str]:
    """Return the headers that may change what a call returns.

    `ignored`: further ones that do not.
    """
    dropped = {name.lower() for name in ignored} | HOP_BY_HOP | _PER_CALL
    return {
        name: value
        for name, value in headers.items()
        if name not in dropped and not name.startswith(_PARAMETER)
    }


def passed_headers(
    headers: Iterable[tuple[str, str]], more: Mapping[str, str]
) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request as they are passed on. `more`: those it has by default."""
    kept = [(name, value) for name, value in headers if name not in HOP_BY_HOP]
    named = {name for name, _ in kept}
    default = [(name, value) for name, value in more.items() if name not in named]
    return header_bytes([*kept, *default, ("accept-encoding", "identity")])


def header_bytes(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Return headers as they came: Starlette reads their bytes as Latin-1, httpx writes ASCII."""
    return [(_bytes(name), _bytes(value)) for name, value in headers]


def _bytes(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:  # of an option of the operator
        return text.encode()
