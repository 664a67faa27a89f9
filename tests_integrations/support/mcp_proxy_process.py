"""A proxy over stdio with scripted guesses: `mcp_proxy_process.py SETTINGS COMMAND ARGS`.

SETTINGS is JSON: `spool`, `guesses` for each turn, `read_only`, `trust`, `url`, `times`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from scripted import Script, SpooledEvents, set_up

from headstart.integrations.mcp_proxy.known_tools import KnownTools
from headstart.integrations.mcp_proxy.options import Upstream
from headstart.integrations.mcp_proxy.over_stdio import serve
from headstart.integrations.mcp_proxy.proxied_session import ProxyTimes
from headstart.integrations.mcp_proxy.stream_proxy import StreamProxy


def main(settings: Any, command: list[str]) -> None:
    """Serve the client of stdin and stdout."""
    events = SpooledEvents(Path(settings["spool"]))
    setup = set_up(events, Script(*settings["guesses"]), read_only=settings["read_only"])
    tools = KnownTools(trust_annotations=settings.get("trust", False))
    times = ProxyTimes(**settings.get("times", {}))
    url = settings.get("url")
    proxy = StreamProxy(setup, tools, times, stamped=url is not None)
    sys.exit(asyncio.run(serve(proxy, Upstream(command, url, {}), setup, lambda: None)))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
