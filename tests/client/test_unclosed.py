"""A reader that is not closed: its event loop still ends, whatever the reader is doing."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

WAIT_S = 120.0  # a starved machine is no failure; a loop that hangs would never end

PROGRAM = """
import asyncio, sys
import headstart

async def read(delay, timeout_s=5.0):
    thresholds = headstart.AsyncThresholds({url!r}, timeout_s=timeout_s)
    await thresholds.get(workflow_type="refund")
    await asyncio.sleep(delay)
    return thresholds

{body}
print("ended")
"""

ENDS = """
for number in range(60):
    asyncio.run(read(number * 0.0002))
"""
WITH_A_LIMIT = """
async def limited(delay):
    await asyncio.wait_for(read(delay), 60)
for number in range(60):
    asyncio.run(limited(number * 0.0002))
"""
CLOSED = """
async def closed(delay):
    async with headstart.AsyncThresholds({url!r}, timeout_s=5.0) as thresholds:
        await thresholds.get(workflow_type="refund")
        await asyncio.sleep(delay)
for number in range(60):
    asyncio.run(closed(number * 0.0002))
"""
BY_AN_EXCEPTION = """
async def failing(delay):
    await read(delay)
    raise LookupError
for number in range(60):
    try:
        asyncio.run(failing(number * 0.0002))
    except LookupError:
        pass
    else:
        sys.exit("no exception")
"""
CANCELLED = """
async def cancelled(delay):
    task = asyncio.ensure_future(read(60.0))
    await asyncio.sleep(delay)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled(), "the cancellation was swallowed"
for number in range(60):
    asyncio.run(cancelled(number * 0.0002))
"""
STOPPED_BY_A_TIMEOUT = """
async def timed_out(delay):
    try:
        async with asyncio.timeout(delay):
            await read(60.0)
    except TimeoutError:
        pass
for number in range(60):
    asyncio.run(timed_out(number * 0.0002))
"""
WITH_A_TURN = """
async def turn(delay):
    thresholds = headstart.AsyncThresholds({url!r}, timeout_s=5.0)
    speculator = headstart.AsyncSpeculator(thresholds, allowed={{"search"}})
    context = {{"workflow_type": "refund", "workflow_id": "w"}}
    guess = headstart.GuessedCall("search", {{}}, 0.99)
    async with speculator.turn(context, [guess], lambda *call: asyncio.sleep(0, 7)) as turn:
        await asyncio.sleep(delay)
        matches = turn.settle([headstart.RequestedCall("1", "search", {{}})])
        assert await matches["1"].result() == 7
for number in range(60):
    asyncio.run(turn(number * 0.0002))
"""
SILENT = """
for number in range(10):
    asyncio.run(read(number * 0.002, timeout_s=0.05))
"""
SILENT_AND_CANCELLED = CANCELLED.replace("range(60)", "range(20)")


def ends(body: str, url: str) -> None:
    program = PROGRAM.format(url=url, body=body.format(url=url))
    ran = subprocess.run(
        [sys.executable, "-c", program],
        check=False, capture_output=True, text=True, timeout=WAIT_S,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, "ended\n"), ran.stderr


@pytest.mark.integration
@pytest.mark.usefixtures("modes_published")
@pytest.mark.parametrize(
    "body",
    [
        ENDS, WITH_A_LIMIT, CLOSED, BY_AN_EXCEPTION, CANCELLED, STOPPED_BY_A_TIMEOUT,
        WITH_A_TURN,
    ],
    ids=["ends", "limited", "closed", "exception", "cancelled", "timeout", "turn"],
)  # fmt: skip
def test_the_loop_ends(redis_url: str, body: str) -> None:
    ends(body, redis_url)


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a server that accepts connections, and never sends anything."""
    with socket.create_server(("127.0.0.1", 0), backlog=500) as listener:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"


@pytest.mark.parametrize("body", [SILENT, SILENT_AND_CANCELLED], ids=["ends", "cancelled"])
def test_the_loop_ends_where_redis_accepts_and_never_answers(silent: str, body: str) -> None:
    ends(body, silent)
