"""The documentation's page: its configuration starts a proxy that speculates."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from headstart.integrations.mcp_proxy.http_identity import run_key, steady_headers
from headstart.integrations.mcp_proxy.http_messages import MessageReader
from headstart.integrations.mcp_proxy.options import parsed
from headstart.integrations.mcp_proxy.tool_calls import result_text, steady_meta, tool_request

PAGE = Path(__file__).parents[2] / "docs/how-to/integrate-mcp.md"
TRACE = "00-0af7651916cd43dd8448eb211c803191-b7ad6b7169203331-01"


def test_the_configuration_of_the_page() -> None:
    found = re.search(r"```diff\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    lines = found[1].splitlines()
    assert sum(line.startswith("+") for line in lines) <= 3
    after = json.loads("\n".join(line[1:] for line in lines if not line.startswith("-")))
    before = json.loads("\n".join(line[1:] for line in lines if not line.startswith("+")))
    theirs, ours = (each["mcpServers"]["tracker"] for each in (before, after))
    options = parsed(ours["args"])
    assert ours["command"] == "headstart-mcp-proxy"
    assert options.command == [theirs["command"], *theirs["args"]]
    assert (options.workflow_type, options.read_only) == ("support", ["search"])


def test_every_option_of_the_page_exists(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(["--help"])
    shown = capsys.readouterr().out
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE.read_text(encoding="utf-8")))
    assert len(named) > 10
    assert [option for option in sorted(named) if option not in shown] == []


@pytest.mark.parametrize(
    "params",
    [None, [], {}, {"name": 7}, {"name": ""}, {"name": "x", "arguments": [1]},
     {"name": "x", "_meta": 1}, {"name": "x" * 300}],
)  # fmt: skip
def test_malformed_calls_are_not_observed(params: Any) -> None:
    assert tool_request(params) is None


def test_calls_that_no_guess_may_answer() -> None:
    assert tool_request({"name": "x", "_meta": {}}).plain  # type: ignore[union-attr]
    assert not tool_request({"name": "x", "task": {}}).plain  # type: ignore[union-attr]
    assert not tool_request({"name": "x", "requestState": "s"}).plain  # type: ignore[union-attr]


def test_meta_that_differs_from_call_to_call() -> None:
    meta = {"progressToken": 1, "claudecode/toolUseId": "t", "traceparent": TRACE, "tenant": "t1"}
    assert steady_meta(meta) == {"tenant": "t1"}
    assert steady_meta(meta, ["tenant"]) == {}


def test_what_the_predictor_learns_of_a_result() -> None:
    def content(*texts: str) -> Any:
        return {"content": [{"type": "text", "text": text} for text in texts]}

    assert result_text(content('{"id": 7}')) == {"id": 7}
    assert result_text(content("a", "b")) == "a\nb"
    assert result_text(content("{no JSON")) == "{no JSON"
    assert result_text({"content": [{"type": "image"}, None], "structuredContent": None}) == ""
    assert result_text({**content("a"), "structuredContent": {"id": 7}}) == {"id": 7}
    assert result_text({"content": "no list"}) == ""
    long = result_text(content("[" + "1," * 5_000_000))
    assert isinstance(long, str)
    assert len(long) < 100_000


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_messages_are_read_from_chunks_of_any_size(size: int) -> None:
    read: list[Any] = []
    events = MessageReader("text/event-stream; charset=utf-8", read.append, largest=200)
    body = (
        b': ping\r\n\r\nevent: message\r\ndata: {"id": 1}\r\n\r\ndata: {"id":\ndata: 2}\n\n'
        b"data: " + b"x" * 500 + b'\n\ndata: no JSON\n\ndata: [1]\n\ndata: {"id": 3}\n\n'
    )
    for at in range(0, len(body), size):
        events.feed(body[at : at + size])
    events.end()
    expected = [{"id": 1}, {"id": 2}, {"id": 3}]
    assert read == expected
    assert events.unread


def test_a_body_that_is_too_large_is_not_read() -> None:
    read: list[Any] = []
    reader = MessageReader("application/json", read.append, largest=100)
    for _ in range(30):
        reader.feed(b'{"id": 1}')
    reader.end()
    assert read == []
    assert reader.unread


def test_what_names_a_run() -> None:
    meta = {"traceparent": TRACE}
    key = run_key({}, meta)
    assert key is not None
    assert key[1] == f"trace {TRACE[3:35]}"
    assert run_key({"authorization": "x"}, meta) != key, "of other credentials"
    assert run_key({"cookie": "x"}, meta) != key
    assert run_key({"mcp-session-id": "s"}, meta) != key
    assert run_key({}, meta, session_header="X-Chat") is None
    assert run_key({"x-chat": "1"}, meta, session_header="X-Chat") is not None
    for wrong in (7, "", "00", f"00-{'0' * 32}-b7ad6b7169203331-01", "00-abc-def-01"):
        assert run_key({}, {"traceparent": wrong}) is None


def test_headers_of_one_call() -> None:
    headers = {"mcp-name": "x", "mcp-param-city": "y", "host": "h", "x-tenant": "t", "accept": "a"}
    assert steady_headers(headers) == {"x-tenant": "t", "accept": "a"}
    assert steady_headers(headers, ["X-Tenant"]) == {"accept": "a"}
