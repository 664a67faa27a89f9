"""The command `headstart-mcp-proxy`: speculation between an MCP client and a server."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from headstart.arguments.checks import InvalidArgument
from headstart.integrations.mcp_proxy.http_listener import is_loopback, listen
from headstart.integrations.mcp_proxy.known_tools import KnownTools
from headstart.integrations.mcp_proxy.options import parsed, setup_of, times_of, upstream_of
from headstart.integrations.mcp_proxy.over_stdio import serve
from headstart.integrations.mcp_proxy.predictor_file import predictor_of, save
from headstart.integrations.mcp_proxy.stream_proxy import StreamProxy
from headstart.log_lines import configure_logging


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the proxy, and exit."""
    options = parsed(sys.argv[1:] if arguments is None else arguments)
    try:
        configure_logging()
        predictor = predictor_of(options.state)
        setup = setup_of(options, predictor)
        upstream, times = upstream_of(options), times_of(options)
        if options.port is not None and upstream.headers and not is_loopback(options.host):
            raise InvalidArgument("--header would be sent for all that can reach --host")
    except (InvalidArgument, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    logging.getLogger("mcp").setLevel(logging.WARNING)
    keep = partial(save, predictor, options.state)
    if options.port is None:
        tools = KnownTools(trust_annotations=options.trust_annotations)
        proxy = StreamProxy(setup, tools, times, options.ignore, stamped=upstream.url is not None)
        sys.exit(asyncio.run(serve(proxy, upstream, setup, keep)))
    code = listen(setup, times, upstream, options)
    keep()
    sys.exit(code)
