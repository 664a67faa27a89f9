"""How turns, calls, servers and processes end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_bench import SEARCH, bench
from mcp_http import free_port, listens
from scripted import SpooledEvents, wait_until

from headstart.integrations.mcp_proxy import proxied_session
from headstart.integrations.mcp_proxy.proxied_session import ObservedCall


def test_a_turn_of_the_most_calls_is_followed_by_guesses(
    events: SpooledEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxied_session, "MOST_CALLS", 2)

    async def test() -> None:
        async with bench(events, SEARCH) as b:
            await asyncio.gather(b.call("lookup", "x"), b.call("lookup", "y"))
            async with asyncio.timeout(10):
                while ("search", "a") not in b.tools.ran:  # noqa: ASYNC110 - of the server
                    await asyncio.sleep(0.005)
            assert b.proxy.session._timer is not None, "the run will end"

    asyncio.run(test())


def test_a_server_that_reads_no_more_has_ended(events: SpooledEvents) -> None:
    async def test() -> None:
        async with bench(events) as b:

            async def broken(*_: Any) -> None:
                raise anyio.BrokenResourceError

            b.proxy._to_server = broken  # type: ignore[method-assign]
            with pytest.raises(MCPError, match="the MCP server has ended"):
                async with asyncio.timeout(10):
                    await b.call("search")

    asyncio.run(test())
    assert events.kinds()[-1] == "end failure"


def test_a_call_that_is_closed_after_its_result_is_not_cancelled(events: SpooledEvents) -> None:
    async def test() -> None:
        async with bench(events, SEARCH) as b:
            session, finished = b.proxy.session, b.proxy.session.finished

            def finished_and_closed(call: ObservedCall, *more: Any) -> None:
                finished(call, *more)
                session.cancelled(call)

            session.finished = finished_and_closed  # type: ignore[method-assign]
            await b.call("refund", "7")
            await b.think()
            assert b.tools.ran == [("refund", "7"), ("search", "a")]

    asyncio.run(test())


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_listening_proxy_keeps_what_was_learned(tmp_path: Path, sent: signal.Signals) -> None:
    port, state = free_port(), tmp_path / "state"
    env = {
        **os.environ, "HEADSTART_SPOOL": str(tmp_path / "spool"),
        "HEADSTART_SHIPPER": "none", "HEADSTART_REDIS": "redis://127.0.0.1:1/0",
    }  # fmt: skip
    options = ["--workflow-type", "w", "--url", "http://127.0.0.1:1/mcp", "--port", str(port)]
    process = subprocess.Popen(
        [sys.executable, "-m", "headstart.integrations.mcp_proxy", *options, "--state", str(state)],
        env=env, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(lambda: listens(port))
        process.send_signal(sent)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    assert state.exists()
