"""The console script `headstart-mcp-proxy`: one line where the extra `mcp` is not installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import NoReturn


def main() -> NoReturn:
    """Run the proxy; exit with code 2 if the package `mcp` is missing."""
    if find_spec("mcp") is None:
        print("error: mcp is not installed: pip install 'headstart[mcp]'", file=sys.stderr)
        sys.exit(2)
    from headstart.integrations.mcp_proxy.command import main as run

    run()
