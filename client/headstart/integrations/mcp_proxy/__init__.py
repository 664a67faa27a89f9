"""Speculation before an MCP server: a proxy between any MCP client and it (the extra `mcp`).

`headstart-mcp-proxy` is its command; `python -m headstart.integrations.mcp_proxy` is the same.
"""

try:
    import mcp  # noqa: F401
except ImportError as error:
    raise ImportError("mcp is not installed: pip install 'headstart[mcp]'") from error
