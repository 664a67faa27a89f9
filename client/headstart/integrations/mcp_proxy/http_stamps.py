"""The headers that messages of a client over stdio have once they go to a server over HTTP."""

from __future__ import annotations

from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
)
from mcp.shared.message import ClientMessageMetadata
from mcp_types import JSONRPCMessage, JSONRPCRequest, JSONRPCResponse

from headstart.integrations.mcp_proxy.known_tools import KnownTools
from headstart.integrations.mcp_proxy.tool_calls import CALL, PROTOCOL


class HttpStamps:
    """Follows the protocol's version: of each request, or as it was agreed on at the begin."""

    def __init__(self, tools: KnownTools) -> None:
        self._tools = tools
        self._agreed: str | None = None

    def initialized(self, message: JSONRPCResponse) -> None:
        """Read the answer to `initialize`."""
        version = message.result.get("protocolVersion")
        self._agreed = version if isinstance(version, str) else None

    def metadata(self, message: JSONRPCMessage) -> ClientMessageMetadata | None:
        """Return the headers of a message."""
        params = getattr(message, "params", None) or {}
        meta = params.get("_meta")
        version = meta.get(PROTOCOL) if isinstance(meta, dict) else None
        if not isinstance(version, str) or not isinstance(message, JSONRPCRequest):
            if self._agreed is None:
                return None
            return ClientMessageMetadata(headers={MCP_PROTOCOL_VERSION_HEADER: self._agreed})
        headers = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: message.method}
        name = params.get(NAME_BEARING_METHODS.get(message.method, ""))
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
            if message.method == CALL:
                headers |= self._tools.headers(name, params.get("arguments") or {})
        return ClientMessageMetadata(headers=headers)
