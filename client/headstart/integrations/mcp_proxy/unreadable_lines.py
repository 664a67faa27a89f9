"""Lines over stdio that the SDK does not read though they are JSON: reads them, or finds their id.

The SDK's parser refuses half a surrogate pair, as JavaScript writes of a text that was cut within
an emoji, deep nesting, and integers of thousands of digits.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from mcp_types import JSONRPCMessage, RequestId, jsonrpc_message_adapter

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ID: Final = re.compile(r'"id"\s*:\s*(-?\d{1,18}|"(?:[^"\\]|\\.){0,200}")')
_NEAR: Final = 300
"""Characters at both ends of a line in which an id is looked for."""


def message_in(error: Exception) -> JSONRPCMessage | None:
    """Return the message of a line that was refused, with half pairs as U+FFFD; None if none."""
    try:
        message = jsonrpc_message_adapter.validate_python(_repaired(json.loads(_line_of(error))))
        message.model_dump_json()  # what cannot be written would end the connection
    except (ValueError, RecursionError):  # also ValidationError
        return None
    found: JSONRPCMessage = message
    return found


def request_id_in(error: Exception) -> RequestId | None:
    """Return the id in a line that is no readable message; None if there is none."""
    line = _line_of(error)
    found = _ID.search(line[:_NEAR]) or _ID.search(line[-_NEAR:])
    if found is None:
        return None
    value: RequestId = json.loads(found[1])
    return value


def _line_of(error: Any) -> str:
    """Return the line that an error of pydantic's names; "" of another error."""
    if not hasattr(error, "errors"):
        return ""
    line = error.errors(include_url=False)[0]["input"]
    return line if isinstance(line, str) else ""


def _repaired(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_repaired(each) for each in value]
    if isinstance(value, dict):
        return {_repaired(name): _repaired(each) for name, each in value.items()}
    return value
