"""`python -m headstart.integrations.mcp_proxy`: the same as `headstart-mcp-proxy`."""

from headstart.integrations.mcp_proxy.command import main

main()
