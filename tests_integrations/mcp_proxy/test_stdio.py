"""Clients that start the proxy as a program, and servers that it starts; over stdio, or HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_http import free_port, http_server
from mcp_programs import SERVER, Notes, environment, proxied
from mcp_types import ElicitResult, PromptReference
from scripted import SpooledEvents, wait_until

from headstart.integrations.mcp_proxy.command import main
from headstart.prediction.predictor import CallPredictor

GUESSES = [[("search", {"query": "a"})], [("search", {"query": "wrong", "takes_s": 5.0})]]
THINKS_S = 0.15


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path)


async def text_of(client: Client, tool: str, query: str, **more: Any) -> str:
    result = await client.call_tool(tool, {"query": query}, **more)
    return result.content[0].text


async def three_calls(client: Client) -> None:
    """Make a call without a guess, one with a right and one with a wrong guess."""
    await client.list_tools()
    for query in ("x", "a", "b"):
        assert await text_of(client, "search", query) == f"search found {query}"
        await asyncio.sleep(THINKS_S)


def check_three_calls(notes: Notes, events: SpooledEvents) -> None:
    begun = [("search", query) for query in ("x", "a", "wrong", "b")]
    assert notes.begun() == begun, "the right guess was made once"
    wait_until(lambda: ["cancelled", "search", "wrong"] in notes.read())
    assert events.kinds() == [
        "search ok", "start search", "hit search", "start search", "search ok", "miss search",
        "end success",
    ]  # fmt: skip
    assert events.calls() == [("search", {"query": query}) for query in ("x", "a", "b")]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_server_over_stdio(notes: Notes, tmp_path: Path, mode: str) -> None:
    spool = tmp_path / "spool"

    async def test() -> None:
        async with Client(proxied(spool, notes, GUESSES), mode=mode) as client:
            assert client.protocol_version == ("2026-07-28" if mode == "auto" else "2025-11-25")
            await three_calls(client)

    asyncio.run(test())
    check_three_calls(notes, SpooledEvents(spool))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_server_over_http(notes: Notes, tmp_path: Path, mode: str) -> None:
    spool = tmp_path / "spool"

    async def test(url: str) -> None:
        started = proxied(spool, notes, GUESSES, command=[], url=url)
        async with Client(started, mode=mode) as client:
            await three_calls(client)

    with http_server(notes) as url:
        asyncio.run(test(url))
        check_three_calls(notes, SpooledEvents(spool))


def test_a_server_over_http_that_cannot_be_reached(notes: Notes, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/mcp"

    async def test() -> None:
        started = proxied(tmp_path / "spool", notes, [], command=[], url=url)
        async with Client(started, mode="2026-07-28") as client:
            for _ in range(2):
                with pytest.raises(MCPError, match="the MCP server cannot be reached"):
                    await client.list_tools()

    asyncio.run(test())


def test_everything_else_passes(notes: Notes, tmp_path: Path) -> None:
    heard: list[Any] = []

    async def on_elicit(ctx: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"sure": True})

    async def on_log(params: Any) -> None:
        heard.append(params.data)

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async def test() -> None:
        started = proxied(tmp_path / "spool", notes, [])
        async with Client(
            started, mode="legacy", elicitation_callback=on_elicit, logging_callback=on_log
        ) as client:
            assert client.instructions == "For tests."
            templates = await client.list_resource_templates()
            assert templates.resource_templates[0].uri_template == "notes://{name}"
            read = await client.read_resource("notes://7")
            assert read.contents[0].text == "note 7"
            assert (await client.list_prompts()).prompts[0].name == "greet"
            prompt = await client.get_prompt("greet", {"name": "Ann"})
            assert prompt.messages[0].content.text == "Hello Ann"
            ref = PromptReference(name="greet")
            completed = await client.complete(ref, {"name": "name", "value": "An"})
            assert completed.completion.values == ["Anna", "Anton"]
            assert await text_of(client, "babble", "x") == "done", "its line of text is dropped"
            assert await text_of(client, "ask", "x") == "accept x"
            result = await client.call_tool("step", {"query": "x"}, progress_callback=on_progress)
            assert result.content[0].text == "done"
            assert heard == [(1.0, 2.0, "half"), "half way"]
            assert len(await text_of(client, "big", "3000000")) == 3_000_000, "passed whole"
            assert await text_of(client, "change", "x") == "changed"
            names = [tool.name for tool in (await client.list_tools(cache_mode="refresh")).tools]
            assert "later" in names
            with pytest.raises(MCPError):
                await client.get_prompt("unknown")

    asyncio.run(test())


def test_a_server_that_ends_is_an_error_for_the_client(notes: Notes, tmp_path: Path) -> None:
    async def test() -> None:
        async with Client(proxied(tmp_path / "spool", notes, GUESSES)) as client:
            await client.list_tools()
            with pytest.raises(MCPError, match="the MCP server has ended"):
                await text_of(client, "leave", "x")

    asyncio.run(test())
    assert SpooledEvents(tmp_path / "spool").kinds() == ["end failure"]


class RawClient:
    """A client that writes lines."""

    def __init__(self, notes: Notes, spool: Path) -> None:
        started = proxied(spool, notes, GUESSES)
        self.process = subprocess.Popen(
            [started.command, *started.args], env=environment(notes),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def write(self, line: Any) -> None:
        text = line if isinstance(line, str) else json.dumps({"jsonrpc": "2.0", **line})
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def read(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def begin(self) -> None:
        info = {"name": "raw", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        self.write({"id": 1, "method": "initialize", "params": params})
        assert self.read()["result"]["serverInfo"]["name"] == "upstream"
        self.write({"method": "notifications/initialized"})
        self.write({"id": "list", "method": "tools/list"})
        assert self.read()["id"] == "list"

    def call(self, request_id: Any, name: Any, arguments: Any) -> None:
        params = {"name": name, "arguments": arguments}
        self.write({"id": request_id, "method": "tools/call", "params": params})


@pytest.fixture
def raw(notes: Notes, tmp_path: Path) -> Any:
    client = RawClient(notes, tmp_path / "spool")
    yield client
    client.process.kill()
    client.process.wait()
    for pipe in (client.process.stdin, client.process.stdout, client.process.stderr):
        with suppress(BrokenPipeError):
            pipe.close()


def children_of(pid: int) -> str:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")


def test_malformed_messages(raw: RawClient, notes: Notes) -> None:
    raw.begin()
    raw.write("this is no JSON")
    assert raw.read()["error"]["code"] == -32700
    raw.call(2, 7, {})
    assert raw.read()["id"] == 2, "the server answers with an error"
    raw.call(3, "search", [1])
    assert "error" in raw.read()
    raw.write({"method": "notifications/cancelled", "params": {"requestId": [1]}})
    raw.write({"method": "notifications/cancelled", "params": {"requestId": "unknown"}})
    raw.write({"id": "headstart-guess-1", "method": "ping"})
    assert raw.read()["id"] == "headstart-guess-1", "an id like those of guesses"
    raw.call("headstart-guess-1", "search", {"query": "x"})
    assert raw.read()["result"]["content"][0]["text"] == "search found x"


@pytest.mark.parametrize("end", ["stdin", "SIGTERM"])
def test_the_end_of_the_client_ends_all(
    raw: RawClient, notes: Notes, tmp_path: Path, end: str
) -> None:
    raw.begin()
    raw.call(2, "search", {"query": "x"})
    raw.read()
    wait_until(lambda: ("search", "a") in notes.begun())
    child = int(children_of(raw.process.pid).split()[0])
    if end == "stdin":
        assert raw.process.stdin is not None
        raw.process.stdin.close()
    else:
        raw.process.send_signal(getattr(signal, end))
    assert raw.process.wait(30) == 0
    wait_until(lambda: not Path(f"/proc/{child}").exists())
    kinds = SpooledEvents(tmp_path / "spool").kinds()
    assert kinds == [
        "search ok", "start search", "miss search",
        "end success" if end == "stdin" else "end aborted",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workflow-type", "w"], "name one MCP server"),
        (["--workflow-type", "w", "--url", "http://h/mcp", "--", "cmd"], "name one MCP server"),
        (["--", "cmd"], "--workflow-type"),
        (["--workflow-type", "w", "--port", "1", "--", "cmd"], "--port needs --url"),
        (["--workflow-type", "", "--", "cmd"], "workflow_type"),
        (["--workflow-type", "w", "--header", "x", "--url", "http://h/mcp"], "'NAME: VALUE'"),
        (["--workflow-type", "w", "--header", "a: ${UNSET_}", "--url", "http://h/mcp"], "UNSET_"),
        (["--workflow-type", "w", "--context", "x", "--", "cmd"], "NAME=VALUE"),
        (["--workflow-type", "w", "--state", "/", "--", "cmd"], "--state"),
        (["--workflow-type", "w", "--idle-s", "-5", "--", "cmd"], "--idle-s"),
        (["--workflow-type", "w", "--port", "1", "--host", "0.0.0.0", "--header", "a: b",
          "--url", "http://h/mcp"], "--header would be sent"),
    ],
)  # fmt: skip
def test_wrong_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, arguments: list[str], message: str
) -> None:
    monkeypatch.setenv("HEADSTART_SPOOL", str(tmp_path))
    monkeypatch.setenv("HEADSTART_SHIPPER", "none")
    monkeypatch.setattr("headstart.integrations.mcp_proxy.command.configure_logging", lambda: None)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_command_that_cannot_be_started(tmp_path: Path) -> None:
    env = {**os.environ, "HEADSTART_SPOOL": str(tmp_path), "HEADSTART_SHIPPER": "none"}
    program = [sys.executable, "-m", "headstart.integrations.mcp_proxy"]
    options = ["--workflow-type", "w", "--", "/no/such/server"]
    done = subprocess.run(
        [*program, *options],
        capture_output=True,
        text=True,
        stdin=subprocess.PIPE,
        env=env,
        check=False,
    )
    assert done.returncode == 1
    assert "cannot be started" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_passes_calls_and_keeps_what_was_learned(notes: Notes, tmp_path: Path) -> None:
    """As it is installed: with no broker and no Redis nothing is started, and nothing fails."""
    state = tmp_path / "state" / "support"
    env = {
        **environment(notes), "HEADSTART_SPOOL": str(tmp_path / "spool"),
        "HEADSTART_SHIPPER": "none", "HEADSTART_REDIS": "redis://127.0.0.1:1/0",
    }  # fmt: skip
    program = str(Path(sys.executable).parent / "headstart-mcp-proxy")
    options = ["--workflow-type", "support", "--read-only", "search", "--state", str(state)]
    started = StdioServerParameters(command=program, args=[*options, "--", *SERVER], env=env)

    async def test() -> None:
        async with Client(started) as client:
            await client.list_tools()
            assert await text_of(client, "search", "x") == "search found x"

    state.parent.mkdir()
    state.write_bytes(CallPredictor().to_bytes())
    before = state.stat().st_ino
    asyncio.run(test())
    wait_until(lambda: state.stat().st_ino != before)
    assert state.stat().st_mode & 0o777 == 0o600
