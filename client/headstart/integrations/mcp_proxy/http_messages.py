"""Reads the JSON-RPC messages of an HTTP response while its bytes pass, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from headstart.integrations.mcp_proxy.tool_calls import as_json

LARGEST: Final = 4 * 1024 * 1024
"""Bytes of a message that is read; a larger one passes unread."""

_ENDS: Final = (b"\n\n", b"\r\n\r\n", b"\r\r")
"""Of an event."""
_LONGEST_END: Final = 4

Read = Callable[[Mapping[str, Any]], None]
"""Takes a message."""


class MessageReader:
    """Takes the chunks of a body: one message as JSON, or a stream of events (`text/event-stream`).

    `read` is called for each message. `unread`: whether one was too large, or no JSON.
    """

    def __init__(self, content_type: str, read: Read, largest: int = LARGEST) -> None:
        self._events = content_type.partition(";")[0].strip().lower() == "text/event-stream"
        self._read, self._largest = read, largest
        self._buffer = bytearray()
        self._searched = 0
        self._skipping = self.unread = False

    def feed(self, chunk: bytes) -> None:
        """Read the next bytes."""
        if self._skipping and not self._events:
            return
        self._buffer += chunk
        if self._events:
            self._take_events()
        if len(self._buffer) > self._largest:
            self._skipping = self.unread = True
            self._searched = 0
            del self._buffer[: -_LONGEST_END + 1]  # it may begin with the end of the event

    def end(self) -> None:
        """Read what is left at the end of the body."""
        if not self._events and not self._skipping and self._buffer:
            self._message(bytes(self._buffer))
        self._buffer.clear()

    def _take_events(self) -> None:
        """Read the events that are complete: an empty line ends each."""
        while True:
            places = ((self._buffer.find(end, self._searched), len(end)) for end in _ENDS)
            found = min((each for each in places if each[0] >= 0), default=None)
            if found is None:
                self._searched = max(0, len(self._buffer) - _LONGEST_END + 1)
                return
            self._searched = 0
            event = bytes(self._buffer[: found[0]])
            del self._buffer[: sum(found)]
            if self._skipping:  # the rest of one that was too large
                self._skipping = False
            else:
                self._event(event)

    def _event(self, event: bytes) -> None:
        data = b"\n".join(
            line[5:].removeprefix(b" ") for line in event.splitlines() if line[:5] == b"data:"
        )
        if data:
            self._message(data)

    def _message(self, data: bytes) -> None:
        try:
            message = as_json(data)
        except (ValueError, RecursionError):
            self.unread = True
            return
        if isinstance(message, Mapping):
            self._read(message)
